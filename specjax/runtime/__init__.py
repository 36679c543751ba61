"""Machine-level support of runs: errors, progress, files, processes, compiled programs."""

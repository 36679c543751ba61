"""What a run needs of its machine: errors, progress, files, processes, compiled programs."""

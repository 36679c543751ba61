#!/usr/bin/env bash
# Sets everything up and runs the linter and the tests, two files at a time: most of their time is
# tracing and compiling, which one process cannot share out. Arguments go to pytest (-m slow, -k, ...).
set -euo pipefail
source "$(dirname "$0")/setup.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
if [ $# -eq 0 ]; then
  set -- -m "not slow"
  # These programs run for moments: making them fast takes longer than they do.
  export XLA_FLAGS="--xla_backend_optimization_level=0 ${XLA_FLAGS:-}"
fi
exec .venv/bin/python -m pytest -n 2 --dist loadfile --durations=10 "$@"

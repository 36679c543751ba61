#!/usr/bin/env bash
# Sets everything up and runs the linter and the tests; arguments go to pytest (-m slow, -k, ...).
set -euo pipefail
source "$(dirname "$0")/setup.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
if [ $# -eq 0 ]; then
  set -- -m "not slow"
fi
exec .venv/bin/python -m pytest --durations=10 "$@"

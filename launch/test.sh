#!/usr/bin/env bash
# Sets everything up and runs the linters, the type checker and the tests, two files at a time: most of their time is
# tracing and compiling, which one process cannot share out. Files go by name, not those with the most
# tests first: the dearest have few and would end alone. Arguments go to pytest (-m slow, -k, ...).
set -euo pipefail
needs="test" source "$(dirname "$0")/setup.sh"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/lint-imports --no-logo --no-cache # who may know whom: docs/design.md, Rooms
.venv/bin/shellcheck launch/*.sh
if [ $# -eq 0 ]; then
  .venv/bin/pyright # of a whole run only: it takes 40 seconds
  set -- -m "not slow"
fi
# These programs run for moments: making them fast takes longer than they do. Without the fusion
# emitters, XLA's CPU backend has no MLIR pipeline to run: a decode compiles in half the time. The
# two passes count the turns of loops inside of loops over and over, for half of what is left.
quick=$(tr '\n' ' ' < tests/support/xla_flags.txt)
export XLA_FLAGS="$quick ${XLA_FLAGS:-}"
# What Python compiles of JAX and the rest is kept for all processes of all runs: compiling it takes
# each of them seconds. In a folder of its own, so that nothing is left beside sources.
export PYTHONDONTWRITEBYTECODE="" PYTHONPYCACHEPREFIX="$PWD/.venv/bytecode"
exec .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10 "$@"

#!/usr/bin/env bash
# Sets everything up and runs the main job on the embedded default. Flags are passed on:
#   ./launch/quickstart.sh --config.examples=20
set -euo pipefail
source "$(dirname "$0")/setup.sh"
exec .venv/bin/python -m specjax.main --config=configs/quickstart.py "$@"

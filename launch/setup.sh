# shellcheck shell=bash
# Sourced by the other scripts: a virtual environment in .venv with specjax and its test tools.
# Skips what is there already; SPECJAX_EXTRAS=cuda13 (or cuda12, tpu) adds an accelerator.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
find_python() {
  local candidate
  for candidate in ${SPECJAX_PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "specjax needs Python 3.11 or newer; set SPECJAX_PYTHON to one" >&2
  return 1
}

extras="test${SPECJAX_EXTRAS:+,$SPECJAX_EXTRAS}"
stamp=.venv/.specjax-installed
wanted="$extras $(cksum < setup.py)"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  python=$(find_python)
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "installing specjax and its dependencies into .venv (about a minute)"
  .venv/bin/python -m pip install --quiet --editable ".[$extras]"
  echo "$wanted" > "$stamp"
fi

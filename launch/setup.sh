# shellcheck shell=bash
# Sourced by the other scripts: a virtual environment in .venv with specjax. Skips what is there
# already. SPECJAX_EXTRAS=cuda13 (or cuda12, tpu) adds an accelerator; `needs=test`, set before, adds
# the test tools. What was installed once stays.
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

stamp=.venv/.specjax-extras # the checksum of pyproject.toml, then the extras that are installed
asked=${needs:-},${SPECJAX_EXTRAS:-},$(cut -d ' ' -f 3 "$stamp" 2>/dev/null || true)
extras=$(tr , '\n' <<< "$asked" | sed '/^$/d' | sort -u | paste -s -d , -)
wanted="$(cksum < pyproject.toml) $extras"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  python=$(find_python)
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "installing specjax and its dependencies into .venv (about a minute)"
  # Python compiles what it imports, a small part of all that is installed.
  .venv/bin/python -m pip install --quiet --no-compile --editable ".${extras:+[$extras]}"
  echo "$wanted" > "$stamp"
fi

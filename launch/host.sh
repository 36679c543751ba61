#!/usr/bin/env bash
# Readies one host of a TPU slice: Python, the share, specjax in .venv. Does nothing where all is there.
#
#     launch/host.sh 10.0.0.2:/runs
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# -eq 1 ] || fail "it takes one argument, the NFS share"
check_share "$1"

# Images of TPU VMs come with older Pythons.
find_new_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11; do
    command -v "$candidate" && return
  done
  [ -x "$HOME/.local/bin/uv" ] || python3 -m pip install --quiet --user uv >&2
  "$HOME/.local/bin/uv" python install --quiet 3.12 >&2
  "$HOME/.local/bin/uv" python find 3.12
}

if ! mountpoint --quiet "$shared"; then
  dpkg --status nfs-common >/dev/null 2>&1 ||
    { sudo apt-get update --quiet && sudo apt-get install --quiet --yes nfs-common; }
  sudo mkdir -p "$shared"
  sudo mount -t nfs -o hard "$1" "$shared"
  sudo chmod a+rwx "$shared"
fi
SPECJAX_PYTHON=$(find_new_python)
export SPECJAX_PYTHON SPECJAX_EXTRAS=tpu
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

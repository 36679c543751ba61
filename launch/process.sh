#!/usr/bin/env bash
# One process of a job over several: what the launchers start on every host. Arguments are flags of
# specjax.main. Ends with exit code 2 after a user's mistake, and 3 if any process of the job died.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
python=${VIRTUAL_ENV:-.venv}/bin/python
[ -x "$python" ] || python=python3 # a container has no other

"$python" -m specjax.main --distributed "$@" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
code=0
while :; do # a signal that was handed on ends a wait, but not yet the child
  wait "$child"
  code=$?
  kill -0 "$child" 2>/dev/null || break
done
case $code in
  134) # JAX aborts a process that has lost the others
    echo "specjax: another process of this job died, which ends the job; started again, it goes on" \
      "from its last checkpoint" >&2
    exit 3
    ;;
  0 | 2 | 3 | 143) exit "$code" ;; # 143: it was asked to end
  *)
    echo "specjax: this process died with exit code $code, which ends the job; started again, it" \
      "goes on from its last checkpoint" >&2
    exit 3
    ;;
esac

#!/usr/bin/env bash
# What launch/slurm.sh submits: all processes of a job; queued again when one of them died.
set -uo pipefail
# With the first process that fails, the others end.
srun --kill-on-bad-exit=1 launch/process.sh "$@"
code=$?
case $code in 0 | 2) exit "$code" ;; esac # 2: a user's mistake
if [ "${SLURM_RESTART_COUNT:-0}" -lt "${SPECJAX_RETRIES:-0}" ]; then
  echo "launch/slurm_job.sh: the job ended with exit code $code; it is queued again and goes on" \
    "from its last checkpoint" >&2
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"

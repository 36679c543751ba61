#!/usr/bin/env bash
# Submits one job to SLURM: a process for each GPU of the nodes, queued again after a preemption.
#
#     launch/slurm.sh --name=align --nodes=2 --gpus=8 --retries=5 --time=12:00:00 -- \
#       --config=configs/training/align.py --workdir=runs/align --config.mesh.data=16 ...
#
# --name=NAME       of the job; one of this name that waits or runs is left alone
# --nodes=N         nodes; 1
# --gpus=N          GPUs, and so processes, of each node; 8
# --cpus=N          CPU cores of each process; 8
# --time=TIME       longest run, as 12:00:00; the partition's own
# --partition=NAME  where it runs; SLURM's own
# --account=NAME    who pays; SLURM's own
# --cuda=VERSION    12 or 13, as the driver has it; 12
# --retries=N       how often the job is queued again after a process died; 0
# --delete          cancels the job of this name and ends; takes no job
# --dry-run         only prints the commands
# --help            this text
#
# Behind -- stand flags of specjax.main. This checkout and the workdir lie where all nodes see them,
# as home folders do. What the job prints is in specjax-NAME-ID.log.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

opt_name=""
opt_nodes=1
opt_gpus=8
opt_cpus=8
opt_time=""
opt_partition=""
opt_account=""
opt_cuda=12
opt_delete=false

check() {
  parse_options "$@"
  check_given --name "$opt_name"
  check_name --name "$opt_name"
  if [ "$opt_delete" = true ]; then
    [ ${#job[@]} -eq 0 ] || fail "--delete takes no job; leave out what stands behind --"
    return
  fi
  check_count --nodes "$opt_nodes" 1
  check_count --gpus "$opt_gpus" 1
  check_count --cpus "$opt_cpus" 1
  check_count --retries "$opt_retries" 0
  [[ $opt_cuda == 12 || $opt_cuda == 13 ]] ||
    fail "--cuda is '$opt_cuda'; it must be 12 or 13"
  check_job
}

# Sets `found` to the numbers of the jobs of this name that wait or run.
find_jobs() {
  local question=(squeue --me "--name=$opt_name" --noheader --format=%A)
  found=""
  if [ "$opt_dry_run" = true ]; then
    run "${question[@]}"
  else
    found=$("${question[@]}")
  fi
}

submit() {
  run sbatch "--job-name=$opt_name" "--chdir=$root" "--nodes=$opt_nodes" \
    "--ntasks-per-node=$opt_gpus" "--gpus-per-node=$opt_gpus" "--cpus-per-task=$opt_cpus" \
    "--output=specjax-$opt_name-%j.log" --open-mode=append --requeue \
    ${opt_time:+"--time=$opt_time"} ${opt_partition:+"--partition=$opt_partition"} \
    ${opt_account:+"--account=$opt_account"} "--export=ALL,SPECJAX_RETRIES=$opt_retries" \
    "$root/launch/slurm_job.sh" "${job[@]}"
}

check "$@"
if [ "$opt_delete" = true ]; then
  run scancel --me "--name=$opt_name"
  exit
fi
find_jobs || exit 1
if [ -n "$found" ]; then
  echo "$program: job ${found//$'\n'/, } of the name $opt_name is there already"
  exit 0
fi
run env "SPECJAX_EXTRAS=cuda$opt_cuda" bash -eu "$root/launch/setup.sh" && submit

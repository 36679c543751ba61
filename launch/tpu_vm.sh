#!/usr/bin/env bash
# Runs one job on a TPU VM or on all hosts of a pod slice, and again after each preemption.
#
#     launch/tpu_vm.sh --name=table2 --zone=us-west4-a --type=v5litepod-8 --share=10.0.0.2:/runs -- \
#       --config=configs/t5xxl_ende.py --workdir=/mnt/specjax/table2
#
# --name=NAME       of the TPU VM; one that is there is used
# --zone=ZONE       where it is
# --type=TYPE       accelerator type, as v5litepod-8 or v4-32
# --share=SHARE     NFS share for results and checkpoints, as 10.0.0.2:/runs; at /mnt/specjax
# --image=VERSION   of the TPU's software; v2-alpha-tpuv5-lite
# --project=ID      the project; gcloud's own
# --retries=N       how often a job goes on after a preemption or a dead process; 0
# --spot            asks for spot capacity, which may be preempted at any time
# --delete          deletes the TPU VM and ends; takes no job
# --dry-run         only prints the commands
# --help            this text
#
# Behind -- stand flags of specjax.main; its --workdir lies below /mnt/specjax. The committed files of
# this checkout are copied to all hosts. A TPU VM that was preempted is deleted and created again.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

opt_name=""
opt_zone=""
opt_type=""
opt_share=""
opt_image=v2-alpha-tpuv5-lite
opt_project=""
opt_spot=false
opt_delete=false

readonly archive=build/specjax.tar.gz

check() {
  parse_options "$@"
  check_given --name "$opt_name"
  check_name --name "$opt_name"
  check_given --zone "$opt_zone"
  check_count --retries "$opt_retries" 0
  if [ "$opt_delete" = true ]; then
    [ ${#job[@]} -eq 0 ] || fail "--delete takes no job; leave out what stands behind --"
    return
  fi
  check_given --type "$opt_type"
  check_given --share "$opt_share"
  check_share "$opt_share"
  check_job
  check_workdir
}

# A command for this TPU VM: $1, then its own flags.
tpu() {
  local verb=$1
  shift
  run gcloud compute tpus tpu-vm "$verb" "$@" "--zone=$opt_zone" \
    ${opt_project:+"--project=$opt_project"}
}

# Runs a line of bash on all hosts.
on_all_hosts() {
  tpu ssh "$opt_name" --worker=all "--command=$1"
}

# Sets `found` to what gcloud says of the TPU VM: READY, PREEMPTED, ...; nothing where it knows none.
find_state() {
  local question=(describe "$opt_name" '--format=value(state)')
  found=""
  if [ "$opt_dry_run" = true ]; then
    tpu "${question[@]}"
  else
    found=$(tpu "${question[@]}" 2>/dev/null)
  fi
}

delete() {
  tpu delete "$opt_name" --quiet
}

# A TPU VM that is ready, with specjax on all of its hosts.
ready() {
  find_state
  case $found in
    READY) ;;
    CREATING | STARTING | RESTARTING | REPAIRING)
      echo "$program: $opt_name is $found; try again when it is READY" >&2
      return 1
      ;;
    *)
      [ -z "$found" ] || delete || return 1
      create || return 1
      ;;
  esac
  install
}

create() {
  local spot=()
  [ "$opt_spot" = false ] || spot=(--spot)
  tpu create "$opt_name" "--accelerator-type=$opt_type" "--version=$opt_image" \
    ${spot[@]+"${spot[@]}"}
}

install() {
  run mkdir -p "$root/build" &&
    run git -C "$root" archive --format=tar.gz "--output=$archive" HEAD &&
    tpu scp "$root/$archive" "$opt_name:specjax.tar.gz" --worker=all &&
    on_all_hosts "mkdir -p specjax && tar -xzf specjax.tar.gz -C specjax && \
specjax/launch/host.sh $(quoted "$opt_share")"
}

# One start of the job on all hosts; on a host it runs in already it is refused.
attempt() {
  ready || return
  on_all_hosts "flock --nonblock --conflict-exit-code=2 specjax.lock \
specjax/launch/process.sh $(quoted "${job[@]}")"
}

recover() {
  sleep 30
}

check "$@"
if [ "$opt_delete" = true ]; then
  find_state
  if [ -n "$found" ] || [ "$opt_dry_run" = true ]; then delete; fi
else
  with_retries
fi

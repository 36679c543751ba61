#!/usr/bin/env bash
# Runs one job as several processes on this machine: on its GPUs, or on simulated CPU devices.
#
#     launch/local.sh --processes=2 --devices=4 -- --config=configs/training/finetune.py \
#       --workdir=runs/two --config.mesh.data=8 ...
#
# --processes=N     processes; 2
# --devices=N       devices of each process; 1
# --platform=NAME   cpu (simulated devices, gloo) or gpu (each process takes its share); cpu
# --port=N          where the processes meet; a free one
# --retries=N       how often the job is started again after a process died; 0
# --dry-run         only prints the commands
# --help            this text
#
# Behind -- stand flags of specjax.main. A process that dies ends the others; the job goes on from
# its last checkpoint when it is started again.
set -uo pipefail
set -m # a process group for each process: what it has started ends with it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

opt_processes=2
opt_devices=1
opt_platform=cpu
opt_port=0

readonly pause=0.2 # seconds between looks at the processes
readonly grace=50 # looks until a process that was asked to end is killed

check() {
  parse_options "$@"
  check_count --processes "$opt_processes" 1
  check_count --devices "$opt_devices" 1
  check_count --port "$opt_port" 0
  check_count --retries "$opt_retries" 0
  [[ $opt_platform == cpu || $opt_platform == gpu ]] ||
    fail "--platform is '$opt_platform'; it must be cpu or gpu"
  check_job
}

# A port that nobody listens on.
free_port() {
  local port
  for ((try = 0; try < 100; try++)); do
    port=$((20000 + RANDOM % 20000))
    (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# The environment of process $1, into `settings`.
set_environment() {
  local first=$(($1 * opt_devices)) ids
  settings=("JAX_COORDINATOR_ADDRESS=127.0.0.1:$port" "JAX_NUM_PROCESSES=$opt_processes"
    "JAX_PROCESS_ID=$1")
  if [ "$opt_platform" = cpu ]; then
    local count="--xla_force_host_platform_device_count=$opt_devices"
    settings+=(JAX_PLATFORMS=cpu "XLA_FLAGS=${XLA_FLAGS:+$XLA_FLAGS }$count")
  else
    ids=$(seq -s , "$first" $((first + opt_devices - 1)))
    settings+=("JAX_LOCAL_DEVICE_IDS=$ids")
  fi
}

# One start of all processes; returns the exit code of the first one that failed.
attempt() {
  local port=$opt_port index settings=()
  pids=()
  [ "$port" -gt 0 ] || port=$(free_port)
  for ((index = 0; index < opt_processes; index++)); do
    set_environment "$index"
    if [ "$opt_dry_run" = true ]; then
      run env "${settings[@]}" "$root/launch/process.sh" "${job[@]}"
    else
      env "${settings[@]}" "$root/launch/process.sh" "${job[@]}" &
      pids+=($!)
    fi
  done
  [ "$opt_dry_run" = false ] || return 0
  wait_for_all
}

wait_for_all() {
  local pid left=("${pids[@]}") still code
  while [ ${#left[@]} -gt 0 ]; do
    still=()
    for pid in "${left[@]}"; do
      if kill -0 "$pid" 2>/dev/null; then
        still+=("$pid")
      else
        wait "$pid"
        code=$?
        if [ "$code" -ne 0 ]; then
          end_all
          return "$code"
        fi
      fi
    done
    left=(${still[@]+"${still[@]}"})
    sleep "$pause"
  done
}

# Asks the processes that are left to end, and kills those that do not.
end_all() {
  local look
  signal_all TERM
  for ((look = 0; look < grace; look++)); do
    signal_all 0 || return 0
    sleep "$pause"
  done
  signal_all KILL
}

# Sends a signal to all process groups; fails when there is none left.
signal_all() {
  local pid found=1
  for pid in ${pids[@]+"${pids[@]}"}; do
    kill "-$1" -- "-$pid" 2>/dev/null && found=0
  done
  return "$found"
}

recover() {
  sleep 1
}

check "$@"
pids=()
trap 'end_all; exit 130' INT TERM
with_retries

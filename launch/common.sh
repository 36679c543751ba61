# shellcheck shell=bash disable=SC2034
# Sourced by the launchers: options, refusals, and commands that --dry-run prints instead of running.
program="launch/$(basename "$0")"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly program root # the repository
readonly shared=/mnt/specjax # where every host of a cluster has the share
job=()                       # flags of the job: what stands behind --
opt_dry_run=false
opt_retries=0

# The mistake of a user: one sentence, exit code 2.
fail() {
  echo "$program: $1" >&2
  exit 2
}

# The comment that a launcher opens with.
show_help() {
  awk 'NR > 1 && /^#/ { sub(/^# ?/, ""); print; next } NR > 1 { exit }' "$0"
}

# Fills the variables opt_... that a launcher has declared, and `job`.
parse_options() {
  local variable
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) show_help && exit 0 ;;
      --)
        shift
        job=("$@")
        return
        ;;
      --*)
        variable=${1%%=*}
        variable=opt_$(tr - _ <<<"${variable#--}")
        [[ $variable =~ ^[a-z_]+$ && -n ${!variable+declared} ]] ||
          fail "there is no option ${1%%=*}; see $program --help, and put flags of the job behind --"
        set_option "$variable" "$1"
        ;;
      *) fail "unexpected argument '$1'; flags of the job stand behind --" ;;
    esac
    shift
  done
}

# A switch takes no value, any other option one.
set_option() {
  local name=${2%%=*}
  if [[ ${!1} == true || ${!1} == false ]]; then
    [[ $2 == "$name" ]] || fail "$name is a switch; it takes no value"
    printf -v "$1" true
  else
    [[ $2 == "$name="?* ]] || fail "$name has no value; it must be given as $name=VALUE"
    printf -v "$1" %s "${2#*=}"
  fi
}

check_given() {
  [ -n "$2" ] || fail "$1 is missing; see $program --help"
}

check_count() {
  if ! [[ $2 =~ ^(0|[1-9][0-9]{0,4})$ ]] || (($2 < $3)); then
    fail "$1 is '$2'; it must be an integer from $3 to 99999"
  fi
}

check_name() {
  [[ $2 =~ ^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$ ]] ||
    fail "$1 is '$2'; it must be up to 40 small letters, digits and dashes, beginning with a letter"
}

check_share() {
  [[ $1 =~ ^[A-Za-z0-9.-]+:/[A-Za-z0-9._/-]*$ ]] ||
    fail "--share is '$1'; it must be an NFS share, as 10.0.0.2:/runs"
}

check_job() {
  [ ${#job[@]} -gt 0 ] || fail "there is no job; put flags of specjax.main behind --"
}

# A run that is to go on after a preemption needs its checkpoints on the share.
check_workdir() {
  local flag
  for flag in "${job[@]}"; do
    [[ $flag != --workdir="$shared"/?* ]] || return 0
  done
  fail "the job has no --workdir below $shared, the share that all hosts see; give it behind --"
}

# The words as a shell reads them again.
quoted() {
  local word words=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    words+=" $word"
  done
  echo "${words# }"
}

# Runs a command, or prints it.
run() {
  if [ "$opt_dry_run" = true ]; then
    quoted "$@"
  else
    "$@"
  fi
}

# Runs `attempt` until it succeeds, at most --retries times more; `recover` comes between. A user's
# mistake (exit code 2) is not tried again.
with_retries() {
  local tries=0 code
  while :; do
    attempt && return
    code=$?
    [ "$code" -ne 2 ] || exit 2
    if [ "$tries" -ge "$opt_retries" ]; then
      echo "$program: the job ended with exit code $code; the same command goes on from its last" \
        "checkpoint" >&2
      exit "$code"
    fi
    tries=$((tries + 1))
    echo "$program: the job ended with exit code $code; it is started again from its last" \
      "checkpoint ($tries of $opt_retries)" >&2
    recover
  done
}

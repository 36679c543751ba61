#!/usr/bin/env bash
# Runs one job on a GKE cluster, as a JobSet with one pod for each host.
#
#     launch/gke.sh --name=table2 --image=REGION-docker.pkg.dev/PROJECT/specjax/tpu \
#       --tpu=tpu-v5-lite-podslice --topology=2x4 --hosts=1 --chips=8 --share=10.0.0.2:/runs -- \
#       --config=configs/t5xxl_ende.py --workdir=/mnt/specjax/table2
#
# --name=NAME       of the JobSet; one that is there stays as it is
# --image=IMAGE     made by launch/Dockerfile
# --hosts=N         hosts of the slice, or GPU nodes; 1
# --tpu=TYPE        a TPU as node pools name it, as tpu-v5-lite-podslice; with --topology
# --topology=SHAPE  of the slice, as 2x4
# --gpu=TYPE        or a GPU as node pools name it, as nvidia-h100-80gb
# --chips=N         TPU chips or GPUs of each host; 4
# --share=SHARE     NFS share for results and checkpoints, as 10.0.0.2:/runs; at /mnt/specjax
# --namespace=NAME  of the JobSet; default
# --retries=N       how often the job goes on after a preemption or a dead process; 0
# --spot            runs on spot nodes
# --delete          deletes the JobSet and ends; takes no job
# --dry-run         only prints the commands and the JobSet
# --help            this text
#
# Behind -- stand flags of specjax.main; its --workdir lies below /mnt/specjax. The cluster needs the
# JobSet controller. A user's mistake (exit code 2) is not tried again.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

opt_name=""
opt_image=""
opt_hosts=1
opt_tpu=""
opt_topology=""
opt_gpu=""
opt_chips=4
opt_share=""
opt_namespace=default
opt_spot=false
opt_delete=false

readonly coordinator_port=8476

check() {
  parse_options "$@"
  check_given --name "$opt_name"
  check_name --name "$opt_name"
  check_name --namespace "$opt_namespace"
  if [ "$opt_delete" = true ]; then
    [ ${#job[@]} -eq 0 ] || fail "--delete takes no job; leave out what stands behind --"
    return
  fi
  check_given --image "$opt_image"
  check_count --hosts "$opt_hosts" 1
  check_count --chips "$opt_chips" 1
  check_count --retries "$opt_retries" 0
  check_device
  check_given --share "$opt_share"
  check_share "$opt_share"
  check_job
  check_workdir
}

check_device() {
  [[ -n $opt_tpu && -z $opt_gpu || -z $opt_tpu && -n $opt_gpu ]] ||
    fail "--tpu is '$opt_tpu' and --gpu is '$opt_gpu'; one of them must name the accelerator"
  if [ -n "$opt_tpu" ]; then
    [[ $opt_topology =~ ^[1-9][0-9]*(x[1-9][0-9]*)+$ ]] ||
      fail "--topology is '$opt_topology'; it must be a shape, as 2x4"
  fi
}

# A string of YAML; `$(` would be a variable of Kubernetes.
yaml() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  echo "\"${text//\$/\$\$}\""
}

arguments() {
  local flag
  for flag in "${job[@]}"; do
    echo "              - $(yaml "$flag")"
  done
}

# Nodes of the right kind, and what marks their devices.
selector() {
  if [ -n "$opt_tpu" ]; then
    echo "              cloud.google.com/gke-tpu-accelerator: $(yaml "$opt_tpu")"
    echo "              cloud.google.com/gke-tpu-topology: $(yaml "$opt_topology")"
  else
    echo "              cloud.google.com/gke-accelerator: $(yaml "$opt_gpu")"
  fi
  [ "$opt_spot" = false ] || echo '              cloud.google.com/gke-spot: "true"'
}

# On TPUs JAX finds the other hosts by itself.
environment() {
  [ -n "$opt_gpu" ] || return 0
  cat <<EOF
              env:
              - name: JAX_COORDINATOR_ADDRESS
                value: $opt_name-hosts-0-0.$opt_name:$coordinator_port
              - name: JAX_NUM_PROCESSES
                value: "$opt_hosts"
              - name: JAX_PROCESS_ID
                valueFrom:
                  fieldRef:
                    fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
EOF
}

manifest() {
  local resource=google.com/tpu
  [ -n "$opt_tpu" ] || resource=nvidia.com/gpu
  cat <<EOF
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $opt_name
  namespace: $opt_namespace
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: $opt_retries
    rules:
    - action: FailJobSet
      onJobFailureReasons:
      - PodFailurePolicy
  replicatedJobs:
  - name: hosts
    replicas: 1
    template:
      spec:
        parallelism: $opt_hosts
        completions: $opt_hosts
        completionMode: Indexed
        backoffLimit: 0
        podFailurePolicy:
          rules:
          - action: FailJob
            onExitCodes:
              containerName: specjax
              operator: In
              values: [2]
        template:
          spec:
            restartPolicy: Never
            nodeSelector:
$(selector)
            containers:
            - name: specjax
              image: $(yaml "$opt_image")
              args:
$(arguments)
$(environment)
              resources:
                limits:
                  $resource: $opt_chips
              volumeMounts:
              - name: share
                mountPath: $shared
              - name: memory
                mountPath: /dev/shm
            volumes:
            - name: share
              nfs:
                server: ${opt_share%%:*}
                path: ${opt_share#*:}
            - name: memory
              emptyDir:
                medium: Memory
EOF
}

kube() {
  run kubectl "--namespace=$opt_namespace" "$@"
}

check "$@"
if [ "$opt_delete" = true ]; then
  kube delete jobset "$opt_name" --ignore-not-found
elif [ "$opt_dry_run" = true ]; then
  kube apply --filename=-
  manifest
else
  manifest | kube apply --filename=- || exit 1
  echo "follow it: kubectl --namespace=$opt_namespace logs --follow --prefix" \
    "--selector=jobset.sigs.k8s.io/jobset-name=$opt_name"
fi

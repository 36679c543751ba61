"""The launchers: what they print, what they ask of a cluster, and how they refuse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from cluster import ROOT, Cluster, launch

SHARE = "--share=10.0.0.2:/runs"
JOB = ("--", "--config=configs/translate.py", "--workdir=/mnt/specjax/it's $mine")
TPU_VM = ("--name=run", "--zone=z", "--type=v5litepod-16", SHARE)
GKE = ("--name=run", "--image=here/specjax", SHARE)
ON_TPUS = ("--tpu=tpu-v5-lite-podslice", "--topology=4x4", "--hosts=4")
SLURM = ("--name=run", "--nodes=2", "--gpus=4")
OPTIONS = {"local": (), "tpu_vm": TPU_VM, "gke": (*GKE, *ON_TPUS), "slurm": SLURM}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.made(tmp_path)


def parse_commands(name: str, *arguments: str) -> list[list[str]]:
    """The commands of a dry run, as a shell reads them."""
    done = launch(name, *arguments, "--dry-run", *JOB)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", OPTIONS)
def test_help_names_every_option(name: str) -> None:
    done = launch(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    source = (ROOT / "launch" / f"{name}.sh").read_text("utf-8")
    for option in re.findall(r"^opt_(\w+)=", source, re.MULTILINE):
        assert f"\n--{option.replace('_', '-')}" in done.stdout
    assert "\n--retries=N" in done.stdout and "\n--dry-run" in done.stdout


MISTAKES = [
    ("local", ("--cores=2", *JOB), "no option --cores"),
    ("local", ("--processes=two", *JOB), "--processes is 'two'"),
    ("local", ("--processes=0", *JOB), "--processes is '0'"),
    ("local", ("--processes", *JOB), "--processes has no value"),
    ("local", ("--dry-run=yes", *JOB), "--dry-run is a switch"),
    ("local", ("--platform=tpu", *JOB), "--platform is 'tpu'"),
    ("local", ("--processes=2",), "no job"),
    ("local", ("--config=configs/translate.py",), "no option --config"),
    ("local", ("translate",), "unexpected argument 'translate'"),
    ("tpu_vm", (*TPU_VM[1:], *JOB), "--name is missing"),
    ("tpu_vm", ("--name=Run!", *TPU_VM[1:], *JOB), "--name is 'Run!'"),
    ("tpu_vm", (*TPU_VM[:3], "--share=/runs", *JOB), "--share is '/runs'"),
    ("tpu_vm", (*TPU_VM, "--", "--config=c"), "no --workdir below /mnt/specjax"),
    ("tpu_vm", (*TPU_VM, "--delete", *JOB), "--delete takes no job"),
    ("gke", (*GKE, *JOB), "--tpu is '' and --gpu is ''"),
    ("gke", (*GKE, "--tpu=t", "--gpu=g", *JOB), "--tpu is 't' and --gpu is 'g'"),
    ("gke", (*GKE, "--tpu=t", "--topology=16", *JOB), "--topology is '16'"),
    ("gke", (*GKE, *ON_TPUS, "--chips=0", *JOB), "--chips is '0'"),
    ("slurm", (*SLURM, "--cuda=11", *JOB), "--cuda is '11'"),
    ("slurm", SLURM, "no job"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), MISTAKES)
def test_a_mistake_is_one_sentence(
    name: str, arguments: Sequence[str], said: str, cluster: Cluster
) -> None:
    done = launch(name, *arguments, cluster=cluster)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"launch/{name}.sh: ") and said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not cluster.calls()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_dry_run_calls_nothing(name: str, cluster: Cluster) -> None:
    done = launch(name, *OPTIONS[name], "--dry-run", *JOB, cluster=cluster)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout and not cluster.calls()


def test_local_processes_know_each_other_and_their_devices() -> None:
    first, second = parse_commands("local", "--processes=2", "--devices=4", "--port=1234")
    assert first[-3:] == [str(ROOT / "launch/process.sh"), *JOB[1:]]
    for index, command in enumerate((first, second)):
        assert command[0] == "env"
        assert {"JAX_COORDINATOR_ADDRESS=127.0.0.1:1234", "JAX_NUM_PROCESSES=2"} < set(command)
        assert f"JAX_PROCESS_ID={index}" in command
        assert any("device_count=4" in word for word in command)
    on_gpus = parse_commands("local", "--processes=2", "--devices=2", "--platform=gpu")
    assert "JAX_LOCAL_DEVICE_IDS=2,3" in on_gpus[1]
    assert not any("platform_device_count" in word for word in on_gpus[1])


def test_a_tpu_slice_is_created_and_readied_before_the_job_starts() -> None:
    commands = parse_commands("tpu_vm", *TPU_VM, "--spot", "--project=mine")
    gcloud = [command for command in commands if command[0] == "gcloud"]
    assert [command[4] for command in gcloud] == ["describe", "create", "scp", "ssh", "ssh"]
    assert all({"run", "--zone=z", "--project=mine"} <= {*c, *c[6].split(":")} for c in gcloud)
    assert {"--accelerator-type=v5litepod-16", "--spot"} < set(gcloud[1])
    assert all("--worker=all" in command for command in gcloud[2:])
    *_, job = gcloud[4]
    line = next(word for word in gcloud[4] if word.startswith("--command="))
    assert shlex.split(line)[-3:] == ["specjax/launch/process.sh", *JOB[1:]]


def test_a_second_run_uses_the_tpu_slice_that_is_there(cluster: Cluster) -> None:
    assert launch("tpu_vm", *TPU_VM, *JOB, cluster=cluster).returncode == 0
    assert cluster.verbs() == ["describe", "create", "scp", "ssh", "ssh"]
    assert launch("tpu_vm", *TPU_VM, *JOB, cluster=cluster).returncode == 0
    assert cluster.verbs() == ["describe", "scp", "ssh", "ssh"]


@pytest.mark.slow
def test_a_preempted_tpu_slice_is_created_again(cluster: Cluster) -> None:
    cluster.ends("preempted", 3)
    done = launch("tpu_vm", *TPU_VM, "--retries=2", *JOB, cluster=cluster)
    assert done.returncode == 0 and "(2 of 2)" in done.stderr
    start = ["scp", "ssh", "ssh"]
    made, again = ["describe", "create", *start], ["describe", "delete", "create", *start]
    assert cluster.verbs() == [*made, *again, "describe", *start]


@pytest.mark.slow
def test_a_tpu_job_that_fails_too_often_ends_with_its_exit_code(cluster: Cluster) -> None:
    cluster.ends(3, 3)
    done = launch("tpu_vm", *TPU_VM, "--retries=1", *JOB, cluster=cluster)
    assert done.returncode == 3 and "goes on from its last checkpoint" in done.stderr
    assert cluster.verbs().count("scp") == 2


def test_a_mistake_in_a_tpu_job_is_not_tried_again(cluster: Cluster) -> None:
    cluster.ends(2)
    assert launch("tpu_vm", *TPU_VM, "--retries=5", *JOB, cluster=cluster).returncode == 2
    assert cluster.verbs().count("scp") == 1


def test_deleting_a_tpu_slice_twice_deletes_it_once(cluster: Cluster) -> None:
    launch("tpu_vm", *TPU_VM, *JOB, cluster=cluster)
    cluster.calls()
    for expected in (["describe", "delete"], ["describe"]):
        assert launch("tpu_vm", *TPU_VM, "--delete", cluster=cluster).returncode == 0
        assert cluster.verbs() == expected


def job_set(cluster: Cluster, *arguments: str) -> dict:
    """The JobSet that was given to kubectl."""
    assert launch("gke", *GKE, *arguments, *JOB, cluster=cluster).returncode == 0
    return yaml.safe_load(cluster.state.read_text("utf-8"))


def test_a_job_set_has_a_pod_for_each_host_of_the_slice(cluster: Cluster) -> None:
    made = job_set(cluster, *ON_TPUS, "--retries=4", "--spot")
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 4
    (hosts,) = made["spec"]["replicatedJobs"]
    job = hosts["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]
    pod = job["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-spot": "true",
    }
    (container,) = pod["containers"]
    assert container["args"] == [word.replace("$", "$$") for word in JOB[1:]]
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert "env" not in container
    share = {"server": "10.0.0.2", "path": "/runs"}
    assert pod["volumes"][0] == {"name": "share", "nfs": share}


def test_pods_with_gpus_are_told_where_to_meet(cluster: Cluster) -> None:
    made = job_set(cluster, "--gpu=nvidia-h100-80gb", "--chips=8", "--hosts=2")
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert variables["JAX_COORDINATOR_ADDRESS"] == "run-hosts-0-0.run:8476"
    assert variables["JAX_NUM_PROCESSES"] == "2" and "JAX_PROCESS_ID" in variables
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def test_a_second_run_gives_kubernetes_the_same_job_set(cluster: Cluster) -> None:
    assert job_set(cluster, *ON_TPUS) == job_set(cluster, *ON_TPUS)
    calls = cluster.calls()
    assert calls == [["kubectl", "--namespace=default", "apply", "--filename=-"]] * 2


def test_the_job_set_of_a_dry_run_is_the_one_that_is_applied(cluster: Cluster) -> None:
    done = launch("gke", *GKE, *ON_TPUS, "--dry-run", *JOB)
    command, _, text = done.stdout.partition("\n")
    assert command == "kubectl --namespace=default apply --filename=-"
    assert yaml.safe_load(text) == job_set(cluster, *ON_TPUS)


def test_a_second_run_submits_no_second_job(cluster: Cluster) -> None:
    assert launch("slurm", *SLURM, "--retries=3", *JOB, cluster=cluster).returncode == 0
    asked, submitted = cluster.calls()
    assert asked[0] == "squeue" and submitted[-3:] == [
        str(ROOT / "launch/slurm_job.sh"),
        *JOB[1:],
    ]
    assert {"--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--requeue"} < set(submitted)
    assert "--export=ALL,SPECJAX_RETRIES=3" in submitted
    again = launch("slurm", *SLURM, *JOB, cluster=cluster)
    assert again.returncode == 0 and "job 17 of the name run is there already" in again.stdout
    assert cluster.verbs() == ["squeue"]


@pytest.mark.parametrize(
    ("end", "restarts", "queued"), [(3, 0, 1), (3, 2, 0), (2, 0, 0), (0, 0, 0)]
)
def test_a_slurm_job_is_queued_again_when_a_process_died(
    end: int, restarts: int, queued: int, cluster: Cluster
) -> None:
    cluster.ends(end)
    variables = {"SPECJAX_RETRIES": "2", "SLURM_RESTART_COUNT": str(restarts), "SLURM_JOB_ID": "17"}
    assert launch("slurm_job", *JOB[1:], cluster=cluster, **variables).returncode == end
    assert cluster.verbs() == ["requeue"] * queued

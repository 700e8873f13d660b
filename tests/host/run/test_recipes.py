"""The launch recipes of docs/scaling.md: YAML that parses, shell that runs, words that the command takes."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jaxrl.host import cli
from jaxrl.host.cli import train

ROOT = Path(__file__).parents[3]
BLOCKS = re.findall(r"^```(bash|yaml)\n(.*?)^```", (ROOT / "docs/scaling.md").read_text(), re.M | re.S)
SLURM, ARRAY = (text for kind, text in BLOCKS if kind == "bash")
JOBSET, TRAINJOB, SKYPILOT = (yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml")
CONTAINER = JOBSET["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]


def words_of(script, folder, **variables):
    """`(JAX's variables, the words of jaxrl)` that a script comes to, where `jaxrl` and `srun` only say theirs."""
    stubs = {
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        "jaxrl": 'echo "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID|$*"',
    }
    for name, body in stubs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(stat.S_IRWXU)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    who, words = done.stdout.strip().split("|")
    return who.split(), words.split()


def taken(words, monkeypatch):
    """What the command understands of the words."""
    seen = []
    monkeypatch.setattr(train, "meet", lambda args: None)
    monkeypatch.setattr(train, "run_fit", lambda recipe, out, devices, resume: seen.append((recipe, devices)) or 0)
    assert cli.main(words) == 0
    return seen[0]


def test_slurm(tmp_path, monkeypatch):
    _, words = words_of(SLURM, tmp_path)
    recipe, devices = taken(words, monkeypatch)
    assert devices.distributed and recipe["run"]["seeds"] == 256
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/x/config.json").touch()
    assert words_of(SLURM, tmp_path)[1] == ["resume", "runs/x", "--distributed"]
    recipe, devices = taken(words_of(ARRAY, tmp_path, SLURM_ARRAY_TASK_ID="7")[1], monkeypatch)
    assert not devices.distributed and recipe["run"]["seed"] == 7 and recipe["run"]["out"] == "runs/x-7"


def test_jobset(tmp_path, monkeypatch):
    assert (JOBSET["apiVersion"], JOBSET["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    job = JOBSET["spec"]["replicatedJobs"][0]["template"]["spec"]
    variables = {entry["name"]: entry.get("value") for entry in CONTAINER["env"]}
    assert variables["JAX_NUM_PROCESSES"] == str(job["completions"]) == str(job["parallelism"])
    name, workers = JOBSET["metadata"]["name"], JOBSET["spec"]["replicatedJobs"][0]["name"]
    assert variables["JAX_COORDINATOR_ADDRESS"] == f"{name}-{workers}-0-0.{name}:8476"  # JobSet's names of pods
    who, words = words_of(CONTAINER["args"][0], tmp_path, **{**variables, "JAX_PROCESS_ID": "3"})
    assert who == ["jaxrl-workers-0-0.jaxrl:8476", "4", "3"] and taken(words, monkeypatch)[1].distributed


def test_trainjob(tmp_path, monkeypatch):
    assert (TRAINJOB["apiVersion"], TRAINJOB["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    spec = TRAINJOB["spec"]
    assert spec["runtimeRef"] == {"name": "jax-distributed"} and spec["trainer"]["numNodes"] == 4
    (patch,) = spec["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert job["name"] == pod["containers"][0]["name"] == "node", "the runtime's names"
    variables = dict(JAX_COORDINATOR_ADDRESS="jaxrl-node-0-0.jaxrl:1", JAX_NUM_PROCESSES="4", JAX_PROCESS_ID="2")
    who, words = words_of(spec["trainer"]["args"][0], tmp_path, **variables)
    assert who == list(variables.values()) and taken(words, monkeypatch)[1].distributed


def test_skypilot(tmp_path, monkeypatch):
    variables = dict(SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NUM_NODES="2", SKYPILOT_NODE_RANK="1")
    who, words = words_of(SKYPILOT["run"], tmp_path, **variables)
    assert who == ["10.0.0.1:8476", "2", "1"] and taken(words, monkeypatch)[1].distributed


@pytest.mark.slow
@pytest.mark.light
def test_processes_meet_by_the_variables_of_srun():
    code = (
        "import jax; from jaxrl.host.run.processes import join; join(); print(jax.process_index(), jax.device_count())"
    )
    job = []
    for rank in range(2):
        step = dict(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_NODELIST="127.0.0.1", SLURM_NTASKS="2")
        step |= dict(SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), JAX_PLATFORMS="cpu", PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", code]
        job.append(subprocess.Popen(command, env={**os.environ, **step}, stdout=subprocess.PIPE, text=True))
    assert [process.communicate(timeout=200)[0].split()[-2:] for process in job] == [["0", "2"], ["1", "2"]]

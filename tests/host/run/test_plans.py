"""Sweeps as arrays of a scheduler's tasks: the files, what a task trains, and that kills leave every number as it is.

No scheduler is here. A stand-in runs the shell of the written files, with the variables and the commands that the real
one has, kills tasks and starts them again.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args, get_type_hints

import jax
import numpy as np
import pytest
import yaml

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host import cli
from jaxrl.host.cli.sweep import SweepFlags
from jaxrl.host.run import sweep as sweeping
from jaxrl.host.run.plans import SCHEDULERS, Tasks, write_plan
from jaxrl.host.run.run_folder import RunFolder, RunFolderError
from jaxrl.host.run.sweep import grid, planned

ROOT = Path(__file__).parents[3]
TINY = "--config.num-envs 2 --config.num-steps 8 --config.num-epochs 1 --config.num-minibatches 1 --config.hidden 8"
SWEEP = f"sweep ppo CartPole-v1 {TINY} --hyper.learning-rate 1e-3 3e-3 1e-2 --seeds 1 --eval-episodes 4 --no-progress"
KEY = jax.random.key(3)


def files_of(out, scheduler, capsys, words="--at-once 1"):
    """What `--plan` writes, and what it prints."""
    assert cli.main(f"{SWEEP} {words} --plan {scheduler} --out {out}".split()) == 0
    return (Path(out) / SCHEDULERS[scheduler].file).read_text(), capsys.readouterr().out


# ---- the files


def test_slurm(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, said = files_of("a-sweep", "slurm", capsys, "--at-once=1 --no-resume")
    flags = dict(flag.split("=", 1) for flag in re.findall(r"--([\w-]+=\S+)", "".join(re.findall("#SBATCH.*\n", text))))
    out = tmp_path / "a-sweep"
    assert flags["array"] == "0-2" and flags["signal"] == "B:USR1@120" and "--requeue" in text
    assert flags["output"] == f"{out}/slurm-%a.log" and f"cd {tmp_path} " in text
    assert f'--at-once 1 --out {out} --program "$SLURM_ARRAY_TASK_ID/3" &' in text
    assert text.count("--at-once") == text.count("--out ") == 1 and "--plan" not in text and "-resume" not in text
    assert f"submit   sbatch {out}/slurm.sh" in said and "tasks    3, of 1 run at most" in said
    assert subprocess.run(["bash", "-n", out / "slurm.sh"]).returncode == 0
    assert json.loads((out / "plan.json").read_text())["programs"] == [[0, 1], [1, 2], [2, 3]]


def test_kubernetes(tmp_path, capsys):
    text, said = files_of(tmp_path / "x", "k8s", capsys)
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job") and f"kubectl apply -f {tmp_path}/x/k8s.yaml" in said
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    pod = spec["template"]["spec"]
    # An index is tried again by itself, and a policy of failures is taken, only with this.
    assert pod["restartPolicy"] == "Never" and spec["backoffLimitPerIndex"] > 0
    (container,) = pod["containers"]
    by = {tuple(rule.keys() - {"action"})[0]: rule for rule in spec["podFailurePolicy"]["rules"]}
    assert by["onPodConditions"]["action"] == by["onExitCodes"]["action"] == "Ignore"
    assert by["onExitCodes"]["onExitCodes"] == dict(containerName=container["name"], operator="In", values=[143])
    assert container["volumeMounts"][0] == {"name": pod["volumes"][0]["name"], "mountPath": str(tmp_path)}


def test_skypilot(tmp_path, capsys):
    text, said = files_of(tmp_path / "x", "skypilot", capsys)
    task = yaml.safe_load(text)
    known = {"name", "envs", "resources", "file_mounts", "workdir", "setup", "run"}
    assert task.keys() == known and task["envs"] == {"PROGRAM": 0}
    assert task["resources"]["job_recovery"] == {"max_restarts_on_errors": 3, "recover_on_exit_codes": [143]}
    assert task["file_mounts"][str(tmp_path)]["mode"] == "MOUNT_CACHED", "without a cache nothing is appended"
    assert f"for i in $(seq 0 2); do sky jobs launch --yes --detach-run --env PROGRAM=$i {tmp_path}/x/" in said


def test_all_schedulers_are_flags_and_others_are_named(tmp_path):
    (choices,) = (x for x in get_args(get_type_hints(SweepFlags)["plan"]) if get_args(x))
    assert set(get_args(choices)) == {*SCHEDULERS}
    tasks = Tasks("x", (), tmp_path, 1, tmp_path)
    with pytest.raises(ValueError, match="scheduler='pbs': it must be one of slurm, k8s, skypilot"):
        write_plan("pbs", tasks)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("--plan pbs --at-once 1", 2, "invalid choice 'pbs' for argument '--plan'"),
        ("--plan slurm", 2, "--plan needs --at-once"),
        ("--plan slurm --at-once 1 --overwrite", 2, "not with --overwrite"),
        ("--plan slurm --at-once 1 --program 0/3", 2, "--plan and --program"),
        ("--program 0/3 --at-once 1", 2, "--program needs --out"),
        ("--program 3 --out OUT", 2, "--program 3: it is written as 3/8"),
        ("--plan slurm --at-once 1 --out OUT", 1, "OUT holds a sweep already: resume it, or name another folder."),
        ("--program 3/3 --out OUT", 1, "program 3: OUT/plan.json has programs from 0 to 2."),
        ("--program 0/4 --out OUT", 1, "OUT/plan.json has 3 programs, not 4: plan again, with resume."),
    ],
)
def test_wrong_words(words, status, says, tmp_path, capsys):
    files_of(tmp_path, "slurm", capsys)
    assert cli.main(f"{SWEEP} {words.replace('OUT', str(tmp_path))}".split()) == status
    said = capsys.readouterr().err
    assert says.replace("OUT", str(tmp_path)) in " ".join(said.split())
    assert "pbs" not in words or all(f"'{known}'" in said for known in SCHEDULERS)
    assert said.count("\n") <= (1 if status == 1 else 3)


# ---- what a task trains


@pytest.fixture(scope="module")
def algo():
    config = ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))
    return ppo.make(jaxrl.make("CartPole-v1")[0], config)


def plan_of(algo, out, at_once=2, **more):
    points = grid({"learning_rate": [1.0, 2.0]})
    return planned(algo, KEY, 64, points, num_seeds=2, at_once=at_once, out=out, progress=False, **more)


@pytest.fixture
def fits(monkeypatch):
    """Each program that is trained, as its settings; runs return these. `most` is what fits into memory."""

    class Fits(list):
        most = 100

    seen = Fits()

    def fit(algo, keys, total_steps, *, hyper, num_seeds, out, **_):
        if num_seeds > seen.most:
            out.mkdir(parents=True, exist_ok=True)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        rates = np.asarray(hyper.learning_rate).tolist()
        seen.append(rates)
        out.mkdir(parents=True, exist_ok=True)
        summary = {"interrupted": False, "evaluation": rates, "diverged": {}}
        (out / "summary.json").write_text(json.dumps(summary))
        evaluation = {"return": rates}
        return type("Result", (), dict(interrupted=False, evaluations=[evaluation], diverged={}))

    monkeypatch.setattr(sweeping, "fit", fit)
    return seen


def test_the_last_task_has_the_returns_of_all(algo, fits, tmp_path):
    assert plan_of(algo, tmp_path).write() == [(0, 2), (2, 4)]
    first = plan_of(algo, tmp_path)
    assert first.train_program(1, 2) is None and first.unfinished() == [0] and fits == [[2.0, 2.0]]
    np.testing.assert_array_equal(plan_of(algo, tmp_path).train_program(0), [[1, 1], [2, 2]])
    np.testing.assert_array_equal(plan_of(algo, tmp_path).train_program(1), [[1, 1], [2, 2]])
    assert len(fits) == 2, "what is finished is not trained again"
    np.testing.assert_array_equal(plan_of(algo, tmp_path, resume=True).train_all(), [[1, 1], [2, 2]])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.json", "runs-0000-0001", "runs-0002-0003"]


def test_tasks_plan_alike_where_the_plan_is_not_seen(algo, fits, tmp_path):
    plan_of(algo, tmp_path / "there").write()
    assert plan_of(algo, tmp_path / "here").train_program(1, 2) is None
    kept = [(tmp_path / name / "plan.json").read_text() for name in ("here", "there")]
    assert kept[0] == kept[1]


def test_a_task_that_exceeds_the_memory_trains_its_halves(algo, fits, tmp_path, capsys):
    plan_of(algo, tmp_path, at_once=3).write()
    before = (tmp_path / "plan.json").read_text()
    fits.most = 1
    assert plan_of(algo, tmp_path).train_program(0, 2) is None
    assert fits == [[1.0], [1.0], [2.0]] and "going on with 1 at once" in capsys.readouterr().err
    assert (tmp_path / "plan.json").read_text() == before, "other tasks count on it"
    assert plan_of(algo, tmp_path).train_program(0, 2) is None and len(fits) == 3
    np.testing.assert_array_equal(plan_of(algo, tmp_path).train_program(1, 2), [[1, 1], [2, 2]])
    np.testing.assert_array_equal(plan_of(algo, tmp_path, resume=True).train_all(), [[1, 1], [2, 2]])
    with pytest.raises(ValueError, match="has 4 programs, not 2: plan again"):  # whole, it keeps the halves in its plan
        plan_of(algo, tmp_path).train_program(1, 2)
    plan_of(algo, tmp_path, at_once=3, overwrite=True).train_all()
    assert not list(tmp_path.glob("halved-*")), "a new sweep knows nothing of them"


def test_tasks_share_the_folder_with_one_another_and_nobody_else(algo, fits, tmp_path):
    plan_of(algo, tmp_path).write()
    with RunFolder(tmp_path).locked(shared=True):
        assert plan_of(algo, tmp_path).train_program(0) is None
        with pytest.raises(RunFolderError, match="is being written by another process"):
            plan_of(algo, tmp_path, resume=True).train_all()
    with RunFolder(tmp_path).locked(), pytest.raises(RunFolderError, match="is being written by another process"):
        plan_of(algo, tmp_path).train_program(1)
    with pytest.raises(ValueError, match="A plan for tasks needs a folder"):
        plan_of(algo, None).train_program(0)


# ---- the stand-in

STEPS = 400_000
COMMANDS = {
    "jaxrl": f'exec {sys.executable} -m jaxrl "$@"',
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; echo $$ > step-$SLURM_ARRAY_TASK_ID; exec "$@"',
    "scancel": "kill ${1/--signal=/-} $(cat step-${2#*_})",
    "scontrol": 'echo "$@" >> requeued',
}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The points and their returns of one `jaxrl sweep`, and each run's losses."""
    out = tmp_path_factory.mktemp("whole") / "x"
    assert cli.main(f"{SWEEP} --total-steps {STEPS} --at-once 1 --out {out}".split()) == 0
    return gathered(out)


def gathered(out):
    points = json.loads((out / "sweep.json").read_text())["points"]
    rows = [(out / f"runs-000{i}-000{i}" / "metrics.jsonl").read_text().splitlines() for i in range(3)]
    return points, [[(json.loads(row)["update"], json.loads(row)["loss"]) for row in of_run] for of_run in rows]


class StandIn:
    """A scheduler that starts tasks of a written file, and stops them."""

    def __init__(self, folder, out, scheduler):
        self.folder, self.out, self.scheduler = folder, out, scheduler
        for name, body in COMMANDS.items():
            (folder / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / name).chmod(stat.S_IRWXU)
        text = (out / SCHEDULERS[scheduler].file).read_text()
        if scheduler == "k8s":
            (text,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]["args"]
        elif scheduler == "skypilot":
            text = yaml.safe_load(text)["run"]
        self.script, self.tasks = text, {}

    def start(self, number):
        """Each task is a session of its own, as a job is."""
        names = {"slurm": "SLURM_ARRAY_TASK_ID", "k8s": "JOB_COMPLETION_INDEX", "skypilot": "PROGRAM"}
        variables = {names[self.scheduler]: str(number), "SLURM_ARRAY_JOB_ID": "7", "PYTHONPATH": str(ROOT)}
        path = f"{self.folder}:{os.environ['PATH']}"
        self.tasks[number] = subprocess.Popen(
            ["bash", "-c", self.script],
            cwd=self.folder,
            env={**os.environ, **variables, "PATH": path},
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def training(self, number):
        """Wait until the task has a checkpoint, from which it goes on, and is not at its end."""
        run = self.out / f"runs-000{number}-000{number}"
        wait_for(lambda: any(run.glob("checkpoints/[0-9]*")), self.tasks[number])
        assert not (run / "summary.json").exists(), "it was to be stopped on the way: train longer"

    def kill(self, number):
        """All of it at once, as where its machine is gone."""
        os.killpg(self.tasks[number].pid, signal.SIGKILL)
        self.ended(number)

    def ended(self, number):
        said = self.tasks[number].communicate(timeout=300)[1]
        assert "Traceback" not in said, said
        return self.tasks[number].returncode


def wait_for(there, process, seconds=300):
    end = time.time() + seconds
    while not there():
        assert time.time() < end and process.poll() is None, process.communicate()[1] if process.poll() else "too late"
        time.sleep(0.01)


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


@pytest.fixture
def stand_in(request, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files_of(tmp_path / "x", request.param, capsys, f"--at-once 1 --total-steps {STEPS}")
    scheduler = StandIn(tmp_path, tmp_path / "x", request.param)
    yield scheduler
    for task in scheduler.tasks.values():
        if task.poll() is None:
            os.killpg(task.pid, signal.SIGKILL)


def finish(scheduler, whole):
    """Start the tasks that were stopped again: the last one gathers what no kill has changed."""
    out = scheduler.out
    assert not (out / "sweep.json").exists()
    for number in range(3):
        scheduler.start(number)
    assert [scheduler.ended(number) for number in range(3)] == [0, 0, 0]
    assert gathered(out) == whole
    assert (out / "table.md").exists() and (out / "heat_map.png").stat().st_size > 5000
    assert not [p.name for p in out.iterdir() if p.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("stand_in", ["slurm"], indirect=True)
def test_an_array_of_slurm_that_is_stopped_in_three_ways_ends_bit_for_bit(stand_in, uninterrupted):
    for number in range(3):
        stand_in.start(number)
        stand_in.training(number)
        if number == 0:  # its time is up: it saves, and puts itself into the queue
            stand_in.tasks[0].send_signal(signal.SIGUSR1)
            assert stand_in.ended(0) == 143
            assert (stand_in.folder / "requeued").read_text() == "requeue 7_0\n"
        elif number == 1:  # it is preempted: its step is told to end, and what is left of it killed later
            step = int((stand_in.folder / "step-1").read_text())
            os.kill(step, signal.SIGTERM)
            wait_for(lambda: not alive(step), stand_in.tasks[1])  # noqa: B023
            stand_in.kill(1)
        else:  # its machine fails
            stand_in.kill(2)
    summaries = [stand_in.out / f"runs-000{i}-000{i}" / "summary.json" for i in range(3)]
    assert [s.exists() and json.loads(s.read_text())["interrupted"] for s in summaries] == [True, True, False]
    assert (stand_in.folder / "requeued").read_text() == "requeue 7_0\n", "Slurm does so with what is preempted"
    finish(stand_in, uninterrupted)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("stand_in", ["k8s", "skypilot"], indirect=True)
def test_tasks_of_others_that_are_told_to_end_or_killed_end_bit_for_bit(stand_in, uninterrupted):
    stand_in.start(0)
    stand_in.training(0)
    os.killpg(stand_in.tasks[0].pid, signal.SIGTERM)
    assert stand_in.ended(0) in (143, -signal.SIGTERM)  # of the shell, which may end by the signal itself
    stand_in.start(1)
    stand_in.training(1)
    stand_in.kill(1)
    finish(stand_in, uninterrupted)

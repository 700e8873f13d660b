"""Files by which a cluster's scheduler trains a sweep: an array of tasks, each of which trains a program of plan.json.

One function a scheduler makes the text of its file. In all of them a task runs the words of `Tasks.command`, which go
on with what is there, so a task that was stopped is started again with the same words and ends with the same numbers.
What a cluster has of its own (a queue, an image, a volume) stands in a line of the file, to be changed there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

STOPPED = 143
"""Exit status of a task that SIGTERM stopped, after it has saved."""

SECONDS_TO_SAVE = 120
"""Between the signal that the time is up, or that the machine is taken away, and the end."""


@dataclasses.dataclass(frozen=True)
class Tasks:
    """The tasks of a sweep."""

    name: str
    """What the scheduler calls them."""
    words: tuple[str, ...]
    """Of the command `jaxrl`, without the one that says which program."""
    out: Path
    """The sweep's folder, absolute; all tasks see it under this name."""
    count: int
    """One for each program."""
    folder: Path
    """Where the words were typed: files that they name are found from there."""

    def command(self, variable: str) -> str:
        """The shell's line of the task whose number, from 0, is in a variable."""
        return f'{shlex.join(["jaxrl", *self.words])} --program "${variable}/{self.count}"'

    @property
    def label(self) -> str:
        """The name as Kubernetes takes it: small letters, digits and dashes, short enough for what is added to it."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower())[:40].strip("-")


def slurm(tasks: Tasks) -> str:
    """A job array for `sbatch`. A task whose time is up saves and puts itself into the queue again; what is preempted
    or on a machine that fails is put there by Slurm.

    `srun` starts a step, since Slurm sends SIGTERM to steps; it is not sent to `srun`, which kills at SIGTERM.
    """
    task = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
    return f"""#!/bin/bash
#SBATCH --job-name={tasks.label} --array=0-{tasks.count - 1} --ntasks=1
#SBATCH --output={shlex.quote(str(tasks.out).replace("%", "%%") + "/slurm-%a.log")} --open-mode=append
#SBATCH --time=04:00:00 --requeue --signal=B:USR1@{SECONDS_TO_SAVE}
# What a task needs is said here or to sbatch, as --gpus=1 --partition=NAME. What takes longer than --time takes turns.
cd {shlex.quote(str(tasks.folder))} || exit 1
again=
# The time is nearly up: the step is told to save and to end.
trap 'again=yes; scancel --signal=TERM {task}' USR1
srun --ntasks=1 {tasks.command("SLURM_ARRAY_TASK_ID")} &
step=$!
wait $step; status=$?
if [ "$again" ]; then wait $step; status=$?; fi  # the signal had ended the first wait
if [ $status -eq {STOPPED} ]; then
  # Preempted or cancelled: Slurm ends this script itself, and puts into the queue what was preempted.
  if [ "$again" ]; then scontrol requeue {task}; else sleep 60; fi
fi
exit $status
"""


def k8s(tasks: Tasks) -> str:
    """An Indexed Job. A pod that is evicted, or that was told to end and saved, is replaced and is no failure; any
    other failure is tried again a few times, each index by itself (Kubernetes 1.29, by default since 1.33).
    """
    return f"""apiVersion: batch/v1
kind: Job
metadata:
  name: {tasks.label}
spec:
  completionMode: Indexed
  completions: {tasks.count}
  parallelism: {tasks.count}
  backoffLimitPerIndex: 3
  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
    - action: Ignore
      onExitCodes:
        containerName: task
        operator: In
        values: [{STOPPED}]
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: {SECONDS_TO_SAVE}
      containers:
      - name: task
        image: registry.example.com/jaxrl:latest  # yours
        command: [bash, -c]
        args:
        - |
          exec {tasks.command("JOB_COMPLETION_INDEX").replace("$(", "$$(")}
        resources:
          limits:
            nvidia.com/gpu: 1
        volumeMounts:
        - name: runs
          mountPath: {json.dumps(str(tasks.out.parent))}
      volumes:
      - name: runs
        persistentVolumeClaim:
          claimName: runs  # yours, which many pods may write
"""


def skypilot(tasks: Tasks) -> str:
    """A managed job, which is launched once for each task. SkyPilot starts it again where its machine is taken away.

    The bucket is mounted with a cache: without one nothing can be appended to a file.
    """
    return f"""name: {tasks.label}
envs:
  PROGRAM: 0
resources:
  accelerators: L4:1  # yours
  use_spot: true
  job_recovery:
    max_restarts_on_errors: 3
    recover_on_exit_codes: [{STOPPED}]
file_mounts:
  {json.dumps(str(tasks.out.parent))}:
    name: jaxrl-runs  # a bucket of yours
    mode: MOUNT_CACHED
workdir: {json.dumps(str(tasks.folder))}
setup: pip install -e ".[cuda]"  # where workdir is a checkout; else yours
run: |
  {tasks.command("PROGRAM")}
"""


@dataclasses.dataclass(frozen=True)
class Scheduler:
    """What is written for a scheduler, and how it is handed over."""

    file: str
    text: Callable[[Tasks], str]
    submit: str
    """A command, of {file} and {last}, the number of the last task."""


SCHEDULERS = {
    "slurm": Scheduler("slurm.sh", slurm, "sbatch {file}"),
    "k8s": Scheduler("k8s.yaml", k8s, "kubectl apply -f {file}"),
    "skypilot": Scheduler(
        "skypilot.yaml",
        skypilot,
        "for i in $(seq 0 {last}); do sky jobs launch --yes --detach-run --env PROGRAM=$i {file}; done",
    ),
}


def write_plan(scheduler: str, tasks: Tasks) -> tuple[Path, str]:
    """Write the file of a scheduler into the sweep's folder: `(the file, the command that submits it)`.

    Raises ValueError for a scheduler that is none of `SCHEDULERS`, for words that no line of a file holds, and where
    the folder would have to be mounted as the root.
    """
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler={scheduler!r}: it must be one of {', '.join(SCHEDULERS)}.")
    for word in (*tasks.words, str(tasks.folder)):
        if not word.isprintable():
            raise ValueError(
                f"{word!r}: a plan's words stand in one line; this one has characters that end or change it."
            )
    if scheduler != "slurm" and tasks.out.parent == Path(tasks.out.anchor):
        raise ValueError(f"out={tasks.out}: the folder above it is mounted for the tasks: name one further down.")
    its = SCHEDULERS[scheduler]
    file = tasks.out / its.file
    file.write_text(its.text(tasks))
    return file, its.submit.format(file=shlex.quote(str(file)), last=tasks.count - 1)

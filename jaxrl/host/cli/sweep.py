"""`jaxrl sweep`: a grid of settings x seeds."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from pathlib import Path
from typing import Any, Literal

from jaxrl.host.cli.evaluate import print_normalized
from jaxrl.host.cli.experiment import DataFlags, WrapFlags, episode_cap, experiment, folder_name
from jaxrl.host.cli.flags import Act, UsageError, greedy_of, key_of, sizes_said


@dataclasses.dataclass
class SweepFlags(DataFlags, WrapFlags):
    """What `sweep` takes beside the settings."""

    out: Path | None = None
    """Folder of the sweep. Default: runs/sweep-<algo>-<env>-<time>."""
    seeds: int = 4
    """Runs of each point, the same keys for all points."""
    seed: int = 0
    random: int = 0
    """Draw so many points between the least and the largest value of each setting, instead of the grid."""
    total_steps: int | None = None
    """Environment steps a run, of a dataset gradient steps. Default: that of its settings, else 500000."""
    eval_episodes: int = 128
    eval_max_steps: int | None = None
    """Cap on an evaluation's episodes. Default: the task's time limit, else 1000."""
    act: Act | None = None
    """How the policy acts. Default: as the algorithm is deployed, which the result says."""
    at_once: int | None = None
    """Runs in one program. Default: as many as fit the memory."""
    memory: str | None = None
    """What may be used, as 8GB: by the process, or of an accelerator's a device. Default: what is free."""
    mesh: str | None = None
    """Devices, as seeds=4: over which the runs are spread."""
    overwrite: bool = False
    """Replace a sweep that is already in the folder."""
    resume: bool = False
    """Go on with the sweep in the folder."""
    tuned: bool = True
    """Start from the settings of jaxrl/tuned.toml, or of the family in jaxrl/recipes.toml, not from the defaults."""
    progress: bool = True
    plan: Literal["slurm", "k8s", "skypilot"] | None = None
    """Train nothing: write what this scheduler runs into --out, an array with a task for each program, and print the
    command that submits it. The tasks gather the results themselves. Needs --at-once or --memory, of a task."""
    program: str | None = None
    """Of such a task: train this program of the plan alone, as 3/8 (of 8, from 0), and go on with what is there."""


BYTES_OF_A_PLAN = 1000
"""Of a run of a sweep: its point, its key and its line in plan.json."""


def sweep_command(args: list[str]) -> int:
    import numpy as np

    from jaxrl.host.plotting import heat_map
    from jaxrl.host.run.ram import bytes_in, require_room
    from jaxrl.host.run.recipe import build
    from jaxrl.host.run.run_folder import in_place_of, write_json
    from jaxrl.host.run.sharding import make_mesh
    from jaxrl.host.run.sweep import grid, planned, random_points, sweep, table

    parsed, recipe = experiment("sweep", args, SweepFlags, several=True)
    run: SweepFlags = parsed.run
    program = _program_of(run)
    hypers = {"": recipe} | ({"curriculum": recipe["curriculum"]} if "curriculum" in recipe else {})
    varied = {}
    for whose, part in hypers.items():
        values = {name: list(dict.fromkeys(options)) for name, options in part.get("hyper", {}).items()}
        for name in (name for name, options in values.items() if not options):
            raise UsageError(
                f"--{f'{whose}.' if whose else ''}hyper.{name.replace('_', '-')} needs one or more values."
            )
        varied |= {(whose, name): options for name, options in values.items() if len(options) > 1}
        if values:
            part["hyper"] = {name: options[0] for name, options in values.items()}
    if not varied and run.memory is None and run.at_once is None:
        raise UsageError(
            "sweep needs a setting with several values, as in --hyper.learning-rate 1e-4 3e-4 1e-3 (or --memory, to "
            "train many --seeds of one in parts)."
        )
    of_returns = recipe["config"].get("calibrated") or recipe["config"].get("target") == "returns"
    if "dataset" in recipe and ("", "gamma") in varied and of_returns:
        raise UsageError("--hyper.gamma: the returns of the data are of one discount; sweep over others one by one.")
    name, total = folder_name(recipe), recipe["total_steps"]
    out = run.out or Path("runs") / f"sweep-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    runs = run.seeds * (run.random or math.prod(len(options) for options in varied.values()))
    require_room({"the plan": runs * BYTES_OF_A_PLAN}, f"a sweep of {runs} runs", "make --seeds or the grid smaller")
    with sizes_said():
        algo, hyper, task, params = build(recipe)
    own = getattr(algo.hyper(), "_outer", "")  # the field that holds the settings of a curriculum
    varied = {f"{own}.{name}" if whose else name: options for (whose, name), options in varied.items()}
    points = random_points(varied, run.random, run.seed) if run.random else grid(varied)
    cap = episode_cap(params, run.eval_max_steps)
    settings: dict[str, Any] = dict(
        hyper=hyper,
        env_params=params,
        num_seeds=run.seeds,
        eval_episodes=run.eval_episodes,
        eval_env=task,
        eval_max_steps=cap,
        eval_greedy=greedy_of(run.act),
        out=out,
        at_once=run.at_once,
        resume=run.resume,
        overwrite=run.overwrite,
        progress=run.progress,
        memory=None if run.memory is None else bytes_in(run.memory),
        mesh=None if run.mesh is None else make_mesh(run.mesh),
        extra={name: recipe[name] for name in ("dataset", "model") if name in recipe} or None,
    )
    try:
        if run.plan is not None:
            return _write_plan(run.plan, args, out, name, planned(algo, key_of(run.seed), total, points, **settings))
        if program is None:
            returns = sweep(algo, key_of(run.seed), total, points, **settings)
        else:
            plan = planned(algo, key_of(run.seed), total, points, **settings)
            returns = plan.train_program(*program)
            if returns is None:
                left = plan.unfinished()
                print(f"program {run.program} is finished; {len(left)} not yet, as {left[0]}. The last one gathers.")
                return 0
    except KeyboardInterrupt:
        words = "" if program is None else f", --program {run.program}"
        how = f"the same words, --out {out} and --resume" if program is None else f"the same words{words}"
        print(f"Interrupted; what was done is saved. Go on with {how}.")
        raise
    rows = [{**point, "returns": scores.tolist()} for point, scores in zip(points, returns, strict=True)]
    with in_place_of(out / "sweep.json") as own:  # of tasks two may end together, and both gather
        write_json(own, {"recipe": recipe, "points": rows})
    text = table(points, returns)
    with in_place_of(out / "table.md") as own:
        own.write_text(f"# {name}, {total:,} steps, {run.seeds} seeds\n\n{text}\n")
    print(text)
    best = returns[np.argmax(np.nan_to_num(returns.mean(1), nan=-np.inf))]
    if np.isfinite(best).all():
        of = f"the best of {len(points)}, by the seeds that chose it: " if len(points) > 1 else ""
        print_normalized(best, None, task, params, cap, of)
    print(f"folder   {out}")
    if varied:
        with in_place_of(out / "heat_map.png") as own:
            heat_map(points, returns, own)
        print(f"heat map {out / 'heat_map.png'}")
    return 0


def _program_of(run: SweepFlags) -> tuple[int, int] | None:
    """`(which, of how many)` of `--program`. Raises UsageError for other words, and for what does not go with it or
    with `--plan`.
    """
    if run.plan is None and run.program is None:
        return None
    flag = "--plan" if run.plan is not None else "--program"
    if run.overwrite:
        raise UsageError(f"{flag} goes on with what is in the folder: not with --overwrite. Name another folder.")
    if run.plan is not None:
        if run.program is not None:
            raise UsageError("--plan and --program: the one writes what is run, the other is of a task that runs.")
        if run.at_once is None and run.memory is None:
            raise UsageError(
                "--plan needs --at-once, runs of a task, or --memory, what a task's device has: this machine's memory "
                "says nothing about the cluster's."
            )
        return None
    if run.out is None:
        raise UsageError("--program needs --out, the folder of the plan.")
    said = re.fullmatch(r"(\d+)/(\d+)", run.program or "")
    if said is None:
        raise UsageError(f"--program {run.program}: it is written as 3/8, the fourth of eight.")
    return int(said[1]), int(said[2])


OF_THE_PLAN = {"--plan": 1, "--out": 1, "--at-once": 1, "--memory": 1, "--resume": 0, "--no-resume": 0, "--program": 1}
"""Flags that a task's words have otherwise, and how many values follow."""


def _write_plan(scheduler: str, args: list[str], out: Path, name: str, plan: Any) -> int:
    """Write the plan and the file of a scheduler, and say what submits it."""
    from jaxrl.host.run.plans import Tasks, write_plan
    from jaxrl.host.run.trust import trusted

    programs = plan.write()
    most = max(end - first for first, end in programs)
    # Where the tasks do not see this folder they plan by themselves, and alike, by --at-once.
    words = [
        "sweep",
        *map(_from_anywhere, _without(args, OF_THE_PLAN)),
        "--at-once",
        str(most),
        "--out",
        str(out.absolute()),
    ]
    words += ["--trust"] if trusted() else []
    tasks = Tasks(f"sweep-{name}", tuple(words), out.absolute(), len(programs), Path.cwd())
    file, submit = write_plan(scheduler, tasks)
    print(f"tasks    {len(programs)}, of {most} run{'s' if most > 1 else ''} at most")
    print(f"written  {file}: look at what a task needs")
    print(f"submit   {submit}")
    return 0


def _from_anywhere(word: str) -> str:
    """A word with the file that it names by its whole path: tasks may begin in another folder."""
    from jaxrl import registry

    flag, joined, value = word.partition("=") if word.startswith("--") else ("", "", word)
    is_file = "." in value and Path(value).is_file()
    return f"{flag}{joined}{Path(value).absolute() if is_file else registry.lasting(value)}"


def _without(args: list[str], flags: dict[str, int]) -> list[str]:
    """The words without some flags and the values of these."""
    kept, skip = [], 0
    for word in args:
        flag, joined, _ = word.partition("=")
        flag = flag.replace("_", "-")
        if skip:
            skip -= 1
        elif flag in flags:
            skip = 0 if joined else flags[flag]
        else:
            kept.append(word)
    return kept

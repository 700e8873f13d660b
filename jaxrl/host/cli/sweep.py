"""`jaxrl sweep`: a grid of settings x seeds."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path

from jaxrl.host.cli.evaluate import print_normalized
from jaxrl.host.cli.experiment import DataFlags, episode_cap, experiment, folder_name
from jaxrl.host.cli.flags import Act, UsageError, greedy_of, key_of, sizes_said


@dataclasses.dataclass
class SweepFlags(DataFlags):
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


BYTES_OF_A_PLAN = 1000
"""Of a run of a sweep: its point, its key and its line in plan.json."""


def sweep_command(args: list[str]) -> int:
    import numpy as np

    from jaxrl.host.plotting import heat_map
    from jaxrl.host.run.ram import bytes_in, require_room
    from jaxrl.host.run.recipe import build
    from jaxrl.host.run.run_folder import write_json
    from jaxrl.host.run.sharding import make_mesh
    from jaxrl.host.run.sweep import grid, random_points, sweep, table

    parsed, recipe = experiment("sweep", args, SweepFlags, several=True)
    run: SweepFlags = parsed.run
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
    try:
        returns = sweep(
            algo,
            key_of(run.seed),
            total,
            points,
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
    except KeyboardInterrupt:
        print(f"Interrupted; what was done is saved. Go on with the same words, --out {out} and --resume.")
        raise
    rows = [{**point, "returns": scores.tolist()} for point, scores in zip(points, returns, strict=True)]
    write_json(out / "sweep.json", {"recipe": recipe, "points": rows})
    text = table(points, returns)
    (out / "table.md").write_text(f"# {name}, {total:,} steps, {run.seeds} seeds\n\n{text}\n")
    print(text)
    best = returns[np.argmax(np.nan_to_num(returns.mean(1), nan=-np.inf))]
    if np.isfinite(best).all():
        of = f"the best of {len(points)}, by the seeds that chose it: " if len(points) > 1 else ""
        print_normalized(best, task, params, cap, of)
    print(f"folder   {out}")
    if varied:
        print(f"heat map {heat_map(points, returns, out / 'heat_map.png')}")
    return 0

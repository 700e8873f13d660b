"""Sweeps over dynamic settings: every point of a grid, or random draws, times seeds, as one program.

`Hyper` fields are leaves, so a sweep is `fit` with a setting and a key for each run on its axis of seeds: logs,
checkpoints and resume are those of a run. What would not fit into memory is split into several such programs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_key, names_of, num_updates, with_fields
from jaxrl.environment import Environment, strongly_typed
from jaxrl.host.run import checkpoint
from jaxrl.host.run.fit import DivergenceError, Evaluator, fit
from jaxrl.host.run.memory import bytes_a_run, footprint, logged, runs_at_once
from jaxrl.host.run.run_folder import RunFolder, description, tree_values, write_json
from jaxrl.host.run.sharding import check_divides
from jaxrl.host.run.training_program import Program
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.nesting import complete_hyper

Point = dict[str, int | float]
"""Names of `Hyper` fields, dotted where one is inside another as `curriculum.replay_prob`, and values in one run."""


def grid(values: Mapping[str, Sequence[int | float]]) -> list[Point]:
    """Every combination of the values given for each setting, the last setting changing fastest."""
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def random_points(values: Mapping[str, Sequence[int | float]], count: int, seed: int = 0) -> list[Point]:
    """`count` independent draws of every setting between the least and the largest of its values (Bergstra and Bengio
    2012): log-uniform where both are positive, else uniform; integers stay integers, a single value stays itself.

    Raises ValueError when count < 1.
    """
    if count < 1:
        raise ValueError(f"random={count}: it must be at least 1.")
    rng = np.random.default_rng(seed)

    def draw(options: Sequence[int | float]) -> int | float:
        low, high = min(options), max(options)
        if low == high:
            return low
        x = math.exp(rng.uniform(math.log(low), math.log(high))) if low > 0 else rng.uniform(low, high)
        return round(x) if all(isinstance(option, int) for option in options) else float(f"{x:.3g}")

    return [{name: draw(options) for name, options in values.items()} for _ in range(count)]


def sweep(
    algo: Algorithm,
    key: Array,
    total_steps: int,
    points: Sequence[Point],
    *,
    hyper: Any = None,
    env_params: Any = None,
    num_seeds: int = 1,
    eval_episodes: int = 128,
    eval_env: Environment | None = None,
    eval_max_steps: int | None = None,
    eval_greedy: bool | None = None,
    out: str | Path | None = None,
    at_once: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    extra: dict[str, Any] | None = None,
    memory: int | None = None,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """Train `num_seeds` runs of every point; the mean returns of their final policies, (points, seeds).

    NaN where a run diverged. All points share the seeds' keys, so that their difference is that of the settings.

    Args:
        points: see `grid` and `random_points`; all name the same fields, the others are those of `hyper`.
        eval_episodes, eval_max_steps, eval_greedy: as in `fit`.
        out: a folder with one run folder for each program, `runs-<first>-<last>`; None writes nothing.
        at_once: runs in one program; default: as many as fit the memory, which a device out of memory halves.
        memory: bytes that this process (on a CPU) or a device may have; default what is free. See `memory`.
        mesh: of devices, whose axis `seeds` the runs are spread over; see `sharding.make_mesh`.
        resume: finished programs in `out` are read, not run again; an unfinished one goes on.

    Raises ValueError for a field that `Hyper` lacks, points of different fields, no points, a single run that exceeds
    the memory, or to resume another sweep; RunFolderError where another process writes `out`.
    """
    if num_seeds < 1 or (at_once is not None and at_once < 1):
        raise ValueError(f"num_seeds={num_seeds}, at_once={at_once}: they must be at least 1.")
    if not points:
        raise ValueError("A sweep needs at least one point.")
    hyper = complete_hyper(algo, hyper)
    fields = names_of(hyper)
    for name in {name: None for point in points for name in point if name not in fields}:
        raise ValueError(f"{algo.name} has no setting {name!r}; its Hyper has {', '.join(fields)}.")
    for point in points:
        if point.keys() != points[0].keys():
            raise ValueError(f"Points name different settings: {', '.join(points[0])} and {', '.join(point)}.")
    runs = [(point, seed) for point in points for seed in range(num_seeds)]
    check_key(key)
    keys = jax.random.split(key, num_seeds)
    parts = 1 if mesh is None else mesh.shape["seeds"]
    if mesh is not None:
        check_divides(mesh, "seeds", len(runs), "points x seeds")
        check_divides(mesh, "seeds", at_once or parts, "at_once")

    def hyper_of(chunk: list[tuple[Point, int]]) -> Any:
        varied = {name: np.array([point[name] for point, _ in chunk]) for name in points[0]}
        return with_fields(hyper, varied)

    def needs(count: int) -> int:
        program = Program(algo, jax.random.split(key, count), count, hyper_of(runs[:count]), env_params, mesh)
        how = eval_episodes, eval_env, env_params, eval_max_steps, eval_greedy, mesh
        return footprint(program, Evaluator(algo, count, *how)) + logged(program, num_updates(algo, total_steps))

    plan = None if out is None else Path(out) / "plan.json"
    settings = {
        "total_steps": total_steps,
        "runs": {str(i): {**point, "seed": seed} for i, (point, seed) in enumerate(runs)},
        "description": {**description(algo, None), "hyper": tree_values(strongly_typed(hyper))},
        **({} if extra is None else {"extra": extra}),
    }
    with contextlib.nullcontext() if out is None else RunFolder(out).locked():
        if plan is not None and resume and plan.exists():
            kept = json.loads(plan.read_text())
            programs = [tuple(bounds) for bounds in kept.pop("programs")]
            if differs := checkpoint.difference(_unmoved(kept), _unmoved(settings)):
                raise ValueError(
                    f"{out} holds another sweep: {differs}. Go on with the same settings, or name another folder."
                )
        else:
            size = at_once or runs_at_once(len(runs), bytes_a_run(algo, hyper, env_params), needs, memory, parts)
            programs = _programs(0, len(runs), size)
        returns: list[float] = []
        while len(returns) < len(runs):
            if plan is not None:
                write_json(plan, {"programs": programs, **settings})
            first, end = next(bounds for bounds in programs if bounds[0] == len(returns))
            chunk = runs[first:end]
            folder = None if out is None else RunFolder(Path(out) / f"runs-{first:04d}-{end - 1:04d}")
            if resume and folder is not None and folder.summary.exists():
                finished = json.loads(folder.summary.read_text())
                if not finished["interrupted"]:
                    returns += _with_diverged(finished["evaluation"], finished["diverged"])
                    continue
            try:
                result = fit(
                    algo,
                    keys[np.array([seed for _, seed in chunk])],
                    total_steps,
                    hyper=hyper_of(chunk),
                    env_params=env_params,
                    num_seeds=len(chunk),
                    eval_every=total_steps,
                    eval_episodes=eval_episodes,
                    eval_env=eval_env,
                    eval_env_params=env_params,
                    eval_max_steps=eval_max_steps,
                    eval_greedy=eval_greedy,
                    out=None if folder is None else folder.path,
                    resume=resume,
                    overwrite=overwrite,
                    progress=progress,
                    extra=extra,
                    mesh=mesh,
                )
            except DivergenceError as error:
                if folder is not None:  # so that resuming does not try again
                    diverged = {str(i): str(error) for i in range(len(chunk))}
                    summary = {"interrupted": False, "evaluation": [0.0] * len(chunk), "diverged": diverged}
                    write_json(folder.summary, summary)
                returns += [math.nan] * len(chunk)
                continue
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or len(chunk) == parts:
                    raise
                size = max(len(chunk) // 2 // parts, 1) * parts
                programs = [*(bounds for bounds in programs if bounds[1] <= first), *_programs(first, len(runs), size)]
                if folder is not None:
                    folder.clear()
                    with contextlib.suppress(OSError):  # not made yet, or with files of others
                        folder.path.rmdir()
                print(f"{len(chunk)} runs exceed the device's memory; going on with {size} at once.", file=sys.stderr)
                continue
            if result.interrupted:
                raise KeyboardInterrupt
            returns += _with_diverged(result.evaluations[-1]["return"], result.diverged)
    return np.array(returns).reshape(len(points), num_seeds)


def _unmoved(settings: dict[str, Any]) -> dict[str, Any]:
    """Without where files are: their digests say what is in them."""

    def without(said: Any) -> Any:
        return {name: x for name, x in said.items() if name != "path"} if isinstance(said, dict) else said

    return {**settings, "extra": {part: without(said) for part, said in settings.get("extra", {}).items()}}


def _programs(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """The runs from `first` to `end` in programs of `size`, the last one smaller: `(first, end)` of each."""
    return [(start, min(start + size, end)) for start in range(first, end, size)]


def _with_diverged(returns: list[float], diverged: dict[Any, str]) -> list[float]:
    return [math.nan if i in {int(seed) for seed in diverged} else x for i, x in enumerate(returns)]


def table(points: Sequence[Point], returns: np.ndarray) -> str:
    """A markdown table, the best mean first; a diverged run counts as the worst."""
    names = list(points[0])
    rows = []
    for point, scores in zip(points, returns, strict=True):
        good = scores[np.isfinite(scores)]
        statistics = ["-"] * 4
        if len(good):
            low, high = bootstrap_interval(good) if len(good) > 1 else (good[0], good[0])
            statistics = [f"{good.mean():.2f}", f"{iqm(good):.2f}", f"{low:.2f} to {high:.2f}", f"{good.min():.2f}"]
        rank = good.mean() if len(good) == len(scores) else -math.inf
        rows.append((rank, [*(f"{point[name]:g}" for name in names), *statistics, str(len(scores) - len(good))]))
    rows.sort(key=lambda row: -row[0])
    header = [*names, "mean", "IQM", "95 % interval", "lowest", "diverged"]
    lines = [header, ["---"] * len(header), *(cells for _, cells in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

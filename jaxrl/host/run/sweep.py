"""Sweeps over dynamic settings: every point of a grid, or random draws, times seeds, as one program.

`Hyper` fields are leaves, so a sweep is `fit` with a setting and a key for each run on its axis of seeds: logs,
checkpoints and resume are those of a run. What would not fit into memory is split into several such programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_key, names_of, num_updates, with_fields
from jaxrl.environment import strongly_typed
from jaxrl.host.run import checkpoint
from jaxrl.host.run.evaluator import Evaluator
from jaxrl.host.run.files import read_json
from jaxrl.host.run.fit import DivergenceError, fit
from jaxrl.host.run.interrupts import Terminated
from jaxrl.host.run.options import EvalOptions, Keywords, RunOptions, collected
from jaxrl.host.run.ram import bytes_a_run, footprint, logged, runs_at_once
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, description, in_place_of, tree_values, write_json
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
    at_once: int | None = None,
    memory: int | None = None,
    run: RunOptions | None = None,
    evaluation: EvalOptions | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
    **keywords: Unpack[Keywords],
) -> np.ndarray:
    """Train `num_seeds` runs of every point; the mean returns of their final policies, (points, seeds).

    NaN where a run diverged. All points share the seeds' keys, so that their difference is that of the settings.

    Args:
        points: see `grid` and `random_points`; all name the same fields, the others are those of `hyper`.
        at_once: runs in one program; default: as many as fit the memory, which a device out of memory halves.
        memory: bytes that this process (on a CPU) or a device may have; default what is free. See `ram`.
        run, evaluation, keywords: as of `fit`. `out` is a folder with one run folder for each program,
            `runs-<first>-<last>`; with `resume`, finished programs in it are read, and an unfinished one goes on.
            Policies are evaluated at the end, on `env_params` unless `eval_env_params` says otherwise.
        mesh: of devices, whose axis `seeds` the runs are spread over; see `sharding.make_mesh`.

    Raises ValueError for a field that `Hyper` lacks, points of different fields, no points, a single run that exceeds
    the memory, or to resume another sweep; TypeError for a keyword that is none; RunFolderError where another process
    writes `out`.
    """
    return planned(
        algo,
        key,
        total_steps,
        points,
        hyper=hyper,
        env_params=env_params,
        num_seeds=num_seeds,
        at_once=at_once,
        memory=memory,
        run=run,
        evaluation=evaluation,
        progress=progress,
        mesh=mesh,
        **keywords,
    ).train_all()


def planned(
    algo: Algorithm,
    key: Array,
    total_steps: int,
    points: Sequence[Point],
    *,
    hyper: Any = None,
    env_params: Any = None,
    num_seeds: int = 1,
    at_once: int | None = None,
    memory: int | None = None,
    run: RunOptions | None = None,
    evaluation: EvalOptions | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """A sweep that is not trained yet, for tasks of a cluster that train a program each: see `Plan`. Arguments and what
    is raised for them are those of `sweep`.
    """
    run, evaluation = collected(sweep, run, evaluation, keywords)
    if num_seeds < 1 or (at_once is not None and at_once < 1):
        raise ValueError(f"num_seeds={num_seeds}, at_once={at_once}: they must be at least 1.")
    check_key(key)
    hyper = complete_hyper(algo, hyper)
    _check_points(algo, hyper, points)
    if mesh is not None:
        check_divides(mesh, "seeds", len(points) * num_seeds, "points x seeds")
        check_divides(mesh, "seeds", at_once or mesh.shape["seeds"], "at_once")
    evaluation = dataclasses.replace(
        evaluation,
        every=total_steps if evaluation.every is None else evaluation.every,
        env_params=env_params if evaluation.env_params is None else evaluation.env_params,
    )
    return Plan(
        algo, key, total_steps, points, num_seeds, hyper, env_params, at_once, memory, run, evaluation, progress, mesh
    )


def _check_points(algo: Algorithm, hyper: Any, points: Sequence[Point]) -> None:
    if not points:
        raise ValueError("A sweep needs at least one point.")
    fields = names_of(hyper)
    for name in {name: None for point in points for name in point if name not in fields}:
        raise ValueError(f"{algo.name} has no setting {name!r}; its Hyper has {', '.join(fields)}.")
    for point in points:
        if point.keys() != points[0].keys():
            raise ValueError(f"Points name different settings: {', '.join(points[0])} and {', '.join(point)}.")


Bounds = tuple[int, int]
"""Of a program: its first run, and the one after its last."""


@dataclasses.dataclass
class Plan:
    """The programs of a sweep, each of some of its runs, as `planned` makes it.

    `train_all` trains them one after another, `train_program` one of them, as a task of an array does: tasks may run at
    the same time, on several machines, stop and start again, and the last one finds the returns of all. `plan.json` in
    the sweep's folder keeps the programs, so that a sweep that goes on has the same; tasks never change it. Where a
    device is too small for a task's program, the task trains its halves, and `halved-<first>-<last>.json` keeps them.
    """

    algo: Algorithm
    key: Array
    total_steps: int
    points: Sequence[Point]
    num_seeds: int
    hyper: Any
    env_params: Any
    at_once: int | None
    memory: int | None
    run: RunOptions
    evaluation: EvalOptions
    progress: bool
    mesh: Mesh | None

    def __post_init__(self) -> None:
        self.runs = [(point, seed) for point in self.points for seed in range(self.num_seeds)]
        self.keys = jax.random.split(self.key, self.num_seeds)
        self.parts = 1 if self.mesh is None else self.mesh.shape["seeds"]
        self.out = None if self.run.out is None else RunFolder(self.run.out)
        self.file = None if self.out is None else self.out.path / "plan.json"
        self.programs: list[Bounds] = []
        self.settings = {
            "total_steps": self.total_steps,
            "runs": {str(i): {**point, "seed": seed} for i, (point, seed) in enumerate(self.runs)},
            "description": {**description(self.algo, None), "hyper": tree_values(strongly_typed(self.hyper))},
            **({} if self.run.extra is None else {"extra": self.run.extra}),
        }

    def write(self) -> list[Bounds]:
        """Plan, and write plan.json, for tasks to come; the programs.

        Raises ValueError without a folder; RunFolderError where there is a sweep already, unless it is resumed.
        """
        out, file = self._folder()
        with out.locked():
            if file.exists() and not self.run.resume:
                raise RunFolderError(f"{out.path} holds a sweep already: resume it, or name another folder.")
            self._plan()
            self._keep()
        return self.programs

    def train_all(self) -> np.ndarray:
        """Train all programs; the returns, (points, seeds). See `sweep`."""
        with contextlib.nullcontext() if self.out is None else self.out.locked():
            self._plan()
            self.programs = [part for bounds in self.programs for part in self._parts(bounds)]
            self._keep()

            def halved(programs: list[Bounds]) -> None:
                self.programs = programs
                self._keep()

            returns = self._train(self.programs, halved)
        return self._by_point(returns)

    def train_program(self, number: int, count: int | None = None) -> np.ndarray | None:
        """Train the program of this number, from 0, and go on with what is there of it. The returns of the sweep,
        (points, seeds), once all programs are finished; None before.

        Args:
            count: how many programs the caller takes the plan to have.

        Raises ValueError for a number that no program has, or another count; RunFolderError where another process
        trains this program, or all. Where nobody planned (a folder that was not seen from there), it does so itself.
        """
        out, file = self._folder()
        self.run = dataclasses.replace(self.run, resume=True, overwrite=False)
        with out.locked(shared=True):
            planned_already = file.exists()
            self._plan()
            if count is not None and count != len(self.programs):
                raise ValueError(f"{file} has {len(self.programs)} programs, not {count}: plan again, with resume.")
            if not 0 <= number < len(self.programs):
                raise ValueError(f"program {number}: {file} has programs from 0 to {len(self.programs) - 1}.")
            if not planned_already:
                self._keep()
            bounds = self.programs[number]

            def halved(programs: list[Bounds]) -> None:
                write_json(self._file_of_parts(bounds), {"programs": programs})

            self._train(self._parts(bounds), halved)
            return self.returns()

    def returns(self) -> np.ndarray | None:
        """The returns that finished programs left in the folder, (points, seeds); None while one is unfinished."""
        found = self._finished()
        return None if None in found else self._by_point([x for of_program in found if of_program for x in of_program])

    def unfinished(self) -> list[int]:
        """Numbers of the programs that are not finished, by what is in the folder."""
        return [number for number, returns in enumerate(self._finished()) if returns is None]

    def _finished(self) -> list[list[float] | None]:
        def of_program(bounds: Bounds) -> list[float] | None:
            of_parts = [self._read(*part) for part in self._parts(bounds)]
            return None if None in of_parts else [x for returns in of_parts if returns for x in returns]

        return [of_program(bounds) for bounds in self.programs]

    def _by_point(self, returns: list[float]) -> np.ndarray:
        return np.array(returns).reshape(len(self.points), self.num_seeds)

    def _folder(self) -> tuple[RunFolder, Path]:
        if self.out is None or self.file is None:
            raise ValueError("A plan for tasks needs a folder that all of them see: say out.")
        return self.out, self.file

    def _plan(self) -> None:
        """Which runs are trained by one program: those of the sweep that is resumed, or as many as fit."""
        if self.file is not None and self.run.resume and self.file.exists():
            kept, self.programs = _read_programs(self.file)
            if differs := checkpoint.difference(_unmoved(kept), _unmoved(self.settings)):
                raise ValueError(
                    f"{self.run.out} holds another sweep: {differs}. Go on with the same settings, or name another "
                    "folder."
                )
            return
        if self.out is not None and not self.run.resume:
            for file in self.out.path.glob("halved-*.json"):  # of a sweep that was here before
                file.unlink()
        estimate = bytes_a_run(self.algo, self.hyper, self.env_params)
        size = self.at_once or runs_at_once(len(self.runs), estimate, self._needs, self.memory, self.parts)
        self.programs = _programs(0, len(self.runs), size)

    def _keep(self) -> None:
        """Write plan.json; tasks may do so at the same time."""
        if self.file is not None:
            with in_place_of(self.file) as own:
                write_json(own, {"programs": self.programs, **self.settings})

    def _file_of_parts(self, bounds: Bounds) -> Path:
        return self._folder()[0].path / f"halved-{bounds[0]:04d}-{bounds[1] - 1:04d}.json"

    def _parts(self, bounds: Bounds) -> list[Bounds]:
        """The program itself, or what a task that ran out of memory made of it."""
        if self.out is None or not self.run.resume or not (file := self._file_of_parts(bounds)).exists():
            return [bounds]
        return _read_programs(file)[1]

    def _hyper_of(self, chunk: list[tuple[Point, int]]) -> Any:
        varied = {name: np.array([point[name] for point, _ in chunk]) for name in self.points[0]}
        return with_fields(self.hyper, varied)

    def _needs(self, count: int) -> int:
        """Bytes of a program of so many runs."""
        hyper, keys = self._hyper_of(self.runs[:count]), jax.random.split(self.key, count)
        program = Program(self.algo, keys, count, hyper, self.env_params, self.mesh)
        updates = num_updates(self.algo, self.total_steps)
        of_log = logged(program, updates, self.run.log_every)
        return footprint(program, Evaluator(self.algo, count, self.evaluation, self.mesh)) + of_log

    def _train(self, programs: list[Bounds], halved: Callable[[list[Bounds]], None]) -> list[float]:
        """Train programs, one after another, and return the returns of their runs. From one on that exceeds the memory
        they are of half its size; `halved` keeps what they are then.
        """
        returns: list[float] = []
        at = 0
        while at < len(programs):
            first, end = programs[at]
            found = self._train_one(first, end)
            if found is None:
                half = max((end - first) // 2 // self.parts, 1) * self.parts
                if (folder := self._folder_of(first, end)) is not None:
                    folder.clear()
                    with contextlib.suppress(OSError):  # not made yet, or with files of others
                        folder.path.rmdir()
                programs = [*programs[:at], *_programs(first, programs[-1][1], half)]
                halved(programs)
                said = f"{end - first} runs exceed the device's memory; going on with {half} at once."
                print(said, file=sys.stderr)
            else:
                returns += found
                at += 1
        return returns

    def _folder_of(self, first: int, end: int) -> RunFolder | None:
        return None if self.out is None else RunFolder(self.out.path / f"runs-{first:04d}-{end - 1:04d}")

    def _read(self, first: int, end: int) -> list[float] | None:
        """The returns of a program that is finished, by its folder; None for one that is not."""
        folder = self._folder_of(first, end)
        if folder is None or not folder.summary.exists():
            return None
        try:
            finished = read_json(folder.summary)
            ended = not finished["interrupted"]
            return _with_diverged(finished["evaluation"], finished["diverged"]) if ended else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{folder.summary} is no summary: remove it, and the runs go on.") from error

    def _train_one(self, first: int, end: int) -> list[float] | None:
        """The returns of a program, which is trained unless it is finished; None where it exceeds the memory."""
        chunk, folder = self.runs[first:end], self._folder_of(first, end)
        if self.run.resume and (found := self._read(first, end)) is not None:
            return found
        try:
            result = fit(
                self.algo,
                self.keys[np.array([seed for _, seed in chunk])],
                self.total_steps,
                hyper=self._hyper_of(chunk),
                env_params=self.env_params,
                num_seeds=len(chunk),
                run=self.run,
                out=None if folder is None else folder.path,
                evaluation=self.evaluation,
                progress=self.progress,
                mesh=self.mesh,
            )
        except DivergenceError as error:
            if folder is not None:  # so that resuming does not try again
                diverged = {str(i): str(error) for i in range(len(chunk))}
                summary = {"interrupted": False, "evaluation": [0.0] * len(chunk), "diverged": diverged}
                write_json(folder.summary, summary)
            return [math.nan] * len(chunk)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or len(chunk) == self.parts:
                raise
            return None
        if result.interrupted:
            raise Terminated if result.signal == signal.SIGTERM else KeyboardInterrupt
        return _with_diverged(result.evaluations[-1]["return"], result.diverged)


def _read_programs(file: Path) -> tuple[dict[str, Any], list[Bounds]]:
    """`(what else the file holds, programs)` of a plan.json or of what a task made of its program."""
    try:
        kept = read_json(file)
        return kept, [(int(first), int(end)) for first, end in kept.pop("programs")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{file} is no plan of a sweep: bring it back, or name another.") from error


def _unmoved(settings: dict[str, Any]) -> dict[str, Any]:
    """Without where files are: their digests say what is in them."""

    def without(said: Any) -> Any:
        return {name: x for name, x in said.items() if name != "path"} if isinstance(said, dict) else said

    return {**settings, "extra": {part: without(said) for part, said in settings.get("extra", {}).items()}}


def _programs(first: int, end: int, size: int) -> list[Bounds]:
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

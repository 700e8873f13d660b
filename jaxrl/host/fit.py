"""The host loop around a pure training program: progress, logs, evaluation, checkpoints, exact resume.

`fit` calls one compiled program, a loop of a *traced* number of updates, so that no interval changes the numbers: a run
that was killed and resumed ends bit-identical to one that was not (same machine and versions).
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, num_updates
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host import checkpoint
from jaxrl.host.run_folder import (
    Logger,
    RunFolder,
    check_loggers,
    description,
    environment_of_run,
    read_rows,
    tree_values,
    write_json,
)

MAX_UPDATES_PER_CALL = 512
SECONDS_PER_CALL = 0.5  # how often the display moves
WATCHDOG_SECONDS = 5.0  # shorter calls are not worth a complaint
EVALUATION_SEED = 20_240_229  # evaluations draw from their own stream: the same episodes' luck for every run compared


class DivergenceError(RuntimeError):
    """NaN or infinity in the loss or the weights; the message says where and what was kept."""


class FitResult(NamedTuple):
    state: Any  # leading axis of seeds if there were several
    metrics: dict[str, np.ndarray]  # (rows,) or (rows, seeds), as logged
    evaluations: list[dict[str, Any]]  # as logged
    diverged: dict[int, str]  # seed -> what happened
    interrupted: bool


@pytree
class Watch:
    """Where the first NaN or infinity was seen."""

    update: jax.Array  # int32, -1: nowhere
    leaves: jax.Array  # bool, which of the watched leaves


def fit(
    algo: Algorithm,
    key: Array,
    total_steps: int,
    *,
    hyper: Any = None,
    env_params: Any = None,
    num_seeds: int | None = None,
    eval_every: int | None = None,
    eval_episodes: int = 128,
    eval_env: Environment | None = None,
    eval_env_params: Any = None,
    eval_max_steps: int | None = None,
    eval_greedy: bool = False,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    log_every: int | None = None,
    loggers: tuple[str, ...] = (),
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    on_progress: Callable[[int, dict[str, Any]], None] | None = None,
    extra: dict[str, Any] | None = None,
) -> FitResult:
    """Train `algo` for `total_steps` environment steps a seed, from the host.

    Args:
        hyper: leaves are scalars, or have a leading axis of seeds.
        num_seeds: train that many at once, as one program; None for a single run without the axis.
        eval_every: steps between evaluations (and one at the end); None for none. Of `eval_episodes` full episodes of
            `eval_env` (default: the task) on `eval_env_params` (default: its own), capped at `eval_max_steps`, greedy
            or sampled.
        out: the run folder; None writes nothing. `docs/run_folder.md` describes it.
        checkpoint_every: steps between checkpoints; default a tenth of the run. `keep`: how many stay.
        log_every: updates averaged into one logged row; default makes about a thousand rows.
        loggers: "tensorboard", "wandb", beside the JSONL and CSV that are always written.
        resume: go on from the newest whole checkpoint in `out`, or start if there is none.
        on_progress: called after each compiled call with the updates done and the last row.
        extra: JSON values to keep in config.json.

    Raises:
        DivergenceError: a single run met NaN or infinity (of several seeds, the ones that did are frozen and reported).
        RunFolderError, CheckpointError, ValueError: bad input, before any training.
    """
    updates = num_updates(algo, total_steps)
    counts = {
        "num_seeds": num_seeds,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "eval_max_steps": eval_max_steps,
        "checkpoint_every": checkpoint_every,
        "keep": keep,
        "log_every": log_every,
    }
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: it must be at least 1.")
    check_loggers(loggers)
    log_every = max(1, updates // 1000) if log_every is None else log_every

    def in_updates(steps: int | None, default: int) -> int:
        wanted = default if steps is None else steps // algo.steps_per_update
        return max(1, round(wanted / log_every)) * log_every  # boundaries fall between rows

    eval_gap = in_updates(eval_every, updates)
    save_gap = in_updates(checkpoint_every, max(updates // 10, 1))
    program = _Program(algo, key, num_seeds, hyper, env_params)
    evaluator = _Evaluator(algo, num_seeds, eval_episodes, eval_env, eval_env_params, eval_max_steps, eval_greedy)
    if eval_every is not None:
        evaluator.check(program.shapes()[0])
    identity = program.identity()
    settings = {**identity, "total_steps": total_steps, **environment_of_run()}
    settings |= {"eval_every": eval_every, "eval_episodes": eval_episodes, "eval_greedy": eval_greedy, **(extra or {})}
    folder = None if out is None else RunFolder(out)
    done, carry = 0, None
    if folder is not None:
        folder.create(settings, resume=resume, overwrite=overwrite)
        if resume and checkpoint.steps(folder.checkpoints):
            done, carry = checkpoint.restore(folder.checkpoints, program.shapes(), identity)
        else:
            write_json(folder.config, settings)  # what is resumed before its first checkpoint may have been another run
        folder.truncate(done)
    history = _History(folder, loggers, settings, num_seeds, log_every, algo.steps_per_update)
    carry = program.start() if carry is None else carry
    saved = done if done else None
    with _Display(progress, updates, done, algo) as display, _interruptible() as interrupted, history:
        display.compiling()
        display.compiled(program.compile(carry))
        pace = _Pace()
        while done < updates and not (interrupted.is_set() and done % log_every == 0):  # no row is cut in two
            gaps = (eval_gap, save_gap, log_every) if interrupted.is_set() else (eval_gap, save_gap)
            boundary = min(updates, *((done // gap + 1) * gap for gap in gaps))
            count = min(boundary - done, pace.updates())
            with pace.watch(count, done):
                carry, rows = program.call(carry, done, count)
                rows = {name: np.asarray(x)[:count] for name, x in rows.items()}
            done += count
            problems = program.diverged(carry)
            history.add(done - count, program.without_diverged(carry, done - count, rows), last=done == updates)
            if problems and (num_seeds is None or len(problems) == num_seeds):
                display.message("; ".join(f"seed {seed}: {what}" for seed, what in problems.items()))
                kept = f" The last good checkpoint is at update {saved}." if saved else " No checkpoint had been made."
                raise DivergenceError(next(iter(problems.values())) + "." + kept)
            if (done % eval_gap == 0 or done == updates) and eval_every is not None:
                history.evaluated(done, evaluator(carry[0], done))
            if folder is not None and (done % save_gap == 0 or done == updates):
                checkpoint.save(folder.checkpoints, done, carry, identity, keep)
                saved = done
            display.advanced(done, history, problems, pace.seconds)
            if on_progress is not None:
                on_progress(done, history.last)
        if folder is not None and done and saved != done:  # interrupted
            checkpoint.save(folder.checkpoints, done, carry, identity, keep)
    result = FitResult(carry[0], history.metrics(), history.evaluations, program.diverged(carry), done < updates)
    if folder is not None:
        ended = {"diverged": result.diverged, "interrupted": result.interrupted}
        steps = done * algo.steps_per_update
        write_json(folder.summary, {"updates": done, "steps": steps, **display.times(), **history.summary(), **ended})
    return result


def load(
    algo: Algorithm, folder: str | Path, *, hyper: Any = None, env_params: Any = None, num_seeds: int | None = None
) -> tuple[int, Any]:
    """`(updates done, state)` of the newest whole checkpoint in a run folder, for what `fit` was given.

    Raises CheckpointError when there is none, or it is of another run.
    """
    program = _Program(algo, jax.random.key(0), num_seeds, hyper, env_params)
    done, carry = checkpoint.restore(RunFolder(folder).checkpoints, program.shapes(), program.identity())
    return done, carry[0]


class _Program:
    """The compiled part: `run(carry, first, count)` makes `count` updates and returns their metrics."""

    def __init__(self, algo: Algorithm, key: Array, num_seeds: int | None, hyper: Any, env_params: Any) -> None:
        self.algo, self.num_seeds, self.env_params = algo, num_seeds, env_params
        self.hyper = strongly_typed(algo.hyper() if hyper is None else hyper)
        self.keys = key if num_seeds is None or key.ndim else jax.random.split(key, num_seeds)
        shape = () if num_seeds is None else (num_seeds,)
        if self.keys.shape != shape:
            raise ValueError(f"key has shape {key.shape}; num_seeds={num_seeds} needs one key, or shape {shape}.")
        for path, x in jax.tree_util.tree_leaves_with_path(self.hyper):
            name = jax.tree_util.keystr(path)
            if x.ndim and num_seeds is None:
                raise ValueError(
                    f"hyper{name} is batched, but this is a single run: say num_seeds, or jax.vmap(train)."
                )
            if x.ndim and x.shape != shape:
                raise ValueError(f"hyper{name} has shape {x.shape}; num_seeds={num_seeds} needs () or {shape}.")
        self.axes = jax.tree.map(lambda x: 0 if x.ndim else None, self.hyper)
        self.init = jax.jit(self._init)  # traced once, for shapes and start
        state = jax.eval_shape(self.init, self.keys, self.hyper)
        self.names = ["loss", *(jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(state.weights))]

    def _init(self, keys: Array, hyper: Any) -> Any:
        if self.num_seeds is None:
            return self.algo.init(keys, hyper, self.env_params)
        return jax.vmap(lambda k, h: self.algo.init(k, h, self.env_params), (0, self.axes))(keys, hyper)

    def start(self) -> tuple[Any, Watch]:
        shape = () if self.num_seeds is None else (self.num_seeds,)
        watch = Watch(jnp.full(shape, -1), jnp.zeros((*shape, len(self.names)), bool))
        return self.init(self.keys, self.hyper), watch

    def shapes(self) -> Any:
        return jax.eval_shape(self.start)

    def identity(self) -> dict[str, Any]:
        return {**description(self.algo, self.num_seeds), "hyper": tree_values(self.hyper)}

    def compile(self, carry: Any) -> float:
        """Seconds it took."""
        begin = time.perf_counter()
        self.run = jax.jit(self._run, donate_argnums=0).lower(carry, 0, 1).compile()
        return time.perf_counter() - begin

    def call(self, carry: Any, first: int, count: int) -> tuple[Any, dict[str, Array]]:
        """`run`, and each seed that diverged in it brought to just before the update that broke it.

        With the same program, so that its last good state does not depend on how updates were grouped into calls.
        """
        (state, watch), rows = self.run(carry, first, count)
        for seed in np.flatnonzero(np.asarray(watch.update) > first) if self.num_seeds is not None else ():
            fresh = jax.tree.map(jnp.copy, state), Watch(jnp.full_like(watch.update, -1), jnp.zeros_like(watch.leaves))
            (again, _), _ = self.run(fresh, first, int(watch.update[seed]) - first)
            this = jnp.arange(self.num_seeds) == seed
            state = jax.tree.map(lambda new, old, this=this: _where(this, new, old), again, state)
        return (state, watch), rows

    def _run(self, carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
        one = self._run_one if self.num_seeds is None else jax.vmap(self._run_one, (0, None, None), (0, 1))
        after, rows = one(carry, first, count)
        if self.num_seeds is not None:  # a seed that diverged is as it was before this call; the others go on
            fine = after[1].update < 0
            state = jax.tree.map(lambda new, old: _where(fine, new, old), after[0], carry[0])
            after = (state, after[1])
        return after, rows

    def _run_one(self, carry: Any, first: Array, count: Array) -> tuple[Any, dict[str, Array]]:
        metrics = jax.eval_shape(self.algo.update, carry[0])[1]
        rows = {k: jnp.zeros((MAX_UPDATES_PER_CALL, *x.shape), x.dtype) for k, x in metrics.items()}

        def body(i, loop):
            state, watch, rows = loop
            state, metrics = self.algo.update(state)
            finite = jnp.stack([jnp.isfinite(x).all() for x in (metrics["loss"], *jax.tree.leaves(state.weights))])
            new = (watch.update < 0) & ~finite.all()
            watch = Watch(jnp.where(new, first + i, watch.update), jnp.where(new, ~finite, watch.leaves))
            return state, watch, {k: rows[k].at[i].set(x) for k, x in metrics.items()}

        state, watch, rows = jax.lax.fori_loop(0, count, body, (*carry, rows))
        return (state, watch), rows

    def diverged(self, carry: Any) -> dict[int, str]:
        update, leaves = np.atleast_1d(carry[1].update), np.atleast_2d(carry[1].leaves)
        return {
            int(seed): f"NaN or infinity in update {update[seed]}, first in {self.names[int(np.argmax(leaves[seed]))]}"
            for seed in np.flatnonzero(update >= 0)
        }

    def without_diverged(self, carry: Any, first: int, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rows of frozen seeds are empty after the update that broke them: what ran there is not part of the run."""
        update = np.asarray(carry[1].update)
        over = (update >= 0) & (first + np.arange(len(rows["loss"])).reshape(-1, *[1] * update.ndim) > update)
        empty = {k: np.nan if np.issubdtype(v.dtype, np.floating) else 0 for k, v in rows.items()}
        return {k: np.where(over, np.asarray(empty[k], v.dtype), v) for k, v in rows.items()}


def _where(mask: Array, new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)


class _Evaluator:
    """Full episodes of the current policies."""

    def __init__(
        self,
        algo: Algorithm,
        num_seeds: int | None,
        episodes: int,
        env: Environment | None,
        env_params: Any,
        max_steps: int | None,
        greedy: bool,
    ):
        env = algo.venv.env if env is None else env
        env_params = env.default_params if env_params is None else env_params

        def returns(state: Any, keys: Array) -> Array:
            def one(state, key):
                policy = algo.policy(state)
                return evaluate(algo, policy, env, env_params, key, episodes, max_steps, greedy).returns

            return one(state, keys) if num_seeds is None else jax.vmap(one)(state, keys)

        self.num_seeds, self.returns = num_seeds, jax.jit(returns)

    def keys(self, update: int) -> Array:
        key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), update)
        return key if self.num_seeds is None else jax.random.split(key, self.num_seeds)

    def check(self, state: Any) -> None:
        """Trace it on the shapes of a state, so that what cannot be evaluated fails before the training."""
        jax.eval_shape(self.returns, state, self.keys(0))

    def __call__(self, state: Any, update: int) -> np.ndarray:
        return np.asarray(self.returns(state, self.keys(update)))


class _History:
    """Rows as they are logged: the mean over `log_every` updates, per seed. Starts with what the folder holds."""

    def __init__(
        self,
        folder: RunFolder | None,
        loggers: tuple[str, ...],
        settings: dict,
        num_seeds: int | None,
        every: int,
        steps: int,
    ):
        self.folder, self.every, self.steps, self.num_seeds = folder, every, steps, num_seeds
        self.logger = None if folder is None else Logger(folder, loggers, settings)
        self.rows = [] if folder is None else [_arrays(row) for row in read_rows(folder.metrics)]
        self.pending: list[dict[str, np.ndarray]] = []
        self.evaluations = [] if folder is None else read_rows(folder.evaluations)
        self.last: dict[str, Any] = self.rows[-1] if self.rows else {}
        known = (row["episode_return"] for row in reversed(self.rows) if not np.isnan(row["episode_return"]).all())
        self.recent_return: np.ndarray | None = next(known, None)

    def __enter__(self) -> _History:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.logger is not None:
            self.logger.close()

    def add(self, first: int, rows: dict[str, np.ndarray], last: bool) -> None:
        count = len(rows["loss"])
        for i in range(count):
            self.pending.append({k: v[i] for k, v in rows.items()})
            if (first + i + 1) % self.every == 0 or (last and i + 1 == count):
                self._write(first + i + 1)

    def _write(self, update: int) -> None:
        with warnings.catch_warnings():  # no episode ended: the mean of nothing is NaN, as it should be
            warnings.simplefilter("ignore", RuntimeWarning)
            means = {k: np.nanmean([p[k] for p in self.pending], axis=0) for k in self.pending[0]}
        means["episodes"] = np.sum([p["episodes"] for p in self.pending], axis=0)
        self.pending.clear()
        if not np.isnan(means["episode_return"]).all():
            self.recent_return = means["episode_return"]
        self.last = {"update": update, "step": update * self.steps, **means}
        self.rows.append(self.last)
        if self.logger is not None:
            self.logger.write({k: _plain(v) for k, v in self.last.items()})

    def evaluated(self, update: int, returns: np.ndarray) -> None:
        row = {
            "update": update,
            "step": update * self.steps,
            "return": _plain(returns.mean(-1)),
            "episodes": returns.shape[-1],
        }
        self.evaluations.append(row)
        if self.folder is not None:
            import json

            with self.folder.evaluations.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def metrics(self) -> dict[str, np.ndarray]:
        return {k: np.stack([row[k] for row in self.rows]) for k in self.last}

    def summary(self) -> dict[str, Any]:
        final = self.evaluations[-1]["return"] if self.evaluations else None
        return {
            "evaluation": final,
            "episode_return": None if self.recent_return is None else _plain(self.recent_return),
        }


def _plain(x: Any) -> Any:
    """Lists and numbers for JSON, which has no NaN and no infinity: None."""
    if isinstance(x, int):
        return x
    x = np.asarray(x)
    return [_plain(v) for v in x] if x.ndim else (x.item() if np.isfinite(x) else None)


def _arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was before it was logged: None as NaN."""
    return {k: v if isinstance(v, int) else np.asarray(np.nan if v is None else v, float) for k, v in row.items()}


class _Pace:
    """How many updates a call makes, from how long the last ones took; and a watchdog for one that does not return."""

    def __init__(self) -> None:
        self.times: list[float] = []  # seconds an update
        self.seconds = 0.0  # in all calls

    def updates(self) -> int:
        if not self.times:
            return 1  # the first result, as soon as it can be had
        return int(np.clip(SECONDS_PER_CALL / max(np.median(self.times), 1e-9), 1, MAX_UPDATES_PER_CALL))

    @contextlib.contextmanager
    def watch(self, count: int, done: int) -> Iterator[None]:
        limit = max(20 * float(np.median(self.times)) * count, WATCHDOG_SECONDS) if len(self.times) >= 3 else None
        timer = None if limit is None else threading.Timer(limit, self._late, (limit, count, done))
        begin = time.perf_counter()
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
        seconds = time.perf_counter() - begin
        self.seconds += seconds
        self.times = [*self.times[-50:], seconds / count]

    @staticmethod
    def _late(limit: float, count: int, done: int) -> None:
        import sys

        sys.stderr.write(
            f"jaxrl: updates {done} to {done + count} have taken {limit:.0f} s, 20 times the usual: the machine is "
            "overloaded, or the program hangs.\n"
        )


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, a second one interrupts at once. Outside the main thread Python delivers no signals."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@dataclasses.dataclass
class _Display:
    """The progress bar, and the clock behind it."""

    shown: bool
    updates: int
    start: int
    algo: Algorithm

    def __enter__(self) -> _Display:
        self.compile_seconds, self.run_seconds, self.at = 0.0, 0.0, self.start
        self.bar: Any = None
        if self.shown:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.table import Column

            def whole():  # in a narrow terminal the note wraps, not these
                return Column(no_wrap=True)

            self.bar = Progress(
                TextColumn("[bold]{task.description}", table_column=whole()),
                BarColumn(24),
                MofNCompleteColumn(table_column=whole()),
                TimeRemainingColumn(table_column=whole()),
                TextColumn("{task.fields[note]}", table_column=Column()),
            )
            self.bar.start()
            name = f"{self.algo.name} {self.algo.venv.env.id}"
            self.task = self.bar.add_task(name, total=self.updates, completed=self.start, note="")
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def compiling(self) -> None:
        self._note("compiling")

    def compiled(self, seconds: float) -> None:
        self.compile_seconds = seconds
        self._note(f"compiled in {seconds:.1f} s")

    def advanced(self, done: int, history: _History, problems: dict[int, str], seconds: float) -> None:
        self.run_seconds, self.at = seconds, done
        note = f"{self.steps_per_second() / 1e3:,.0f}k steps/s, compiled in {self.compile_seconds:.1f} s"
        if history.recent_return is not None:
            returns = np.atleast_1d(history.recent_return)
            spread = f" ± {np.nanstd(returns):.1f} ({returns.size} seeds)" if returns.size > 1 else ""
            note = f"return {np.nanmean(returns):.1f}{spread}, {note}"
        if problems:
            note += f", {len(problems)} diverged"
        self._note(note, done)

    def message(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text)

    def _note(self, note: str, done: int | None = None) -> None:
        if self.bar is not None:
            self.bar.update(self.task, note=note, **({} if done is None else {"completed": done}))

    def steps_per_second(self) -> float:
        """Of one seed, without compilation."""
        return (self.at - self.start) * self.algo.steps_per_update / max(self.run_seconds, 1e-9)

    def times(self) -> dict[str, float]:
        return {
            "compile_seconds": self.compile_seconds,
            "run_seconds": self.run_seconds,
            "steps_per_second": self.steps_per_second(),
        }

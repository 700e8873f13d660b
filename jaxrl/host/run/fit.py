"""The host loop around a pure training program: logs, evaluation, checkpoints, exact resume.

`fit` calls one compiled program (`training_program`), a loop of a *traced* number of updates, so that no interval
changes the numbers: a run that was killed and resumed ends bit-identical to one that was not (same machine and
versions). What it logs is in `history`; how long a call takes, what is shown and how it is stopped in `progress`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, deployment, num_updates
from jaxrl.environment import NO_LIMIT
from jaxrl.evaluation import evaluate
from jaxrl.host.run import checkpoint
from jaxrl.host.run.history import History
from jaxrl.host.run.options import EvalOptions, Keywords, RunOptions, check, collected, counts, default_log_every
from jaxrl.host.run.processes import agree, of_all, on_primary, primary, require_seen
from jaxrl.host.run.progress import Display, Pace, interruptible
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, environment_of_run, write_json
from jaxrl.host.run.sharding import everywhere, independent, replicated
from jaxrl.host.run.training_program import Program

EVALUATION_SEED = 20_240_229  # evaluations draw from their own stream: the same episodes' luck for every run compared


class DivergenceError(RuntimeError):
    """NaN or infinity in the loss or the weights; the message says where and what was kept."""


class FitResult(NamedTuple):
    state: Any  # leading axis of seeds if there were several
    metrics: dict[str, np.ndarray]  # (rows,) or (rows, seeds), as logged
    evaluations: list[dict[str, Any]]  # as logged
    diverged: dict[int, str]  # seed -> what happened
    interrupted: bool
    signal: int = 0  # that interrupted it


def fit(
    algo: Algorithm,
    key: Array,
    total_steps: int,
    *,
    hyper: Any = None,
    env_params: Any = None,
    num_seeds: int | None = None,
    run: RunOptions | None = None,
    evaluation: EvalOptions | None = None,
    progress: bool = True,
    on_progress: Callable[[int, dict[str, Any]], None] | None = None,
    mesh: Mesh | None = None,
    **keywords: Unpack[Keywords],
) -> FitResult:
    """Train `algo` for `total_steps` environment steps a seed, from the host.

    Args:
        hyper: leaves are of the shapes of the default ones, or have a leading axis of seeds.
        num_seeds: train that many at once, as one program; None for a single run without the axis.
        run, evaluation: records that several calls share; a keyword changes a field of them.
        on_progress: called after each compiled call with the updates done and the last row.
        mesh: of devices, over which seeds and environments are spread; see `sharding.make_mesh`. Of several processes
            all call `fit` with the same arguments, the first writes the folder, and all must see it. A run may go on
            on another mesh.
        keywords: of `options.RunOptions` `out`, `resume`, `overwrite`, `checkpoint_every`, `keep`, `log_every`,
            `loggers`, `extra`; of `options.EvalOptions` `eval_every`, `eval_episodes`, `eval_env`, `eval_env_params`,
            `eval_max_steps`, `eval_greedy`. Nothing is evaluated without `eval_every`, nothing written without `out`.

    Raises:
        DivergenceError: a single run met NaN or infinity (of several seeds, the ones that did are frozen and reported).
        TypeError: a keyword that is none.
        RunFolderError, CheckpointError, ValueError: bad input, or another process writes `out`; before any training.
    """
    run, evaluation = collected(fit, run, evaluation, keywords)
    updates = _updates(algo, total_steps)
    check(num_seeds, run, evaluation)
    program = Program(algo, key, num_seeds, hyper, env_params, mesh)
    session = _Session(program, key, total_steps, updates, run, evaluation, progress)
    with contextlib.ExitStack() as held:
        history = session.open(held)
        display = Display(progress and primary(), updates, session.done, algo)
        with display, interruptible() as interrupted, history:
            display.compiling()
            display.compiled(session.program.compile(session.carry))
            pace = Pace()
            while session.done < updates:
                asked = of_all((interrupted.signal, pace.updates()))  # processes differ, and must do the same
                stop = bool(asked[:, 0].any())
                session.signal = int(asked[:, 0].max())
                if stop and session.done % session.log_every == 0:  # no row is cut in two
                    break
                problems = session.step(int(asked[0, 1]), stop, pace, display)
                display.advanced(session.done, history, problems, pace.seconds)
                if on_progress is not None:
                    on_progress(session.done, history.last)
            session.save()  # of what was interrupted
        return session.close(display)


def _updates(algo: Algorithm, total_steps: int) -> int:
    """How many updates make so many steps. Raises ValueError for more than are counted."""
    updates = num_updates(algo, total_steps)
    if updates > NO_LIMIT:
        raise ValueError(f"total_steps={total_steps}: that is {updates} updates; at most {NO_LIMIT} are counted.")
    if updates * algo.steps_per_update > NO_LIMIT:
        warnings.warn(
            f"total_steps={total_steps}: what a state counts in steps (schedules, warm-ups) stands still from "
            f"{NO_LIMIT} on; logged steps are right.",
            stacklevel=3,
        )
    return updates


class _Session:
    """One call of `fit`: its compiled program, how far that is, and what is kept of it.

    `open` takes the run folder and goes on from what is there, `step` makes the next updates, `save` keeps a
    checkpoint of them, `close` says how it ended.
    """

    def __init__(
        self,
        program: Program,
        key: Array,
        total_steps: int,
        updates: int,
        run: RunOptions,
        evaluation: EvalOptions,
        progress: bool,
    ) -> None:
        self.program, self.algo, self.num_seeds = program, program.algo, program.num_seeds
        self.total_steps, self.updates = total_steps, updates
        usual = default_log_every(updates, self.num_seeds)
        self.log_every = usual if run.log_every is None else run.log_every
        self.eval_gap = self._in_updates(evaluation.every, updates)
        self.save_gap = self._in_updates(run.checkpoint_every, max(updates // 10, 1))
        if evaluation.env is None and evaluation.env_params is None and _of_task(self.algo, program.env_params):
            evaluation = dataclasses.replace(evaluation, env_params=program.env_params)
        self.run, self.evaluation = run, evaluation
        self.evaluator = Evaluator(self.algo, self.num_seeds, evaluation, program.mesh)
        if evaluation.every is not None:
            self.evaluator.check(program.shapes()[0])
        self.identity = program.identity()
        self.settings = {**self.identity, "total_steps": total_steps, **environment_of_run()}
        self.settings |= {"eval_every": evaluation.every, "eval_episodes": evaluation.episodes}
        self.settings |= {"eval_policy": deployment(self.algo, evaluation.greedy), **(run.extra or {})}
        if run.out is not None and "recipe" not in self.settings:
            act = {None: None, True: "greedy", False: "sampled"}[evaluation.greedy]
            told = {
                **counts(self.num_seeds, run, evaluation),
                "total_steps": total_steps,
                "log": run.loggers,
                "key": _key_data(key),
            }
            told |= {"progress": progress, "eval_every": evaluation.every or 0, "act": act}
            self.settings |= _recipe(program, evaluation, told)
        self.folder = None if run.out is None else RunFolder(run.out)
        self.writer = self.folder if primary() else None

    def _in_updates(self, steps: int | None, default: int) -> int:
        wanted = default if steps is None else steps // self.algo.steps_per_update
        return max(1, round(wanted / self.log_every)) * self.log_every  # boundaries fall between rows

    def open(self, held: contextlib.ExitStack) -> History:
        """Take the folder, locked while `held`, and what is in it to go on from."""
        self.done, self.carry, self.signal = 0, None, 0
        agree(self._compared)
        if self.folder is not None:
            on_primary(functools.partial(self._take, self.folder, held))
            require_seen(self.folder.config)
            self._restore(self.folder)
        steps = self.algo.steps_per_update
        self.history = History(self.writer, self.run.loggers, self.settings, self.num_seeds, self.log_every, steps)
        self.carry: Any = self.program.start() if self.carry is None else self.carry
        self.saved = self.done if self.done else None
        return self.history

    def _compared(self) -> dict[str, Any]:
        """What all processes of a job must have been given alike."""
        out = None if self.run.out is None else os.path.abspath(self.run.out)
        mesh = None if self.program.mesh is None else dict(self.program.mesh.shape)
        evaluation = {"every": self.evaluation.every, "episodes": self.evaluation.episodes}
        recipe = dict((self.run.extra or {}).get("recipe") or {})
        told = {
            "total_steps": self.total_steps,
            "out": out,
            "mesh": mesh,
            "evaluation": {**evaluation, "max_steps": self.evaluation.max_steps, "greedy": self.evaluation.greedy},
            "gaps": [self.log_every, self.eval_gap, self.save_gap],
            "params": recipe.get("params"),
            "keep": self.run.keep,
            "resume": self.run.resume,
        }
        return {**told, "key": _key_data(self.program.keys), **self.identity}

    def _take(self, folder: RunFolder, held: contextlib.ExitStack) -> None:
        held.enter_context(folder.locked())
        folder.create(self.settings, resume=self.run.resume, overwrite=self.run.overwrite)

    def _restore(self, folder: RunFolder) -> None:
        """The newest whole checkpoint, where there is one to go on from, and the logs as they were then."""
        out, writer = self.run.out, self.writer
        there = of_all(max(checkpoint.steps(folder.checkpoints), default=0) if self.run.resume else 0)
        if len(set(there)) > 1:
            raise RunFolderError(f"{out}: the processes see different checkpoints; the folder must be one for all.")
        if there[0]:
            self.done, self.carry = checkpoint.restore(folder.checkpoints, self.program.shapes(), self.identity)
            kept = folder.read_config()
            if self.done > self.updates:
                at = self.done * self.algo.steps_per_update
                raise ValueError(f"total_steps={self.total_steps}: {out} is at step {at} already.")
            if writer is not None and kept.get("total_steps") != self.total_steps:  # the run is made longer
                write_json(folder.config, {**kept, "total_steps": self.total_steps, **(self.run.extra or {})})
        elif writer is not None:  # what is resumed before its first checkpoint may have been another run
            write_json(folder.config, self.settings)
        if writer is not None:
            writer.truncate(self.done)

    def step(self, most: int, stop: bool, pace: Pace, display: Display) -> dict[int, str]:
        """Make the updates to the next boundary, at most so many; what is to `stop` ends with a row. The seeds that
        diverged are returned. Raises DivergenceError where none is left.
        """
        gaps = (self.eval_gap, self.save_gap, self.log_every) if stop else (self.eval_gap, self.save_gap)
        first = self.done
        boundary = min(self.updates, *((first // gap + 1) * gap for gap in gaps))
        count = min(boundary - first, most)
        with pace.watch(count, first):
            self.carry, rows = self.program.call(self.carry, first, count)
            rows = {name: np.asarray(x)[:count] for name, x in rows.items()}
        self.done += count
        problems, last = self.program.diverged(self.carry), self.done == self.updates
        self.history.add(first, self.program.without_diverged(self.carry, first, rows), last=last)
        if problems and (self.num_seeds is None or len(problems) == self.num_seeds):
            display.message("; ".join(f"seed {seed}: {what}" for seed, what in problems.items()))
            saved = self.saved
            kept = f" The last good checkpoint is at update {saved}." if saved else " No checkpoint had been made."
            raise DivergenceError(next(iter(problems.values())) + "." + kept)
        if (self.done % self.eval_gap == 0 or last) and self.evaluation.every is not None:
            self.history.evaluated(self.done, self.evaluator(self.carry[0], self.done))
        if self.done % self.save_gap == 0 or last:
            self.save()
        return problems

    def save(self) -> None:
        """A checkpoint of what is done, where there is a folder and none yet."""
        if self.folder is not None and self.done and self.saved != self.done:
            checkpoint.save(self.folder.checkpoints, self.done, self.carry, self.identity, self.run.keep)
            self.saved = self.done

    def close(self, display: Display) -> FitResult:
        """The result, whose summary is written."""
        history, diverged = self.history, self.program.diverged(self.carry)
        interrupted = self.done < self.updates
        result = FitResult(self.carry[0], history.metrics(), history.evaluations, diverged, interrupted, self.signal)
        if self.writer is not None:
            of_run = {"updates": self.done, "steps": self.done * self.algo.steps_per_update}
            ended = {"diverged": diverged, "interrupted": interrupted}
            write_json(self.writer.summary, {**of_run, **display.times(), **history.summary(), **ended})
        return result


def _recipe(program: Program, evaluation: EvalOptions, run: dict[str, Any]) -> dict[str, Any]:
    """`recipe`, of which the command line builds the run again, or `no_recipe`, why it cannot."""
    from jaxrl.host.run.recipe_of import NoRecipeError, recipe_of

    try:
        if evaluation.env not in (None, program.algo.venv.env):
            raise NoRecipeError("it was evaluated on another environment.")
        if evaluation.env_params is not None and evaluation.env_params is not program.env_params:
            raise NoRecipeError("it was evaluated on other params than it was trained on.")
        return {"recipe": recipe_of(program.algo, program.hyper, program.env_params, run)}
    except NoRecipeError as error:
        return {"no_recipe": str(error)}


def _key_data(key: Array) -> dict[str, Any]:
    return {"impl": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()}


def _of_task(algo: Algorithm, env_params: Any) -> bool:
    """Whether params are some of the environment, one for all episodes."""

    def shapes(params):
        return jax.tree.structure(params), [np.shape(x) for x in jax.tree.leaves(params)]

    return env_params is not None and shapes(env_params) == shapes(algo.venv.env.default_params)


class Evaluator:
    """Full episodes of the current policies."""

    def __init__(
        self, algo: Algorithm, num_seeds: int | None, how: EvalOptions | None = None, mesh: Mesh | None = None
    ) -> None:
        how = EvalOptions() if how is None else how
        env = algo.venv.env if how.env is None else how.env
        env_params = env.default_params if how.env_params is None else how.env_params

        def one(state, key):
            policy = algo.policy(state)
            return evaluate(
                algo,
                policy,
                key,
                env,
                env_params,
                num_episodes=how.episodes,
                max_steps=how.max_steps,
                greedy=how.greedy,
            ).returns

        self.num_seeds, self.mesh = num_seeds, mesh
        returns = one if num_seeds is None else independent(one, mesh, (0, 0), 0)
        self.returns = jax.jit(returns, out_shardings=None if mesh is None else replicated(mesh))

    def keys(self, update: int) -> Array:
        key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), update)
        keys = key if self.num_seeds is None else jax.random.split(key, self.num_seeds)
        return everywhere(keys, self.mesh)

    def check(self, state: Any) -> None:
        """Trace it on the shapes of a state, so that what cannot be evaluated fails before the training."""
        jax.eval_shape(self.returns, state, self.keys(0))

    def __call__(self, state: Any, update: int) -> np.ndarray:
        return np.asarray(self.returns(state, self.keys(update)))

"""The host loop around a pure training program: logs, evaluation, checkpoints, exact resume.

`fit` calls one compiled program (`training_program`), a loop of a *traced* number of updates, so that no interval
changes the numbers: a run that was killed and resumed ends bit-identical to one that was not (same machine and
versions). What it logs is in `history`; how long a call takes and what is shown in `progress`; how it is stopped in
`interrupts`.
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
from jaxrl.host.run import checkpoint
from jaxrl.host.run.began import began, key_data
from jaxrl.host.run.evaluator import Evaluator, of_task
from jaxrl.host.run.history import History
from jaxrl.host.run.interrupts import interruptible
from jaxrl.host.run.loggers import words_of
from jaxrl.host.run.options import EvalOptions, Keywords, RunOptions, check, collected, counts, default_log_every
from jaxrl.host.run.processes import agree, of_all, on_primary, primary, require_seen
from jaxrl.host.run.progress import Display, Pace
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, environment_of_run, write_json
from jaxrl.host.run.start import Start
from jaxrl.host.run.training_program import Program


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
    start: Any = None,
    weights_only: bool = False,
    run: RunOptions | None = None,
    evaluation: EvalOptions | None = None,
    progress: bool = True,
    on_progress: Callable[[int, dict[str, Any], Any], None] | None = None,
    mesh: Mesh | None = None,
    **keywords: Unpack[Keywords],
) -> FitResult:
    """Train `algo` for `total_steps` environment steps a seed, from the host.

    Args:
        hyper: leaves are of the shapes of the default ones, or have a leading axis of seeds. None: those of `start`, or
            the default ones.
        num_seeds: train that many at once, as one program; None for a single run without the axis.
        start: a new run that begins from a state of `algo`, or from what `load` returned of another run: what was
            learned goes on, with these settings, in these environments, from step 0. With `num_seeds` one state is
            where all seeds begin. The folder's `config.json` says where it came from. See `host.run.start`.
        weights_only: of `start` take the networks, and the statistics that scale what goes in and out, alone.
        run, evaluation: records that several calls share; a keyword changes a field of them.
        on_progress: called after each compiled call with the updates done, the mean of the rows since the last call
            (the last row where none was completed, empty before the first) and the state. The next call overwrites the
            state's memory: copy what is to be kept.
        mesh: of devices, over which seeds and environments are spread; see `sharding.make_mesh`. Of several processes
            all call `fit` with the same arguments, the first writes the folder, and all must see it. A run may go on
            on another mesh.
        keywords: of `options.RunOptions` `out`, `resume`, `overwrite`, `checkpoint_every`, `keep`, `log_every`,
            `loggers`, `extra`; of `options.EvalOptions` `eval_every`, `eval_episodes`, `eval_env`, `eval_env_params`,
            `eval_max_steps`, `eval_greedy`. Nothing is evaluated without `eval_every`, nothing written without `out`.

    Raises:
        DivergenceError: a single run met NaN or infinity (of several seeds, the ones that did are frozen and reported).
        TypeError: a keyword that is none.
        RunFolderError, CheckpointError, ValueError: bad input, as a `start` of another algorithm or of other shapes, or
            another process writes `out`; before any training.
    """
    run, evaluation = collected(fit, run, evaluation, keywords)
    updates = _updates(algo, total_steps)
    check(num_seeds, run, evaluation)
    begin = None if start is None else Start(start, algo, num_seeds, weights_only, key)
    hyper = begin.hyper if begin is not None and hyper is None else hyper
    program = Program(algo, key, num_seeds, hyper, env_params, mesh)
    session = _Session(program, key, total_steps, updates, run, evaluation, progress, begin)
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
                    on_progress(session.done, history.recent(), session.carry[0])
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


ASKED = "asked"
"""The part of a checkpoint's description that says how its run was evaluated, logged and kept."""


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
        begin: Start | None,
    ) -> None:
        self.begin = begin
        self.program, self.algo, self.num_seeds = program, program.algo, program.num_seeds
        self.scores = _Scores(np.asarray(getattr(getattr(program.hyper, "curriculum", None), "min_fill", 0.0)))
        self.total_steps, self.updates = total_steps, updates
        usual = default_log_every(updates, self.num_seeds)
        self.log_every = usual if run.log_every is None else run.log_every
        self.eval_gap = self._in_updates(evaluation.every, updates)
        self.save_gap = self._in_updates(run.checkpoint_every, max(updates // 10, 1))
        if evaluation.env is None and evaluation.env_params is None and of_task(self.algo.venv.env, program.env_params):
            evaluation = dataclasses.replace(evaluation, env_params=program.env_params)
        self.run, self.evaluation = run, evaluation
        self.evaluator = Evaluator(self.algo, self.num_seeds, evaluation, program.mesh)
        if evaluation.every is not None:
            self.evaluator.check(program.shapes()[0])
        self.video_gap = None if run.video_every is None else self._rows(run.video_every)
        if begin is not None:
            begin.plan(program.shapes()[0], self.num_seeds)
        self.identity = program.identity()
        self.settings = {**self.identity, "total_steps": total_steps, **environment_of_run()}
        self.settings |= {} if begin is None else {"start": begin.told}
        self.settings |= {"eval_every": evaluation.every, "eval_episodes": evaluation.episodes}
        self.settings |= {"eval_policy": deployment(self.algo, evaluation.greedy), **(run.extra or {})}
        self.arrays: dict[str, np.ndarray] = {}
        if run.out is not None and "recipe" not in self.settings:
            act = {None: None, True: "greedy", False: "sampled"}[evaluation.greedy]
            told = {
                **counts(self.num_seeds, run, evaluation),
                "total_steps": total_steps,
                "log": words_of(run.loggers),
                "key": key_data(key),
            }
            told |= {"keep_best": run.keep_best, "progress": progress, "eval_every": evaluation.every or 0, "act": act}
            of_recipe, self.arrays = _recipe(program, evaluation, told)
            self.settings |= of_recipe
        self.began = began(program, self.settings.get("recipe"), key)
        self.folder = None if run.out is None else RunFolder(run.out)
        self.writer = self.folder if primary() else None

    def _in_updates(self, steps: int | None, default: int) -> int:
        wanted = default if steps is None else steps // self.algo.steps_per_update
        return self._rows(wanted)

    def _rows(self, wanted: int) -> int:
        return max(1, round(wanted / self.log_every)) * self.log_every  # boundaries fall between rows

    def open(self, held: contextlib.ExitStack) -> History:
        """Take the folder, locked while `held`, and what is in it to go on from."""
        self.done, self.signal = 0, 0
        self.carry: Any = None
        agree(self._compared)
        if self.folder is not None:
            on_primary(functools.partial(self._take, self.folder, held))
            require_seen(self.folder.config)
            self._restore(self.folder)
        self.saved = None if self.carry is None else self.done
        if self.carry is None and self.begin is None:
            self.carry = self.program.start()
        elif self.carry is None and self.begin is not None:
            self.carry = self.begin.carry(self.program)
            self.save()  # from here on the run needs nothing of what it began from
        steps = self.algo.steps_per_update
        self.history = History(self.writer, self.run.loggers, self.settings, self.num_seeds, self.log_every, steps)
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
        return {**told, "key": key_data(self.program.keys), **self.identity}

    def _take(self, folder: RunFolder, held: contextlib.ExitStack) -> None:
        origin = None if self.begin is None else self.begin.told.get("folder")
        if self.run.overwrite and origin is not None and os.path.realpath(origin) == os.path.realpath(folder.path):
            raise RunFolderError(f"{folder.path}: the run begins from what is in it; name another folder.")
        held.enter_context(folder.locked())
        folder.create(self.settings, resume=self.run.resume, overwrite=self.run.overwrite, arrays=self.arrays)

    def _restore(self, folder: RunFolder) -> None:
        """The newest whole checkpoint, where there is one to go on from, and the logs as they were then."""
        out, writer = self.run.out, self.writer
        there = of_all(max(checkpoint.steps(folder.checkpoints), default=-1) if self.run.resume else -1)
        if len(set(there)) > 1:
            raise RunFolderError(f"{out}: the processes see different checkpoints; the folder must be one for all.")
        if there[0] >= 0:
            self.done, self.carry = folder.restore(self.program, began=self.began)
            kept = folder.read_config()
            self._say_what_was_edited(folder)
            if self.done > self.updates:
                at = self.done * self.algo.steps_per_update
                raise ValueError(f"total_steps={self.total_steps}: {out} is at step {at} already.")
            if writer is not None and kept.get("total_steps") != self.total_steps:  # the run is made longer
                write_json(folder.config, {**kept, "total_steps": self.total_steps, **(self.run.extra or {})})
        elif writer is not None:  # what is resumed before its first checkpoint may have been another run
            folder.describe(self.settings, self.arrays)
        if writer is not None:
            writer.truncate(self.done, None if self.evaluation.every is None else self.eval_gap)
            checkpoint.drop_after(folder.best, self.done)

    @property
    def _asked(self) -> dict[str, Any]:
        """What evaluates, logs and keeps, and changes nothing of what is trained."""
        run, how = self.run, self.evaluation
        told = {name: getattr(run, name) for name in ("log_every", "checkpoint_every", "video_every", "keep")}
        told |= {"keep_best": run.keep_best, "log": words_of(run.loggers), "eval_every": how.every}
        return told | {"eval_episodes": how.episodes, "eval_max_steps": how.max_steps, "eval_greedy": how.greedy}

    def _description(self) -> dict[str, Any]:
        """Of a checkpoint: what makes its run the same run, and what was asked of it beside."""
        return self.identity | {checkpoint.BEGAN: {**self.began[checkpoint.BEGAN], ASKED: self._asked}}

    def _say_what_was_edited(self, folder: RunFolder) -> None:
        """Warn where a run that goes on by its config.json is evaluated, logged or kept otherwise than so far.

        Whoever calls `fit` says so in the call.
        """
        if self.writer is None or "recipe" not in (self.run.extra or {}):
            return
        before = checkpoint.told_by(folder.checkpoints, self.done).get(checkpoint.BEGAN, {}).get(ASKED)
        if before is not None and (differs := checkpoint.differences(before, self._asked)):
            warnings.warn(
                f"{folder.config} was edited: {'; '.join(differs)}. The run goes on as it says now.", stacklevel=2
            )

    def step(self, most: int, stop: bool, pace: Pace, display: Display) -> dict[int, str]:
        """Make the updates to the next boundary, at most so many; what is to `stop` ends with a row. The seeds that
        diverged are returned. Raises DivergenceError where none is left.
        """
        gaps = [self.eval_gap, self.save_gap, *filter(None, [self.video_gap]), *([self.log_every] if stop else ())]
        first = self.done
        boundary = min(self.updates, *((first // gap + 1) * gap for gap in gaps))
        count = min(boundary - first, most)
        with pace.watch(count, first):
            self.carry, rows = self.program.call(self.carry, first, count)
            rows = {name: np.asarray(x)[:count] for name, x in rows.items()}
        self.done += count
        problems, last = self.program.diverged(self.carry), self.done == self.updates
        rows = self.program.without_diverged(self.carry, first, rows)
        self.scores.look(rows, last)
        self.history.add(first, rows, last=last)
        if problems and (self.num_seeds is None or len(problems) == self.num_seeds):
            display.message("; ".join(f"seed {seed}: {what}" for seed, what in problems.items()))
            saved = self.saved
            kept = (
                f" The last good checkpoint is at update {saved}."
                if saved is not None
                else " No checkpoint had been made."
            )
            raise DivergenceError(next(iter(problems.values())) + "." + kept)
        if (self.done % self.eval_gap == 0 or last) and self.evaluation.every is not None:
            self._evaluate()
        if self.video_gap is not None and (self.done % self.video_gap == 0 or last):
            self._film()
        if self.done % self.save_gap == 0 or last:
            self.save()
        return problems

    def _evaluate(self) -> None:
        """Log an evaluation, and keep the checkpoint of the best one where that is asked for."""
        state = self.carry[0]
        gain = self.history.evaluated(
            self.done, self.evaluator(state, self.done), self.evaluator.on_levels(state, self.done)
        )
        if self.folder is not None and self.run.keep_best and of_all(gain > 0)[0]:
            # The one before stays, for a run that is killed now and goes on from an earlier checkpoint.
            checkpoint.save(self.folder.best, self.done, self.carry, self._description(), keep=2)

    def _film(self) -> None:
        """An episode of the first seed's policy, as `media/policy-<update>.gif`, and its archive, if it has one."""
        from jaxrl.host.render import film
        from jaxrl.host.run import archives

        if self.folder is None:
            return
        state = self.carry[0] if self.num_seeds is None else jax.tree.map(lambda x: x[0], self.carry[0])
        how, env, params = self.evaluation, self.evaluator.env, self.evaluator.env_params
        key, steps = jax.random.key(0), how.max_steps or 500
        shown = film(self.algo, self.algo.policy(state), key, env, params, max_steps=steps, greedy=how.greedy)
        self.folder.media.mkdir(parents=True, exist_ok=True)
        shown.save(path := self.folder.media / f"policy-{self.done}.gif")
        archives.drawn(self.algo, self.carry[0], self.num_seeds, self.folder.media / f"archive-{self.done}.png")
        self.history.filmed(self.done, path)

    def save(self) -> None:
        """A checkpoint of what is done, where there is a folder and none yet."""
        begun = self.done or self.begin is not None
        if self.folder is not None and begun and self.saved != self.done:
            checkpoint.save(self.folder.checkpoints, self.done, self.carry, self._description(), self.run.keep)
            self.saved = self.done

    def close(self, display: Display) -> FitResult:
        """The result, whose summary is written."""
        history, diverged = self.history, self.program.diverged(self.carry)
        interrupted = self.done < self.updates
        result = FitResult(self.carry[0], history.metrics(), history.evaluations, diverged, interrupted, self.signal)
        if self.writer is not None:
            of_run = {"updates": self.done, "steps": self.done * self.algo.steps_per_update}
            ended = {"diverged": diverged, "interrupted": interrupted}
            summary = {**of_run, **display.times(), **history.summary(), **ended}
            write_json(self.writer.summary, summary)
            history.ended(self.done, summary)
        return result


class _Scores:
    """Whether a curriculum has levels to choose among: warns once where its score is a number of none of them, or where
    levels have scores but the student has learned from none or the same few are drawn, so that the buffer never fills.
    """

    ENOUGH = 10  # updates in which levels were finished, and none had a score
    LONG = 1000  # updates in which the student learned from nothing
    FEW = 30  # updates in which the buffer did not grow, though there was room

    def __init__(self, min_fill: Any = 0.0) -> None:
        """Args: min_fill: the share of the curriculum's buffer below which it replays nothing."""
        self.without: Any = 0  # of each seed, such updates since the start; -1 once a level had a score
        self.told = False
        self.idle: Any = 0  # of each seed, updates since the start in which the student learned from nothing; or -1
        self.min_fill = min_fill
        self.most: Any = 0.0  # of each seed, the largest share of the buffer that was filled
        self.still: Any = 0  # of each seed, updates since it grew in which levels were finished

    def look(self, rows: dict[str, np.ndarray], last: bool) -> None:
        """Count the updates of `rows`; of the `last` ones, few are enough to warn."""
        if self.told or not {"learned", "level_score", "levels_finished"} <= rows.keys():  # no curriculum with a score
            return
        scored = np.isfinite(rows["level_score"]).any(0)
        finished = (rows["levels_finished"] > 0).sum(0)
        self.without = np.where(scored | (self.without < 0), -1, self.without + finished)
        if np.any(self.without >= (1 if last else self.ENOUGH)):
            self.told = True
            warnings.warn(
                f"In {int(np.max(self.without))} updates levels were finished and the curriculum's score was NaN or "
                "infinite for all of them: a level without a finite score never enters the curriculum's buffer and is "
                "never replayed, so that robust PLR learns from none. Look at the function given as score=.",
                stacklevel=4,
            )
        learned = rows["learned"].any(0)
        self.idle = np.where(learned | (self.idle < 0), -1, self.idle + len(rows["learned"]))
        if not self.told and "buffer_filled" in rows and np.any(self.idle >= (self.ENOUGH if last else self.LONG)):
            self.told = True
            filled = float(np.min(rows["buffer_filled"][-1]))
            warnings.warn(
                f"In {int(np.max(self.idle))} updates the student learned from nothing: the curriculum replays no "
                f"level before a share min_fill of its buffer is filled, and {filled:.2g} is. A level function that "
                "draws one level, or few, never fills a larger buffer: lower buffer_size or min_fill, or train without "
                "a curriculum.",
                stacklevel=4,
            )
        for filled, levels in zip(rows.get("buffer_filled", ()), rows["levels_finished"], strict=False):
            self.still = np.where(filled > self.most, 0, self.still + (levels > 0))
            self.most = np.maximum(filled, self.most)
        few = (self.most > 0) & (self.most < self.min_fill)
        few &= self.still >= (self.ENOUGH if last else self.FEW)
        if not self.told and np.any(few):
            self.told = True
            still, most = (np.broadcast_to(x, np.shape(few))[few] for x in (self.still, self.most))
            warnings.warn(
                f"In {int(np.max(still))} updates levels were finished and no new one came into the curriculum's "
                f"buffer, of which a share of {float(np.min(most)):.2g} is filled; below min_fill it replays nothing"
                f"{', and the student learned from nothing' if np.any(self.idle > 0) else ''}. "
                "A level function that draws one level, or few, leaves nothing to choose: lower buffer_size and "
                "min_fill, or train without a curriculum.",
                stacklevel=4,
            )


def _recipe(
    program: Program, evaluation: EvalOptions, run: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`recipe`, of which the command line builds the run again, or `no_recipe`, why it cannot; and its arrays."""
    from jaxrl.host.run.recipe_of import NoRecipeError, made_recipe_of, recipe_of

    given = program.algo, program.hyper, program.env_params, run
    of_task = evaluation.env in (None, program.algo.venv.env) and evaluation.levels is None
    try:
        if of_task and (evaluation.env_params is None or evaluation.env_params is program.env_params):
            with contextlib.suppress(NoRecipeError):
                return {"recipe": recipe_of(*given)}, {}
        recipe, arrays = made_recipe_of(*given, evaluation)
        return {"recipe": recipe}, arrays
    except NoRecipeError as error:
        return {"no_recipe": str(error)}, {}

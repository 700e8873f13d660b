"""The host loop around a pure training program: logs, evaluation, checkpoints, exact resume.

`fit` calls one compiled program (`training_program`), a loop of a *traced* number of updates, so that no interval
changes the numbers: a run that was killed and resumed ends bit-identical to one that was not (same machine and
versions). What it logs is in `history`; how long a call takes, what is shown and how it is stopped in `progress`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, deployment, num_updates
from jaxrl.environment import NO_LIMIT, Environment
from jaxrl.evaluation import evaluate
from jaxrl.host.run import checkpoint
from jaxrl.host.run.history import History
from jaxrl.host.run.processes import of_all, on_primary, primary
from jaxrl.host.run.progress import Display, Pace, interruptible
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, check_loggers, environment_of_run, write_json
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
    eval_greedy: bool | None = None,
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
    mesh: Mesh | None = None,
) -> FitResult:
    """Train `algo` for `total_steps` environment steps a seed, from the host.

    Args:
        hyper: leaves are of the shapes of the default ones, or have a leading axis of seeds.
        num_seeds: train that many at once, as one program; None for a single run without the axis.
        eval_every: steps between evaluations (and one at the end); None for none. Of `eval_episodes` full episodes of
            `eval_env` (default: the task) on `eval_env_params` (default: those of the training if they are the task's,
            not a distribution's, else its own), capped at `eval_max_steps`; greedy, sampled, or (None) as the algorithm
            is deployed.
        out: the run folder; None writes nothing. `docs/run_folder.md` describes it.
        checkpoint_every: steps between checkpoints; default a tenth of the run. `keep`: how many stay.
        log_every: updates averaged into one logged row; default makes about a thousand rows.
        loggers: "tensorboard", "wandb", beside the JSONL and CSV that are always written.
        resume: go on from the newest whole checkpoint in `out`, or start if there is none. A larger `total_steps` makes
            the run longer: its state is that of a run asked for so many from the start.
        overwrite: replace a run in `out`: the files that jaxrl wrote there, no others.
        on_progress: called after each compiled call with the updates done and the last row.
        extra: JSON values to keep in config.json.
        mesh: of devices, over which seeds and environments are spread; see `sharding.make_mesh`. Of several processes
            all call `fit` with the same arguments, the first writes the folder, and all must see it. A run may go on
            on another mesh.

    Raises:
        DivergenceError: a single run met NaN or infinity (of several seeds, the ones that did are frozen and reported).
        RunFolderError, CheckpointError, ValueError: bad input, or another process writes `out`; before any training.
    """
    updates = num_updates(algo, total_steps)
    if updates > NO_LIMIT:
        raise ValueError(f"total_steps={total_steps}: that is {updates} updates; at most {NO_LIMIT} are counted.")
    if updates * algo.steps_per_update > NO_LIMIT:
        warnings.warn(
            f"total_steps={total_steps}: what a state counts in steps (schedules, warm-ups) stands still from "
            f"{NO_LIMIT} on; logged steps are right.",
            stacklevel=2,
        )
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
    program = Program(algo, key, num_seeds, hyper, env_params, mesh)
    if eval_env is None and eval_env_params is None and _of_task(algo, env_params):
        eval_env_params = env_params
    evaluator = Evaluator(algo, num_seeds, eval_episodes, eval_env, eval_env_params, eval_max_steps, eval_greedy, mesh)
    if eval_every is not None:
        evaluator.check(program.shapes()[0])
    identity = program.identity()
    settings = {**identity, "total_steps": total_steps, **environment_of_run()}
    settings |= {"eval_every": eval_every, "eval_episodes": eval_episodes, "eval_policy": deployment(algo, eval_greedy)}
    settings |= extra or {}
    if out is not None and "recipe" not in settings:
        run = {**counts, "total_steps": total_steps, "log": loggers, "key": _key_data(key), "progress": progress}
        run |= {"eval_every": eval_every or 0, "act": {None: None, True: "greedy", False: "sampled"}[eval_greedy]}
        settings |= _recipe(program, eval_env, eval_env_params, run)
    folder = None if out is None else RunFolder(out)
    writer = folder if primary() else None
    with contextlib.ExitStack() as held:
        done, carry = 0, None
        if folder is not None:

            def take() -> None:
                held.enter_context(folder.locked())
                folder.create(settings, resume=resume, overwrite=overwrite)

            on_primary(take)
            there = of_all(max(checkpoint.steps(folder.checkpoints), default=0) if resume else 0)
            if len(set(there)) > 1:
                raise RunFolderError(f"{out}: the processes see different checkpoints; the folder must be one for all.")
            if there[0]:
                done, carry = checkpoint.restore(folder.checkpoints, program.shapes(), identity)
                kept = folder.read_config()
                if done > updates:
                    raise ValueError(
                        f"total_steps={total_steps}: {out} is at step {done * algo.steps_per_update} already."
                    )
                if writer is not None and kept.get("total_steps") != total_steps:  # the run is made longer
                    write_json(folder.config, {**kept, "total_steps": total_steps, **(extra or {})})
            elif writer is not None:  # what is resumed before its first checkpoint may have been another run
                write_json(folder.config, settings)
            if writer is not None:
                writer.truncate(done)
        history = History(writer, loggers, settings, num_seeds, log_every, algo.steps_per_update)
        carry = program.start() if carry is None else carry
        saved = done if done else None
        with Display(progress and primary(), updates, done, algo) as display, interruptible() as interrupted, history:
            display.compiling()
            display.compiled(program.compile(carry))
            pace = Pace()
            while done < updates:
                asked = of_all((interrupted.is_set(), pace.updates()))  # processes differ, and must do the same
                stop = asked[:, 0].any()
                if stop and done % log_every == 0:  # no row is cut in two
                    break
                gaps = (eval_gap, save_gap, log_every) if stop else (eval_gap, save_gap)
                boundary = min(updates, *((done // gap + 1) * gap for gap in gaps))
                count = min(boundary - done, int(asked[0, 1]))
                with pace.watch(count, done):
                    carry, rows = program.call(carry, done, count)
                    rows = {name: np.asarray(x)[:count] for name, x in rows.items()}
                done += count
                problems = program.diverged(carry)
                history.add(done - count, program.without_diverged(carry, done - count, rows), last=done == updates)
                if problems and (num_seeds is None or len(problems) == num_seeds):
                    display.message("; ".join(f"seed {seed}: {what}" for seed, what in problems.items()))
                    kept = (
                        f" The last good checkpoint is at update {saved}." if saved else " No checkpoint had been made."
                    )
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
        if writer is not None:
            ended = {"diverged": result.diverged, "interrupted": result.interrupted}
            steps = done * algo.steps_per_update
            write_json(
                writer.summary, {"updates": done, "steps": steps, **display.times(), **history.summary(), **ended}
            )
        return result


def _recipe(program: Program, eval_env: Any, eval_env_params: Any, run: dict[str, Any]) -> dict[str, Any]:
    """`recipe`, of which the command line builds the run again, or `no_recipe`, why it cannot."""
    from jaxrl.host.run.recipe import NoRecipeError, recipe_of

    try:
        if eval_env not in (None, program.algo.venv.env):
            raise NoRecipeError("it was evaluated on another environment.")
        if eval_env_params is not None and eval_env_params is not program.env_params:
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
        self,
        algo: Algorithm,
        num_seeds: int | None,
        episodes: int,
        env: Environment | None,
        env_params: Any,
        max_steps: int | None,
        greedy: bool | None,
        mesh: Mesh | None = None,
    ):
        env = algo.venv.env if env is None else env
        env_params = env.default_params if env_params is None else env_params

        def one(state, key):
            policy = algo.policy(state)
            return evaluate(
                algo, policy, key, env, env_params, num_episodes=episodes, max_steps=max_steps, greedy=greedy
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

"""Adversarially compounding complexity by editing levels: prioritised level replay whose levels also mutate.

Parker-Holder et al. (2022), "Evolving curricula with regret-based environment design" (arXiv:2203.01302), algorithm 1.
To the loop of robust PLR (`plr.py`, whose functions this file uses) it adds that each replay is followed by

    mutation       children of the levels replayed just now, `num_edits` edits each, are rolled out without learning
                   and enter the buffer where they score better than what is least useful there

so that simple levels, of which the level function should draw the simplest (mazes without walls), grow at the frontier
of what the student can do. Parents are all replayed levels (`parents="batch"`) or the `num_parents` of lowest (`easy`)
or highest score (`hard`) among them, as often as it takes. In parallel (minimax's ACCEL-par), a third of each batch is
new, a third mutated and a third replayed; only the latter is learned from.

Deviations are those of `plr.py`, and that easy and hard go by the scores in the buffer, so that a parent without a
finished episode has its score of before. Each slot's `extras` are its generation: mutations since a level of the level
function. Use:

    env = make("Maze-v0")[0].as_levels()
    student = ppo_rnn.make(vectorize(env, 32, batched_params=True), ppo_rnn.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, accel.make(level_fn, env.mutate))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxrl.algorithm import Algorithm
from jaxrl.algos.curricula import plr
from jaxrl.curriculum.level_buffer import LevelBuffer, buffer_init
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels
from jaxrl.curriculum.scores import max_mc
from jaxrl.curriculum.task import Task
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import pytree, strongly_typed
from jaxrl.vectorize import rows_where


@dataclasses.dataclass(frozen=True)
class Config(plr.Config):
    """Static settings."""

    num_edits: int = 20  # of each child; 20 in minimax, 5 in JaxUED
    parents: str = "batch"  # or "easy" or "hard"
    num_parents: int = 4  # of easy and hard

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_edits < 1 or self.num_parents < 1:
            raise ValueError(f"num_edits={self.num_edits}, num_parents={self.num_parents}: both must be at least 1.")
        if self.parents not in ("batch", "easy", "hard"):
            raise ValueError(f"parents={self.parents!r}: it is 'batch', 'easy' or 'hard'.")
        if self.parallel and self.parents != "batch":
            raise ValueError(f"parallel: parents={self.parents!r} would need scores before the rollout; use 'batch'.")


@pytree
class Hyper:
    """Dynamic settings, those of minimax for mazes."""

    replay_prob: jax.Array = 0.8  # of the batches that are no mutations; not read in parallel
    min_fill: jax.Array = 0.5  # share of the buffer that must be filled before any replay
    temperature: jax.Array = 0.3  # of the prioritisation
    staleness: jax.Array = 0.5  # weight of the levels' age


@pytree
class ACCELState:
    buffer: LevelBuffer
    params: Any  # of the level distribution
    hyper: Hyper
    drawn: jax.Array  # (C,) int32, how often the last batch has each slot's level; if any, the next is of its children


def parents_of(buffer: LevelBuffer, drawn: Int[Array, " C"], n: int, config: Config) -> Int[Array, " n"]:
    """The slots of the parents of n children: of the levels replayed last, `drawn` times each, those that
    `config.parents` says, in turn."""
    times = jnp.where(jnp.isfinite(buffer.score), drawn, 0)
    rank = {"batch": jnp.zeros_like(buffer.rank), "easy": -buffer.rank, "hard": buffer.rank}[config.parents]
    order = jnp.lexsort((rank, times == 0))  # the replayed first
    if config.parents != "batch":
        few = jnp.arange(times.shape[0]) < config.num_parents
        times = times.at[order].set(jnp.where(few, jnp.minimum(times[order], 1), 0))
    each = jnp.repeat(order, times[order], total_repeat_length=n)
    return each[jnp.arange(n) % jnp.maximum(times.sum(), 1)]


def make(
    level_fn: Callable[[Array, Any], Any],
    mutate_fn: Callable[[Array, Any], Any] | None,
    config: Config = Config(),
    hyper: Hyper | None = None,
    score: Callable[..., Array] = max_mc,
) -> Curriculum:
    """ACCEL over the levels that `level_fn(key, params)` draws and their edits, `mutate_fn(key, level)` each, by
    a score of `jaxrl.curriculum`.

    Raises ValueError for settings that cannot be and without a `mutate_fn`, and in `init` for one that makes something
    else than levels.
    """
    level_fn = drawing(level_fn)
    if not callable(mutate_fn):
        raise ValueError(
            f"accel: mutate_fn={mutate_fn!r} is no function (key, level) -> level. For an environment without "
            "`mutate`, write one, or use plr."
        )
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    plr.check_hyper(defaults)

    def init(key: Array, hyper: Hyper, params: Any) -> ACCELState:
        plr.check_hyper(hyper)
        params = strongly_typed(params)
        level = jax.eval_shape(level_fn, key, params)
        check_levels("accel: mutate_fn", jax.eval_shape(mutate_fn, key, level), level, "the level function's")
        buffer = buffer_init(level, config.buffer_size, jax.ShapeDtypeStruct((), jnp.int32))
        return ACCELState(buffer, params, hyper, jnp.zeros(config.buffer_size, jnp.int32))

    def edited(key: Array, level: Any) -> Any:
        keys = jax.random.split(key, config.num_edits)
        return jax.lax.scan(lambda level, key: (mutate_fn(key, level), None), level, keys)[0]

    def sample(key: Array, state: ACCELState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, ACCELState]:
        n = len(wanted)
        if config.parallel and n % 3:
            raise ValueError(f"parallel: a batch is new, mutated and replayed in equal parts; {n} is no multiple of 3.")
        key, level_key, edit_key = jax.random.split(key, 3)
        new = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, n), state.params)
        part, replayed = n // 3 if config.parallel else n, state.drawn.any()
        batch, buffer = plr.choose(key, state.buffer, new, wanted, state.hyper, config, part, ~replayed)
        if config.parallel:
            parents = jnp.full(n, -1).at[part : 2 * part].set(batch.slot[2 * part :])
        else:
            parents = jnp.where(replayed, parents_of(state.buffer, state.drawn, n, config), -1)
        # Others are edited in vain, but as the levels they are: an edit of an empty slot might never find an end.
        is_child = parents >= 0
        levels = rows_where(is_child, jax.tree.map(lambda x: x[parents], buffer.levels), batch.params)
        children = jax.vmap(edited)(jax.random.split(edit_key, n), levels)
        params = rows_where(is_child, children, levels)
        drawn = jnp.zeros_like(state.drawn)
        if not config.parallel:
            drawn = drawn.at[jnp.where(wanted & (batch.slot >= 0), batch.slot, len(drawn))].add(1, mode="drop")
        generation = jnp.where(batch.slot >= 0, buffer.extras[batch.slot], 0)
        generation = jnp.where(is_child, buffer.extras[parents] + 1, generation)
        batch = batch._replace(params=params, parent=parents, note=generation)
        return batch, state.replace(buffer=buffer, drawn=drawn)

    def update(key: Array, state: ACCELState, batch: LevelBatch, outcomes: Outcomes) -> ACCELState:
        return state.replace(buffer=plr.learned(state.buffer, batch, outcomes, state.hyper, config, batch.note))

    def metrics(state: ACCELState) -> dict[str, Array]:
        filled = jnp.isfinite(state.buffer.score)
        generations = jnp.where(filled, state.buffer.extras, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {**plr.report(state), "generation": generations}

    settings = (level_fn, mutate_fn, config)
    return Curriculum(init, sample, update, "accel", settings, defaults, score, metrics, whole_batches=True)


def for_task(task: Task, config: Config, hyper: Hyper, score: Callable[..., Array] = max_mc) -> Algorithm:
    """`--curriculum accel`: the edits are the environment's own."""
    return task.attach(
        make(task.level_fn, None if task.env.levels is None else task.env.levels.mutate, config, hyper, score)
    )

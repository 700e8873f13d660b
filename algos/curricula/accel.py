"""ACCEL, compounding complexity by editing levels: robust PLR (`plr.py`) that also mutates replayed levels.

Parker-Holder et al. (2022), "Evolving curricula with regret-based environment design" (arXiv:2203.01302), algorithm 1.
This file uses the functions `choose`, `updated`, `report` and `check_hyper` of `plr.py`. The order is

    sample   after a batch that was replayed: its levels are the parents, and each child is a parent after `num_edits`
             edits by `mutate_fn`; the student does not learn from children
             else, as PLR: levels replayed from the buffer, from which the student learns, or new levels of `level_fn`,
             from which it does not
    score    by `score` of the student's rollout on the level (`jaxrl.curriculum.scores`)
    update   as PLR: a replayed level gets its new score; a new level or a child enters the buffer if it scores higher
             than the least useful level there

`level_fn` should draw the simplest levels (mazes without walls); edits of them grow at the frontier of what the student
can do. Parents are all levels replayed last (`parents="batch"`), or the `num_parents` of lowest (`easy`) or highest
score (`hard`) among them, repeated until the batch is full. With `parallel` (ACCEL-par of minimax), a
third of each batch is new, a third is mutated and a third is replayed, and only the latter is learned from. With
`robust=False` the student learns from all levels.

The buffer's `extras` are each level's generation: how many mutations separate it from a level of `level_fn`.

Deviations: those of `plr.py`. `easy` and `hard` go by the scores in the buffer, so a parent without a finished episode
has the score that it had before. Usage:

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

from jaxrl.algos.curricula import plr
from jaxrl.calls import recorded
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.level_buffer import LevelBuffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels
from jaxrl.curriculum.scores import max_mc
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import pytree, strongly_typed
from jaxrl.vector_env import rows_where


@dataclasses.dataclass(frozen=True)
class Config(plr.Config):
    """Static settings."""

    num_edits: int = 20  # edits that make a child of its parent; 20 in minimax, 5 in JaxUED
    parents: str = "batch"  # all levels replayed last; or "easy" or "hard", those of lowest or highest score
    num_parents: int = 4  # how many these are; not read with "batch"

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

    replay_prob: jax.Array = 0.8  # probability that a batch without children is replayed; not read with Config.parallel
    min_fill: jax.Array = 0.5  # share of the buffer that must be filled before any replay
    temperature: jax.Array = 0.3  # of the prioritisation: the lower, the more the best scores are replayed
    staleness: jax.Array = 0.5  # weight of the levels' age in the probability of replay


@pytree
class ACCELState:
    buffer: LevelBuffer
    params: Any  # of the level distribution
    hyper: Hyper
    drawn: jax.Array  # (C,) int32, how often the last batch replayed each level; the next batch is of their children


def parents_of(buffer: LevelBuffer, drawn: Int[Array, " C"], n: int, config: Config) -> Int[Array, " n"]:
    """The buffer's slots of the parents of n children.

    They are the levels that were replayed last, `drawn` times each, or those among them that `config.parents` names,
    one after another and again from the first until there are n.
    """
    times = jnp.where(jnp.isfinite(buffer.score), drawn, 0)
    rank = {"batch": jnp.zeros_like(buffer.rank), "easy": -buffer.rank, "hard": buffer.rank}[config.parents]
    order = jnp.lexsort((rank, times == 0))  # replayed levels first, by rank
    if config.parents != "batch":
        few = jnp.arange(times.shape[0]) < config.num_parents
        times = times.at[order].set(jnp.where(few, jnp.minimum(times[order], 1), 0))
    each = jnp.repeat(order, times[order], total_repeat_length=n)
    return each[jnp.arange(n) % jnp.maximum(times.sum(), 1)]


@recorded
def make(
    level_fn: Callable[[Array, Any], Any],
    mutate_fn: Callable[[Array, Any], Any] | None,
    config: Config = Config(),
    hyper: Hyper | None = None,
    score: Callable[..., Array] = max_mc,
) -> Curriculum:
    """ACCEL over the levels that `level_fn(key, params)` draws and their mutations.

    Args:
        mutate_fn: `(key, level) -> level`, one edit.
        score: `(rollout, batch, outcomes, hyper) -> (N,)`, one of `jaxrl.curriculum.scores` or your own.

    Raises ValueError for settings out of range and without a `mutate_fn`, and in `init` for a `mutate_fn` whose result
    is no level.
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
        buffer = level_buffer.init(level, config.buffer_size, jax.ShapeDtypeStruct((), jnp.int32))
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
        # All rows are edited, and the result is kept for children only. The other rows edit their own level, because
        # `mutate_fn` of the zeros in an empty slot might never terminate.
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
        return state.replace(buffer=plr.updated(state.buffer, batch, outcomes, state.hyper, config, batch.note))

    def metrics(state: ACCELState) -> dict[str, Array]:
        filled = jnp.isfinite(state.buffer.score)
        generations = jnp.where(filled, state.buffer.extras, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {**plr.report(state), "generation": generations}

    settings = (level_fn, mutate_fn, config)
    return Curriculum(init, sample, update, "accel", settings, defaults, score, metrics, whole_batches=True)

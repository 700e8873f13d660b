"""Reverse curricula: starts grow from the goal, by short random walks, as the student learns to reach it.

Florensa, Held, Wulfmeier, Zhang and Abbeel (2017), "Reverse curriculum generation for reinforcement learning"
(arXiv:1707.05300), algorithms 1 and 2. For tasks with a sparse reward of which a state at the goal is known. A level is
a start: a state in which episodes begin, as params of a `FromStates` environment. The initial good starts are the
states at the goal.

    sample   with probability `old_share`: a start that was good once
             else: a new start, which is the end of a random walk of up to `walk_steps` steps from a good start
             each start is played in `repeats` slots; a share `own_share` of the slots starts as the environment does
             instead, and counts for no start
    score    the share of a start's episodes that succeed
    update   the good starts become those of the batch whose score is in [low, high]; if there are none, those mastered
             (above `high`), so that the frontier moves on; if there are none of these either, they stay as they were

Success is a positive return, unless `attach` is given another threshold.

Deviations: actions of the walk are uniform in the action space, which need not be continuous. Walks begin in good
starts and not also in states of other walks. A walk that would end an episode stays in the previous state. `own_share`
and the rules without a good start are not in the paper. Usage:

    starts = FromStates(env)
    student = ppo.make(vectorize(starts, 64, batched_params=True), ppo.Config(num_envs=64))
    teacher = reverse_curriculum.make(starts, goal_states)  # leading axis G
    algo = jaxrl.curriculum.attach(student, teacher)
    state, metrics = jaxrl.train(algo, key, 200_000)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import check_at_least_one
from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, digest, new_levels
from jaxrl.environment import NO_LIMIT, Environment, is_concrete, pytree, strongly_typed
from jaxrl.vector_env import rows_where
from jaxrl.wrappers import FromStates, StartParams


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    capacity: int = 256  # good starts of a batch that are kept
    history: int = 2048  # starts that were good once that are kept
    walk_steps: int = 50  # longest random walk
    repeats: int = 4  # slots that share a start, for a better estimate of its success

    def __post_init__(self) -> None:
        check_at_least_one(self, "capacity", "history", "walk_steps", "repeats")


@pytree
class Hyper:
    """Dynamic settings."""

    low: jax.Array = 0.1  # a start is good from this share of successful episodes
    high: jax.Array = 0.9  # to this one
    old_share: jax.Array = 1 / 3  # probability that a start is one that was good once
    own_share: jax.Array = 0.0  # probability that a slot starts as the environment does
    limit: jax.Array = NO_LIMIT  # steps after which an episode from a start is truncated


@pytree
class Starts:
    """A ring buffer of the latest C states."""

    states: Any  # leading axis C
    count: jax.Array  # int32, states ever added

    @property
    def size(self) -> Int[Array, ""]:
        """How many states it holds."""
        return jnp.minimum(self.count, len(jax.tree.leaves(self.states)[0]))


@pytree
class State:
    good: Starts  # good starts of the last batch that had any
    old: Starts  # good starts of all batches
    params: StartParams  # of the level distribution
    hyper: Hyper


def walked(key: Array, env: Environment, states: Any, params: Any, walk_steps: int) -> Any:
    """The ends of random walks of 1 to `walk_steps` steps, one from each of `states` (leading axis n)."""
    n = len(jax.tree.leaves(states)[0])
    length_key, walk_key = jax.random.split(key)
    length = jax.random.randint(length_key, (n,), 1, walk_steps + 1)
    space = env.action_space(params)

    def step(states, inputs):
        i, key = inputs
        action_key, env_key = jax.random.split(key)
        action = jax.vmap(space.sample)(jax.random.split(action_key, n))
        ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(env_key, n), states, action, params)
        on = (i < length) & ~(ts.terminated | ts.truncated)
        # The clock does not advance: else starts, each at the end of many walks, would come close to the time limit.
        after = ts.state.replace(time=states.time)
        return rows_where(on, after, states), None

    keys = jax.random.split(walk_key, walk_steps)
    return jax.lax.scan(step, states, (jnp.arange(walk_steps), keys))[0]


def kept(
    success: Float[Array, " n"], known: Bool[Array, " n"], low: Array | float, high: Array | float
) -> Bool[Array, " n"]:
    """Which starts of a batch become the good ones: those with low <= success <= high, or else those above high.

    A start is `known` if an episode on it has finished; others are never good.
    """
    good = known & (success >= low) & (success <= high)
    return jnp.where(good.any(), good, known & (success > high))


def _rows(key: Array, starts: Starts, n: int) -> Any:
    """n of the starts, drawn uniformly."""
    i = jax.random.randint(key, (n,), 0, jnp.maximum(starts.size, 1))
    return jax.tree.map(lambda x: x[i], starts.states)


def _added(starts: Starts, states: Any, mask: Bool[Array, " n"]) -> Starts:
    """The starts with the states of `mask` added, in place of the oldest where there is no room."""
    C = len(jax.tree.leaves(starts.states)[0])
    rank, more = jnp.cumsum(mask) - 1, mask.sum(dtype=jnp.int32)
    written = mask & (rank >= more - C)
    rows = jnp.where(written, (starts.count + rank) % C, C)  # past the end: dropped
    states = jax.tree.map(lambda old, new: old.at[rows].set(new, mode="drop"), starts.states, states)
    return Starts(states, starts.count + more)


@recorded
def make(env: Environment, goal_states: Any, config: Config = Config(), hyper: Hyper | None = None) -> Curriculum:
    """A reverse curriculum of starts of `env`, from the `goal_states` (leading axis G).

    Raises ValueError for an environment that is not `FromStates`, for states that are not of the environment, and for
    settings out of range.
    """
    if not isinstance(env, FromStates):
        raise ValueError(f"reverse_curriculum: {env.id} must be wrapped, FromStates(env), to start anywhere.")
    goal_states = strongly_typed(goal_states)
    if is_concrete(goal_states):
        env.validate(env.starting(env.env.default_params, goal_states))
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)
    G, R = len(jax.tree.leaves(goal_states)[0]), config.repeats

    def empty(capacity: int) -> Starts:
        i = jnp.arange(capacity) % G
        return Starts(jax.tree.map(lambda x: x[i], goal_states), jnp.int32(0))

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper)
        if not isinstance(params, StartParams):
            raise ValueError(f"reverse_curriculum: {type(params).__name__} are no params of a FromStates environment.")
        good = empty(config.capacity)
        return State(good.replace(count=jnp.int32(G)), empty(config.history), strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        if n % R:
            raise ValueError(f"repeats={R}: {n} slots are no multiple of it.")
        good_key, walk_key, old_key, which_key, own_key = jax.random.split(key, 5)
        hyper, params, m = state.hyper, state.params.env, n // R
        new = walked(walk_key, env.env, _rows(good_key, state.good, m), params, config.walk_steps)
        old = jax.random.bernoulli(which_key, hyper.old_share, (m,)) & (state.old.count > 0)
        states = rows_where(old, _rows(old_key, state.old, m), new)
        own = jax.random.bernoulli(own_key, hyper.own_share, (n,))
        level = StartParams(
            env=jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), params),
            states=jax.tree.map(lambda x: jnp.repeat(x, R, 0)[:, None], states),
            weights=jnp.ones((n, 1)),
            share=1 - own.astype(jnp.result_type(float)),
            limit=jnp.broadcast_to(hyper.limit, (n,)),
        )
        return new_levels(level), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        episodes = jnp.where(batch.params.share > 0, outcomes.episodes, 0).reshape(-1, R)
        known = episodes.sum(1)
        success = jnp.sum(outcomes.success.reshape(-1, R) * episodes, 1) / jnp.maximum(known, 1)
        good = kept(success, known > 0, state.hyper.low, state.hyper.high)
        states = jax.tree.map(lambda x: x[::R, 0], batch.params.states)
        next_good = _added(state.good.replace(count=jnp.int32(0)), states, good)
        next_good = jax.tree.map(lambda x, y: jnp.where(good.any(), x, y), next_good, state.good)
        return state.replace(good=next_good, old=_added(state.old, states, good))

    def metrics(state: State) -> dict[str, Array]:
        return {"good_starts": state.good.count, "old_starts": state.old.count}

    settings = env, digest(goal_states), config
    return Curriculum(
        init, sample, update, "reverse_curriculum", settings, defaults, metrics=metrics, whole_batches=True
    )


def _check(hyper: Hyper) -> None:
    if not is_concrete(hyper):
        return
    low, high = np.asarray(hyper.low), np.asarray(hyper.high)
    if not np.all((low >= 0) & (low <= high) & (high <= 1)):
        raise ValueError(f"low={low} and high={high}: shares of successes, 0 <= low <= high <= 1.")
    for name in ("old_share", "own_share"):
        share = np.asarray(getattr(hyper, name))
        if not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"{name}={share}: it must be in [0, 1].")
    if np.any(np.asarray(hyper.limit) < 1):
        raise ValueError(f"limit={hyper.limit}: it must be at least 1.")

"""SnapshotRL: early episodes start in states that a trained policy, the teacher, has visited.

Zhao, Qian, Wang, Shan and Qin (2024), "Snapshot reinforcement learning: leveraging prior trajectories for efficiency"
(arXiv:2403.00673), with its baseline S3RL. Before training (`take`):

    1. the teacher plays `num_episodes` episodes, of which the `keep` of highest return count
    2. a snapshot is a state of these episodes, one every `every` steps
    3. snapshots are clustered by their value to the teacher, by 1-D k-means

In the first part of the training an episode starts in a snapshot: a cluster is drawn uniformly, then a snapshot of it
uniformly. Such an episode is truncated after `limit` steps (and bootstrapped, as every truncation). After that part
episodes start as the environment does.

A snapshot is a row of the table of states in the params of a `FromStates` environment, and the two draws are the
weights of its rows, so neither environments nor learners need to know of snapshots. There are two ways to train on
them:

    staged    any student, off-policy ones too: each reset draws a start; an Algorithm around the student
    make      a `Curriculum`, in which each slot keeps one start for a rollout:
                  sample   starts by their weights, for the first `hyper.batches` rollouts
                  update   nothing

Deviations: without a `value` function, the value of a snapshot is the teacher's discounted return from there on (the
paper takes the teacher's critic). Clusters are optimal, by dynamic programming, and not those of Lloyd's iterations.
The replay buffer is kept when the first part ends, as is the paper's default. Usage:

    starts = FromStates(env)
    table = snapshot.take(key, teacher, policy, env, env_params, snapshot.Config(max_steps=200))
    student = snapshot.staged(ppo.make(starts, config), snapshot_steps=50_000)
    state, metrics = jaxrl.train(student, key, 200_000, env_params=snapshot.params_of(starts, env_params, table))
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, check_at_least_one
from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, digest, new_levels
from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.exact.mdp import draw
from jaxrl.nesting import OuterState, around
from jaxrl.wrappers import FromStates, StartParams


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings of `take`."""

    num_episodes: int = 10  # episodes of the teacher
    keep: int = 10  # how many of them count, those of highest return
    every: int = 10  # steps from one snapshot to the next
    max_steps: int = 1000  # of an episode, after which it is cut
    clusters: int = 6  # of the snapshots, by value
    greedy: bool = True  # the teacher acts by its mode

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_episodes", "keep", "every", "max_steps", "clusters")
        if self.keep > self.num_episodes:
            raise ValueError(f"keep={self.keep}: there are num_episodes={self.num_episodes} to keep from.")
        if (snapshots := self.num_episodes * -(-self.max_steps // self.every)) > 10_000:
            raise ValueError(
                f"num_episodes={self.num_episodes}, max_steps={self.max_steps}, every={self.every} make {snapshots} "
                "snapshots; their clustering, which compares each with each, takes 10000 at most."
            )


@pytree
class Hyper:
    """Dynamic settings of the curriculum."""

    batches: jax.Array = 50.0  # rollouts, from the first, whose episodes start in snapshots
    limit: jax.Array = 100.0  # steps after which such an episode is truncated


class Snapshots(NamedTuple):
    """K states and the probability of each to be drawn. States of probability 0 are padding, no snapshots."""

    states: Any  # leading axis K
    value: Float[Array, " K"]  # by the teacher
    cluster: Int[Array, " K"]  # number of the cluster, ascending in value
    weights: Float[Array, " K"]  # probabilities, sum 1


@pytree
class State:
    table: Snapshots
    params: StartParams  # of the level distribution
    batches: jax.Array  # int32, how many were drawn
    hyper: Hyper


def clusters(values: Float[Array, " K"], valid: Bool[Array, " K"], k: int) -> Int[Array, " K"]:
    """Labels 0 .. k-1, ascending in value, of the k-means clustering with the least squared error.

    Values that are not valid do not count, and their labels mean nothing.

    In one dimension clusters are intervals of the sorted values. Dynamic programming over k clusters finds for every
    end the best begin of the last interval (Wang and Song 2011). With fewer values than k some clusters stay empty.
    """
    n = len(values)
    scale = jnp.maximum(jnp.max(jnp.where(valid, jnp.abs(values), 0)), 1e-30)
    order = jnp.argsort(jnp.where(valid, values, jnp.inf))
    weight = valid[order].astype(values.dtype)
    x = jnp.where(valid, values / scale, 0)[order]
    x = (x - jnp.sum(x * weight) / jnp.maximum(weight.sum(), 1)) * weight

    def before(y):
        return jnp.concatenate([jnp.zeros(1), jnp.cumsum(y)])

    w, s, square = (b[None, :] - b[:, None] for b in (before(weight), before(x), before(x * x)))
    cost = square - s * s / jnp.maximum(w, 1)  # squared error of one cluster, [from, to)
    cost = jnp.where(jnp.tri(n + 1, dtype=bool).T, jnp.maximum(cost, 0), jnp.inf)

    def add(best, _):
        total = best[:, None] + cost
        return jnp.min(total, 0), jnp.argmin(total, 0)

    none = jnp.full(n + 1, jnp.inf).at[0].set(0)
    _, begin = jax.lax.scan(add, none, length=k)

    def back(end, begin):
        return begin[end], begin[end]

    _, first = jax.lax.scan(back, jnp.int32(n), begin, reverse=True)
    label = jnp.sum(jnp.arange(n)[:, None] >= first, 1) - 1
    return jnp.zeros(n, label.dtype).at[order].set(label)


def uniform_in_clusters(cluster: Int[Array, " K"], valid: Bool[Array, " K"], k: int) -> Float[Array, " K"]:
    """The probability of each valid row when a cluster that is not empty is drawn first, and then a row of it."""
    size = jnp.zeros(k).at[cluster].add(valid)
    return jnp.where(valid, 1 / (jnp.maximum(size[cluster], 1) * jnp.sum(size > 0)), 0)


def take(
    key: Array,
    teacher: Algorithm,
    policy: Any,
    env: Environment,
    env_params: Any,
    config: Config = Config(),
    value: Callable[[Any], Array] | None = None,
    gamma: float | Float[Array, ""] = 0.99,
) -> Snapshots:
    """Snapshots of a teacher's episodes. Pure: jit it.

    Args:
        value: the value to the teacher of K observations (leading axis K), (K,). None: the discounted return from
            there on in the episode.
        gamma: discount of that return.
    """
    E, T = config.num_episodes, -(-config.max_steps // config.every)
    reset_key, run_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, E), env_params)

    def step(carried, key):
        obs, state, carry, on = carried
        act_key, env_key = jax.random.split(key)
        action, carry = teacher.act(policy, act_key, obs, carry, greedy=config.greedy)
        ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(env_key, E), state, action, env_params)
        return (ts.obs, ts.state, carry, on & ~(ts.terminated | ts.truncated)), jnp.where(on, ts.reward, 0)

    def discounted(later, reward):
        return (now := reward + gamma * later), now

    def stretch(carried, keys):
        """`every` steps, and the state at their begin."""
        after, reward = jax.lax.scan(step, carried, keys)
        return after, (carried[0], carried[1], carried[3], reward)

    start = obs, state, teacher.initial_carry((E,)), jnp.ones(E, bool)
    _, (obs, states, on, reward) = jax.lax.scan(stretch, start, jax.random.split(run_key, (T, config.every)))
    reward = reward.reshape(T * config.every, E)
    _, return_from_here = jax.lax.scan(discounted, jnp.zeros(E), reward, reverse=True)
    kept = jnp.zeros(E, bool).at[jax.lax.top_k(reward.sum(0), config.keep)[1]].set(True)
    valid = (on & kept).reshape(-1)
    obs, states = jax.tree.map(lambda x: x.reshape(T * E, *x.shape[2:]), (obs, states))
    values = return_from_here[:: config.every].reshape(-1) if value is None else value(obs)
    cluster = clusters(values, valid, config.clusters)
    return Snapshots(states, values, cluster, uniform_in_clusters(cluster, valid, config.clusters))


def params_of(starts: FromStates, env_params: Any, table: Snapshots, limit: int = 100) -> StartParams:
    """Params of the `FromStates` environment with which each reset starts in a snapshot."""
    return starts.starting(env_params, table.states, table.weights, limit=limit)


@pytree
class StagedState(OuterState):
    """The state of a student under `staged`."""

    inner: Any  # the student's state


@functools.cache
@recorded
def staged(student: Algorithm, snapshot_steps: int) -> Algorithm:
    """An Algorithm: `student`, whose episodes start in snapshots before environment step `snapshot_steps`.

    Until then a reset starts in a snapshot with the probability `share` of its params, afterwards never. An episode
    that is running at the change continues without the limit. Raises ValueError for an environment that is not
    `FromStates`, and in `init` for params of `share` 0.
    """
    if not isinstance(student.venv.env, FromStates):
        raise ValueError(f"snapshot: {student.venv.env.id} must be wrapped, FromStates(env), for starts in snapshots.")
    if snapshot_steps < 1:
        raise ValueError(f"snapshot_steps={snapshot_steps}: it must be at least 1.")

    def init(key, hyper=None, env_params=None):
        if env_params is None or (is_concrete(env_params) and not np.all(np.asarray(env_params.share) > 0)):
            raise ValueError("snapshot: env_params start nothing from a snapshot; give those of `params_of`.")
        return StagedState(student.init(key, hyper, env_params))

    def collect(state):
        student_state = state.inner
        share = jnp.where(student_state.step < snapshot_steps, student_state.env_params.share, 0)
        now = student_state.replace(env_params=student_state.env_params.replace(share=share))
        inner, rollout = student.collect(now)
        return state.replace(inner=inner), rollout

    def learn(state, rollout):
        inner, metrics = student.learn(state.inner, rollout)
        return state.replace(inner=inner), metrics

    return around(student, "snapshots", (snapshot_steps,), init=init, collect=collect, learn=learn)


@recorded
def make(table: Snapshots, hyper: Hyper | None = None) -> Curriculum:
    """Snapshots as a `Curriculum`, for `FromStates` environments. Raises ValueError for settings out of range."""
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper)
        if not isinstance(params, StartParams):
            raise ValueError(f"snapshot: {type(params).__name__} are no params of a FromStates environment.")
        return State(table, strongly_typed(params), jnp.int32(0), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        i = jax.vmap(draw, (0, None))(jax.random.uniform(key, (n,)), state.table.weights)
        level = StartParams(
            env=jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), state.params.env),
            states=jax.tree.map(lambda x: x[i][:, None], state.table.states),
            weights=jnp.ones((n, 1)),
            share=jnp.full(n, state.batches < state.hyper.batches, jnp.result_type(float)),
            limit=jnp.full(n, state.hyper.limit, jnp.int32),
        )
        return new_levels(level), state.replace(batches=state.batches + 1)

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        return state

    return Curriculum(init, sample, update, "snapshot", digest(table), defaults, whole_batches=True)


def _check(hyper: Hyper) -> None:
    if is_concrete(hyper) and (np.any(np.asarray(hyper.batches) < 0) or np.any(np.asarray(hyper.limit) < 1)):
        raise ValueError(f"batches={hyper.batches} must not be below 0, limit={hyper.limit} must be at least 1.")

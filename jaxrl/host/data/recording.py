"""Who acts in a task, and the datasets that they leave: streams of episodes, and where they are cut.

The functions of arrays are pure, so that one program records a dataset or trains and keeps the policies that will act.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.actors import Actor
from jaxrl.algorithm import Algorithm, num_updates
from jaxrl.data.datasets import Dataset, Episodes, from_rollout
from jaxrl.environment import Environment, TimeStep, pytree, split_observation
from jaxrl.evaluation import evaluate
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.rollout import rollout
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv, vectorize

POINTS = 16
"""Policies that are kept of a training."""


@pytree
class _Start:
    """What `rollout` reads of a learner's state."""

    key: jax.Array
    env_state: Any
    obs: Any
    step: jax.Array
    env_params: Any


@dataclasses.dataclass(frozen=True)
class _Shown(VectorEnv):
    """Observations come with the environment's states, by which controllers and searches act."""

    def step(self, key: Array, vstate: Any, action: Any, params: Any) -> TimeStep:
        ts = super().step(key, vstate, action, params)
        return ts._replace(obs=(ts.obs, ts.state.env))


def recorded(
    env: Environment, env_params: Any, who: Actor, key: Key[Array, ""], num_envs: int, num_steps: int
) -> Dataset:
    """`num_envs` streams of `num_steps` steps each, one after the other. Pure: jit it.

    Actions are in the environment's units, `next_obs` is what followed before a reset, and the last step of each
    stream ends an episode, which may have been cut there.
    """
    shown = vectorize(env, num_envs)
    venv = _Shown(**{field.name: getattr(shown, field.name) for field in dataclasses.fields(shown)})
    reset_key, key = jax.random.split(key)
    obs, env_state = venv.reset(reset_key, env_params)
    first = who.carries(num_envs)

    def act(key, seen, carry):
        obs, state = seen
        action, carry = who.act(key, state, obs, env_params, carry)
        return action, action, carry

    def ended(carry, done):
        return jax.tree.map(lambda x, new: jnp.where(done.reshape(-1, *[1] * (x.ndim - 1)), new, x), carry, first)

    start = _Start(key, env_state, (obs, env_state.env), jnp.int32(0), env_params)
    _, _, steps = rollout(venv, start, num_steps, act, first, ended)
    return from_rollout(steps._replace(obs=steps.obs[0]), steps.output)


def returns_of(
    env: Environment, env_params: Any, who: Actor, key: Key[Array, ""], num_episodes: int, max_steps: int
) -> Float[Array, " {num_episodes}"]:
    """Of the first episode of each stream, cut after `max_steps`. Pure: jit it."""
    found = recorded(env, env_params, who, key, num_episodes, max_steps)
    reward, last = (x.reshape(num_episodes, max_steps) for x in (found.reward, found.last))
    in_first = jnp.cumsum(last, 1) - last == 0
    return jnp.where(in_first, reward, 0).sum(1)


def at_random(env: Environment, env_params: Any) -> Actor:
    """Uniform actions, of each of several agents, among the allowed ones where the observation has an `action_mask`."""
    space, observation_space = env.action_space(env_params), env.observation_space(env_params)

    def act(key, env_state, obs, env_params, carry):
        n, agents = env_state.time.shape[0], (env.num_agents,) if env.num_agents > 1 else ()
        mask = split_observation(obs, observation_space)[2]
        if mask is not None and isinstance(space, Discrete):
            return Categorical(mask_logits(jnp.zeros(mask.shape), mask)).sample(key), carry
        sample = jax.vmap(jax.vmap(space.sample)) if agents else jax.vmap(space.sample)
        return sample(jax.random.split(key, (n, *agents))), carry

    return Actor(act)


class Training(NamedTuple):
    """What is left of one at each of its points, (points, ...)."""

    policies: Any
    returns: Array  # mean returns of full episodes, as the algorithm is deployed


def trained(
    algo: Algorithm,
    key: Key[Array, ""],
    total_steps: int,
    hyper: Any = None,
    env_params: Any = None,
    points: int = POINTS,
    eval_episodes: int = 32,
) -> Training:
    """The policies at `points` equally spaced points of a training, the first untrained and the last at its end.

    Pure: jit it. All of them play the same episodes; there are fewer points where there are fewer updates. Raises
    ValueError for fewer than 2 points.
    """
    made = updates_at(algo, total_steps, points)
    env_params = algo.venv.default_params if env_params is None else env_params
    init_key, eval_key = jax.random.split(key)

    def to_point(state, count):
        state = jax.lax.fori_loop(0, count, lambda _, state: algo.update(state)[0], state)
        policy = algo.policy(state)
        stats = evaluate(algo, policy, eval_key, algo.venv.env, env_params, num_episodes=eval_episodes)
        return state, Training(policy, stats.returns.mean())

    state = algo.init(init_key, hyper, env_params)
    return jax.lax.scan(to_point, state, jnp.asarray(np.diff(made, prepend=0), jnp.int32))[1]


def updates_at(algo: Algorithm, total_steps: int, points: int) -> np.ndarray:
    """How many updates have been made at each of the points."""
    if points < 2:
        raise ValueError(f"points={points}: there must be at least 2, before and after the training.")
    updates = num_updates(algo, total_steps)
    points = min(points, updates + 1)
    return np.arange(points) * updates // (points - 1)


# ---- where streams are cut


def streams(num_steps: int, max_steps: int) -> tuple[int, int]:
    """`(num_envs, steps)` of the streams that have `num_steps` together, each of several times `max_steps`."""
    num_envs = int(np.clip(num_steps // (8 * max_steps), 1, 256))
    return num_envs, -(-num_steps // num_envs)


def unbroken(dataset: Dataset, num_envs: int, enough: int) -> Dataset:
    """Each stream up to the end of the episode in which it has `enough` steps.

    Whether an episode is there does not depend on how it went, as it would if those were left out that the end of the
    recording cuts.
    """
    last = np.asarray(dataset.last).reshape(num_envs, -1)
    end = enough - 1 + np.argmax(last[:, enough - 1 :], 1)
    kept = (np.arange(last.shape[1]) <= end[:, None]).reshape(-1)
    return jax.tree.map(lambda x: np.asarray(x)[kept], dataset)


def first_steps(dataset: Dataset, num_steps: int) -> Dataset:
    """The first of them; the last one ends an episode."""
    found = jax.tree.map(lambda x: np.asarray(x)[:num_steps], dataset)
    return found.replace(last=np.append(found.last[:-1], True))


def nearest_episode(dataset: Dataset, num_steps: int) -> Dataset:
    """The first episodes, one at least, whose steps come nearest to so many."""
    ends = np.cumsum(Episodes(dataset).length)
    return jax.tree.map(lambda x: np.asarray(x)[: ends[np.argmin(np.abs(ends - num_steps))]], dataset)

"""The algorithm protocol: a NamedTuple of pure functions, as an optax optimiser is, and what training loops share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from jaxrl import registry
from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.spaces import Box, Space
from jaxrl.vectorize import VectorEnv, vectorize


class Algorithm(NamedTuple):
    """What `make(env, config)` of every algorithm file returns.

    States are pytrees with the public fields `key, hyper, env_params, env_state, obs, step` (environment steps done)
    and `weights`. Metrics are scalars, always with `episode_return` and `episode_length` (means over the episodes that
    ended in this update, NaN if none did), `episodes` (how many) and `loss`.
    """

    name: str
    config: Any  # static settings
    hyper: Any  # the class of the dynamic settings
    venv: VectorEnv
    steps_per_update: int
    init: Callable[..., Any]  # (key, hyper=None, env_params=None) -> state
    collect: Callable[[Any], tuple[Any, Any]]  # state -> (state, rollout): act in the environments
    learn: Callable[[Any, Any], tuple[Any, dict[str, Array]]]  # (state, rollout) -> (state, metrics)
    update: Callable[[Any], tuple[Any, dict[str, Array]]]  # learn after collect
    policy: Callable[[Any], Any]  # state -> what is deployed
    initial_carry: Callable[..., Any]  # (batch_shape=()) -> carry; () for feed-forward policies
    act: Callable[..., tuple[Any, Any]]  # (policy, key, obs, carry=(), greedy=False) -> (action, carry)
    around: tuple[Any, ...] = ()  # static settings of what was put around it, as a curriculum's


def num_updates(algo: Algorithm, total_steps: int) -> int:
    """Updates that make at least `total_steps` environment steps. Raises ValueError when that is none."""
    if total_steps < 1:
        raise ValueError(f"total_steps={total_steps}: it must be at least 1.")
    return -(-int(total_steps) // algo.steps_per_update)


def train(
    algo: Algorithm, key: Array, total_steps: int, hyper: Any = None, env_params: Any = None
) -> tuple[Any, dict[str, Array]]:
    """A whole training run as one pure function: `init`, then a scan of `update`. jit it, vmap it.

    Returns the final state and the metrics, each with a leading axis of updates.
    """
    state = algo.init(key, hyper, env_params)
    return jax.lax.scan(lambda state, _: algo.update(state), state, length=num_updates(algo, total_steps))


def as_vector_env(env: Environment | VectorEnv, num_envs: int) -> VectorEnv:
    """`env`, vectorised unless it is already. Raises ValueError if it is with another number of environments."""
    if isinstance(env, VectorEnv):
        if env.num_envs != num_envs:
            raise ValueError(
                f"The VectorEnv has num_envs={env.num_envs} but the config says {num_envs}; make them equal."
            )
        return env
    return vectorize(env, num_envs)


def spaces_of(name: str, env: Environment | VectorEnv, *kinds: type[Space]) -> tuple[Space, Any]:
    """`(observation space, action space)` of what algorithm `name` is to train on, which acts in spaces of `kinds`.

    Raises ValueError for another action space (naming algorithms that act in it), a Box that is not a vector, or
    several agents.
    """
    env = env.env if isinstance(env, VectorEnv) else env
    if env.num_agents > 1:
        raise ValueError(
            f"{env.id} has {env.num_agents} agents; {name} trains one. A policy that all of them share learns from "
            "wrappers.agents_as_slots(vectorize(env, n)), where each agent is a slot."
        )
    params = env.default_params
    space = env.action_space(params)
    vector = not isinstance(space, Box) or len(space.shape) == 1
    if not isinstance(space, kinds) or not vector:
        allowed = [f"one-dimensional {kind.__name__}" if kind is Box else kind.__name__ for kind in kinds]
        allowed = " and ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
        others = ", ".join(registry.algos_for(space)) if vector else ""
        hint = f" These act there: {others}." if others else ""
        raise ValueError(f"{name} acts in {allowed} spaces, not in {env.id}'s {space}.{hint}")
    return env.observation_space(params), space


def starting_values(algo_hyper: type, venv: VectorEnv, hyper: Any, env_params: Any) -> tuple[Any, Any]:
    """`hyper` and `env_params` as strongly typed arrays, defaults where None. Raises ValueError for unusable ones."""
    defaults = strongly_typed(algo_hyper())
    hyper = defaults if hyper is None else hyper
    if not isinstance(hyper, algo_hyper):
        raise TypeError(
            f"hyper is a {type(hyper).__qualname__} of {type(hyper).__module__}, not this algorithm's Hyper."
        )
    # learning_rate=1 is a float and anneal_steps=1e6 an integer: another dtype would compile again.
    hyper = jax.tree.map(lambda default, x: jnp.asarray(x, default.dtype), defaults, hyper)
    env_params = strongly_typed(venv.default_params if env_params is None else env_params)
    if is_concrete(env_params):
        venv.env.validate(env_params)
    return hyper, env_params


def episode_metrics(episode_return: Array, episode_length: Array, finished: Array) -> dict[str, Array]:
    """The metrics every algorithm reports, from the episode statistics of a rollout, (T, N) each."""
    episodes = finished.sum()

    def mean(x):
        return jnp.where(episodes > 0, jnp.where(finished, x, 0).sum() / jnp.maximum(episodes, 1), jnp.nan)

    return {"episode_return": mean(episode_return), "episode_length": mean(episode_length), "episodes": episodes}


# ---- optimisation whose settings are leaves and whose derivative is finite


def annealed(value: Array, step: Array, anneal_steps: Array) -> Array:
    """`value`, going linearly to zero at `anneal_steps` environment steps; constant where that is 0."""
    left = jnp.maximum(1 - step / jnp.maximum(anneal_steps, 1), 0).astype(value.dtype)
    return value * jnp.where(anneal_steps > 0, left, 1)


def safe_norm(tree: PyTree) -> Float[Array, ""]:
    """The 2-norm of all leaves together, with gradient zero (not NaN) at zero."""
    square = sum((jnp.sum(x * x) for x in jax.tree.leaves(tree)), jnp.zeros(()))
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def clip_by_global_norm(tree: PyTree, max_norm: Array | float) -> PyTree:
    """All leaves scaled by one factor, so that their common norm is at most `max_norm` (Pascanu et al. 2013)."""
    scale = jnp.minimum(1, max_norm / jnp.maximum(safe_norm(tree), 1e-12))
    return jax.tree.map(lambda x: x * scale, tree)


@pytree
class AdamState:
    count: jax.Array  # updates done
    mean: Any  # first moment, like the weights
    square: Any  # second moment


def adam_init(weights: PyTree) -> AdamState:
    """The optimiser's state before the first update."""
    return AdamState(jnp.int32(0), jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))


def safe_adam(
    grads: PyTree, state: AdamState, learning_rate: Array | float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> tuple[PyTree, AdamState]:
    """`(step to add to the weights, state)` of Adam (Kingma and Ba 2015, algorithm 1), differentiable twice.

    Equal to `optax.adam`; only the derivative of the square root at zero is finite here, which meta-gradients need.
    """
    count = state.count + 1
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.square, grads)
    m_scale, v_scale = 1 / (1 - b1**count), 1 / (1 - b2**count)

    def step(m, v):
        v = v * v_scale
        root = jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1)), 0)
        return -learning_rate * (m * m_scale) / (root + eps)

    return jax.tree.map(step, mean, square), AdamState(count, mean, square)


def descend(
    flat: Float[Array, " P"],
    optimizer: AdamState,
    grads: PyTree,
    learning_rate: Array | float,
    max_grad_norm: Array | float = jnp.inf,
    **adam: float,
) -> tuple[Float[Array, " P"], AdamState, Float[Array, ""]]:
    """`(weights, optimizer, norm of the gradient)` after one Adam step on flattened weights, clipped by global norm.

    Adam works on one vector: on a CPU a kernel for every matrix and moment costs more than its arithmetic.
    """
    gradient = ravel_pytree(grads)[0]
    norm = safe_norm(gradient)
    change, optimizer = safe_adam(clip_by_global_norm(gradient, max_grad_norm), optimizer, learning_rate, **adam)
    return flat + change, optimizer, norm


def gradient_steps_due(
    step: Int[Array, ""], steps_per_update: int, replay_ratio: Float[Array, ""], num_updates: int
) -> Int[Array, ""]:
    """How many gradient steps an off-policy update takes after environment step `step`, at most `num_updates`.

    `replay_ratio`: gradient steps per environment step, a leaf that may change while training; infinite: always
    `num_updates`. Whatever the ratio, after n steps about n * ratio gradient steps were made.
    """
    # Counted from a near origin: a float32 holds each integer up to 2^24 only.
    origin = (step - steps_per_update) // 65_536 * 65_536
    before = jnp.floor((step - steps_per_update - origin) * replay_ratio)
    now = jnp.floor((step - origin) * replay_ratio)
    due = jnp.where(jnp.isfinite(replay_ratio), now - before, num_updates)
    return jnp.clip(due, 0, num_updates).astype(jnp.int32)


def polyak(old: PyTree, new: PyTree, tau: Float[Array, ""] | float) -> PyTree:
    """The average that a target network follows: (1 - tau) old + tau new."""
    return jax.tree.map(lambda x, y: x + tau * (y - x), old, new)


def check_at_least_one(config: Any, *names: str) -> None:
    """Raise ValueError for a field of `config` that is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}: it must be at least 1.")


def check_minibatches(num_minibatches: int, items: int, of: str) -> None:
    """Raise ValueError unless `items`, which is `of`, are so many equal minibatches; say what would do."""
    if items % num_minibatches:
        raise ValueError(
            f"num_minibatches={num_minibatches} does not divide {of} = {items}; "
            f"{math.gcd(items, num_minibatches)} does."
        )

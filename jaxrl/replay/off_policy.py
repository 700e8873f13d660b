"""What off-policy learners of actions share: transitions, random first steps, the critic's network and the loop that
takes gradient steps on what the replay holds. Each algorithm's losses and targets are in its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree

from jaxrl.algorithm import check_at_least_one
from jaxrl.data.transitions import Batch, Stored, Transition, example  # noqa: F401
from jaxrl.environment import is_concrete, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn.actor_critic import Critic  # noqa: F401
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.networks import active_units
from jaxrl.off_policy.steps import Rollout, no_ends  # noqa: F401
from jaxrl.replay.ring import Replay
from jaxrl.rollout import rollout, spread
from jaxrl.spaces import Discrete, Space, environment_action
from jaxrl.vectorize import VectorEnv


def check_config(config: Any) -> None:
    """Raise ValueError for sizes that cannot be."""
    check_at_least_one(config, "num_envs", "num_steps", "num_updates", "batch_size")
    steps = config.num_envs * config.num_steps
    if config.buffer_size < steps:
        raise ValueError(
            f"buffer_size={config.buffer_size}: it must hold a rollout of num_envs * num_steps = {steps} transitions."
        )


def random_action(key: Key[Array, ""], space: Space, observation_space: Space, obs: Any, num_envs: int) -> Array:
    """Uniform in the box, in its units, or among the allowed actions; (N, ...)."""
    if isinstance(space, Discrete):
        logits, action_mask = jnp.zeros((num_envs, space.n)), split_observation(obs, observation_space)[2]
        return Categorical(logits if action_mask is None else mask_logits(logits, action_mask)).sample(key)
    return jax.random.uniform(key, (num_envs, *space.shape), jnp.result_type(float), -1, 1)


def collect(
    venv: VectorEnv,
    state: Any,
    num_steps: int,
    act: Callable[[Array, Any], Array],
    observation_space: Space,
    space: Space,
) -> tuple[Any, Rollout]:
    """`(state, rollout)` of `act(key, obs) -> action`, at random before `hyper.learning_starts`."""
    at_random = state.step < state.hyper.learning_starts

    def explore(key, obs, carry):
        act_key, random_key = jax.random.split(key)
        uniform = random_action(random_key, space, observation_space, obs, venv.num_envs)
        action = jnp.where(at_random, uniform, act(act_key, visible(obs)))
        return environment_action(space, action), action, carry

    state, _, steps = rollout(venv, state, num_steps, explore)
    transition = Transition(steps.obs, steps.output, steps.reward, steps.terminated, steps.next_obs)
    return state, Rollout(transition, steps.ends)


def learn(
    state: Any,
    rollout: Rollout,
    replay: Replay,
    config: Any,
    carry: PyTree,
    gradient_step: Callable[[PyTree, Array, Transition], tuple[PyTree, dict[str, Array]]],
) -> tuple[Any, PyTree, dict[str, Array]]:
    """Store a rollout, then take the gradient steps that are due: `(state, carry, metrics)`.

    Args:
        carry: what gradient steps change, such as weights and the optimiser's state.
        gradient_step: `(carry, key, batch) -> (carry, report)`, `batch` being transitions (batch_size, ...).

    Of `state`, `key` and `replay` advance; `hyper.learning_starts` and `hyper.replay_ratio` are read. Reports are means
    over the steps that were taken, NaN where there was none; `gradient_steps` says how many there were.
    """
    key, sample_key, step_key = jax.random.split(state.key, 3)
    memory = replay.add(state.replay, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.transition))
    hyper, steps = state.hyper, config.num_envs * config.num_steps
    due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
    due = jnp.where(state.step > hyper.learning_starts, due, 0)
    # Drawn outside the branch: what goes into a branch may be copied, and the memory is large.
    batches = replay.sample(fast_key(sample_key), memory, config.num_updates * config.batch_size)
    batches = jax.tree.map(lambda x: x.reshape(config.num_updates, config.batch_size, *x.shape[1:]), batches)
    batches = spread(batches, 1)
    keys = jax.random.split(fast_key(step_key), config.num_updates)

    carry, reports = steps_taken(
        due, config.num_updates, carry, lambda: (keys, batches), lambda carry, inputs: gradient_step(carry, *inputs)
    )
    metrics = {
        **rollout.ends.metrics(),
        **jax.tree.map(jnp.nanmean, reports),
        "gradient_steps": due,
    }
    return state.replace(key=key, replay=memory), carry, metrics


def steps_taken(
    due: Int[Array, ""],
    num_updates: int,
    carry: PyTree,
    inputs: Callable[[], PyTree],
    gradient_step: Callable[[PyTree, Any], tuple[PyTree, dict[str, Array]]],
) -> tuple[PyTree, dict[str, Array]]:
    """The first `due` of `num_updates` gradient steps: what they carry on, and their reports, NaN for the others.

    `inputs()`, leading axis `num_updates`, are those of each step; they are made only where any is due.
    """

    def taken():
        def step(carry, numbered):
            number, inputs = numbered
            if num_updates == 1:  # the branch below says whether it is due
                return gradient_step(carry, inputs)
            return jax.lax.cond(number < due, gradient_step, skipped, carry, inputs)

        def skipped(carry, inputs):
            return carry, nothing(jax.eval_shape(gradient_step, carry, inputs)[1])

        return jax.lax.scan(step, carry, (jnp.arange(num_updates), inputs()))

    def nothing(shapes):
        return jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)

    return jax.lax.cond(due > 0, taken, lambda: (carry, nothing(jax.eval_shape(taken)[1])))


def action_values(critic: nn.Module, weights: Any, *inputs: Any) -> tuple[Any, Float[Array, ""]]:
    """`(values, share of active units)`; the share is NaN for networks that sow none (see `networks.active_units`)."""
    values, sown = critic.apply(weights, *inputs, mutable="intermediates")
    return values, active_units(sown) if jax.tree.leaves(sown) else jnp.full((), jnp.nan)


def critics(critic: nn.Module, weights: Any, *inputs: Any) -> tuple[Any, Float[Array, ""]]:
    """`action_values` of K critics, whose weights have a leading axis K, as the values then do; one share of all."""
    values, active = jax.vmap(lambda weights: action_values(critic, weights, *inputs))(weights)
    return values, jnp.mean(active)


def init_critics(critic: nn.Module, key: Key[Array, ""], num_critics: int, *inputs: Any) -> Any:
    """Separate weights for `num_critics` critics, stacked on a leading axis K."""
    return jax.vmap(lambda key: critic.init(key, *inputs))(jax.random.split(key, num_critics))


def flatten(weights: dict[str, Any]) -> tuple[dict[str, Array], Callable[[dict[str, Array]], dict[str, Any]]]:
    """Each network's weights as one vector, as optimisers take them, and the function that undoes it."""
    flat, unravel = {}, {}
    for name, tree in weights.items():
        flat[name], unravel[name] = ravel_pytree(tree)
    return flat, lambda flat: {name: unravel[name](x) for name, x in flat.items()}


def check_outputs(
    space: Space, outputs: Callable[[Array], tuple[Any, Any]], action_shape: tuple[int, ...], q_shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless `outputs(key)`, of an actor and its critics, have these shapes. Traces, runs nothing."""
    action, q = jax.eval_shape(outputs, jax.random.key(0))
    if action.shape != action_shape or q.shape != q_shape:
        raise ValueError(
            f"the networks give actions {action.shape} and values {q.shape} for {action_shape[0]} observations; "
            f"{space} needs {action_shape} and {q_shape}."
        )


def check_ratio(hyper: Any, config: Any) -> None:
    """Raise ValueError for a replay ratio that asks for more gradient steps an update than `config.num_updates`.

    Looks at concrete ones only. An infinite one asks for all.
    """
    steps = config.num_envs * config.num_steps
    if is_concrete(hyper.replay_ratio):
        ratio = np.asarray(hyper.replay_ratio)
        needed = np.ceil(np.where(np.isfinite(ratio), ratio, 0) * steps - 1e-6)
        if np.any(needed > config.num_updates):
            raise ValueError(
                f"replay_ratio={hyper.replay_ratio}: with num_envs * num_steps = {steps} steps an update it "
                f"needs num_updates={int(np.max(needed))}, which is {config.num_updates}."
            )


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

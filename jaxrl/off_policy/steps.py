"""Acting and storing, and how many gradient steps are due: what all learners from stored steps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from jaxrl.algorithm import check_at_least_one
from jaxrl.data.datasets import Dataset, stored
from jaxrl.data.transitions import Transition
from jaxrl.environment import is_concrete, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.replay.ring import Replay
from jaxrl.rollout import Ends, rollout, spread, ticked
from jaxrl.spaces import Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Transition
    ends: Ends


def no_ends() -> Ends:
    """The `Ends` of an update in which nothing acts: no episode ended."""
    return Ends(*(jnp.zeros((0, 0), kind) for kind in (jnp.bool_, jnp.result_type(float), jnp.int32)))


def check_config(config: Any) -> None:
    """Raise ValueError for counts below 1, or a replay buffer that does not hold a rollout."""
    check_at_least_one(config, "num_envs", "num_steps", "num_updates", "batch_size")
    steps = config.num_envs * config.num_steps
    if config.buffer_size < steps:
        raise ValueError(
            f"buffer_size={config.buffer_size}: it must hold a rollout of num_envs * num_steps = {steps} transitions."
        )


def as_replay(name: str, replay: Any, space: Space, default: Callable[[], Replay]) -> Replay:
    """The Replay of algorithm `name`: a `Replay` as it is, `stored` of a `Dataset`, or `default()` for None.

    Raises TypeError for anything else.
    """
    if replay is None:
        return default()
    if isinstance(replay, Dataset):
        return stored(replay, space)
    if not isinstance(replay, Replay):
        raise TypeError(
            f"{name}: replay is a {type(replay).__name__}; it must be a Dataset, a Replay such as "
            "`datasets.stored(dataset, env.action_space(params))`, or None: then it acts and fills a buffer of its own."
        )
    return replay


def random_action(key: Key[Array, ""], space: Space, observation_space: Space, obs: Any, num_envs: int) -> Array:
    """Actions (N, ...), uniform in the box (in units of it) or among the allowed Discrete ones."""
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
    """`(state, rollout)` of the policy `act(key, obs) -> action`; before `hyper.learning_starts` of random actions."""
    at_random = state.step < state.hyper.learning_starts

    def explore(key, obs, carry):
        act_key, random_key = jax.random.split(key)
        uniform = random_action(random_key, space, observation_space, obs, venv.num_envs)
        action = jnp.where(at_random, uniform, act(act_key, visible(obs)))
        return environment_action(space, action), action, carry

    state, _, steps = rollout(venv, state, num_steps, explore)
    transition = Transition(steps.obs, steps.output, steps.reward, steps.terminated, steps.next_obs)
    return state, Rollout(transition, steps.ends)


GradientStep = Callable[[PyTree, Array, Any], tuple[PyTree, dict[str, Array]]]
"""`(carry, key, batch) -> (carry, metrics)`: gradient steps change the carry; a batch has leaves (batch_size, ...)."""


def learn(
    state: Any, rollout: Rollout | None, replay: Replay, config: Any, carry: PyTree, gradient_step: GradientStep
) -> tuple[Any, PyTree, dict[str, Array]]:
    """Stores a rollout and takes the gradient steps that are due; with a dataset (no rollout) takes `num_updates`.

    Returns `(state, carry, metrics)`. Of `state`, `key` and `replay` change; with a dataset also `step`, which counts
    gradient steps there. `hyper.learning_starts` and `hyper.replay_ratio` say how many steps are due. Metrics are means
    over the gradient steps, NaN without any; `gradient_steps` is their number.
    """
    if rollout is None:
        return _learn_from_dataset(state, replay, config, carry, gradient_step)
    key, sample_key, step_key = jax.random.split(state.key, 3)
    filled = replay.add(state.replay, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.transition))
    hyper, steps = state.hyper, config.num_envs * config.num_steps
    due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
    due = jnp.where(state.step > hyper.learning_starts, due, 0)
    # Batches are drawn outside the branch: inputs of a branch may be copied, and the replay buffer is large.
    batches = replay.sample(fast_key(sample_key), filled, config.num_updates * config.batch_size)
    batches = jax.tree.map(lambda x: x.reshape(config.num_updates, config.batch_size, *x.shape[1:]), batches)
    batches = spread(batches, 1)
    keys = jax.random.split(fast_key(step_key), config.num_updates)

    carry, reports = steps_taken(
        due, config.num_updates, carry, lambda: (keys, batches), lambda carry, inputs: gradient_step(carry, *inputs)
    )
    metrics = {**rollout.ends.metrics(), **jax.tree.map(jnp.nanmean, reports), "gradient_steps": due}
    return state.replace(key=key, replay=filled), carry, metrics


def _learn_from_dataset(
    state: Any, replay: Replay, config: Any, carry: PyTree, gradient_step: GradientStep
) -> tuple[Any, PyTree, dict[str, Array]]:
    """Takes `num_updates` gradient steps, each on a batch drawn for it."""
    key, steps_key = jax.random.split(state.key)

    def step(carry, key):
        sample_key, step_key = jax.random.split(key)
        return gradient_step(carry, step_key, replay.sample(sample_key, state.replay, config.batch_size))

    carry, reports = jax.lax.scan(step, carry, jax.random.split(fast_key(steps_key), config.num_updates))
    metrics = {
        **no_ends().metrics(),
        **jax.tree.map(jnp.nanmean, reports),
        "gradient_steps": jnp.int32(config.num_updates),
    }
    return state.replace(key=key, step=ticked(state.step, config.num_updates)), carry, metrics


def steps_taken(
    due: Int[Array, ""],
    num_updates: int,
    carry: PyTree,
    inputs: Callable[[], PyTree],
    gradient_step: Callable[[PyTree, Any], tuple[PyTree, dict[str, Array]]],
) -> tuple[PyTree, dict[str, Array]]:
    """`(carry, metrics)` after the first `due` of `num_updates` gradient steps; metrics of the others are NaN.

    `inputs()` gives the inputs of all steps, leading axis `num_updates`; it is evaluated only where a step is due.
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


def check_ratio(hyper: Any, config: Any) -> None:
    """Raise ValueError for a replay ratio that asks for more gradient steps an update than `config.num_updates`.

    Only concrete values are checked. An infinite ratio asks for all `num_updates`.
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
    `num_updates`. With a constant ratio n steps give about n * ratio gradient steps.
    """
    # Steps are counted from a near origin: float32 represents integers exactly only up to 2^24.
    origin = (step - steps_per_update) // 65_536 * 65_536
    before = jnp.floor((step - steps_per_update - origin) * replay_ratio)
    now = jnp.floor((step - origin) * replay_ratio)
    due = jnp.where(jnp.isfinite(replay_ratio), now - before, num_updates)
    return jnp.clip(due, 0, num_updates).astype(jnp.int32)


def check_outputs(
    space: Space, outputs: Callable[[Array], tuple[Any, Any]], action_shape: tuple[int, ...], q_shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless `outputs(key)`, `(actions, values)`, has these shapes. Only traces it."""
    action, q = jax.eval_shape(outputs, jax.random.key(0))
    if action.shape != action_shape or q.shape != q_shape:
        raise ValueError(
            f"the networks give actions {action.shape} and values {q.shape} for {action_shape[0]} observations; "
            f"{space} needs {action_shape} and {q_shape}."
        )

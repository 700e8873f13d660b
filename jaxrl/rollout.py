"""Acting in the environments: the part of `collect` that every algorithm shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxrl.math import fast_key, light_key, on_cpu, stock_keys
from jaxrl.vector_env import VectorEnv

NARROW = 16
"""Numbers a row up to which leaves of a batch are gathered together on accelerators."""


class Ends(NamedTuple):
    """Where episodes ended in a rollout, (T, N) each: what every algorithm's rollout has as `ends`."""

    done: Array  # of either kind
    episode_return: Array  # of the episode that ended, valid where done
    episode_length: Array

    def metrics(self) -> dict[str, Array]:
        """What every algorithm reports: means over the episodes that ended, NaN if none did, and how many."""
        episodes = self.done.sum()

        def mean(x):
            total = jnp.where(self.done, x, 0).sum()
            return jnp.where(episodes > 0, total / jnp.maximum(episodes, 1), jnp.nan)

        return {
            "episode_return": mean(self.episode_return),
            "episode_length": mean(self.episode_length),
            "episodes": episodes,
        }


class Steps(NamedTuple):
    """What happened, time-major (T, N, ...). What a caller does not read is not computed under jit."""

    obs: Any  # acted on
    output: Any  # what `act` returned beside the action
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor, before a reset
    info: dict[str, Array]  # episode_return and episode_length are valid where terminated | truncated

    @property
    def done(self) -> Array:
        """Where an episode ended, of either kind."""
        return self.terminated | self.truncated

    @property
    def ends(self) -> Ends:
        """Where episodes ended in these steps, with their returns and lengths."""
        return ends_of(self)


def ticked(step: Int[Array, ""], more: int) -> Int[Array, ""]:
    """The step counter after `more` steps. It stays at the largest int32, 2.1e9: schedules are long over there, and
    turned negative it would begin them anew."""
    most = np.iinfo(np.int32).max
    return jnp.where(step > most - more, most, step + more).astype(step.dtype)


def in_all(steps: Int[Array, "*runs M"]) -> Int[Array, "*runs"]:
    """The counter of M learners, which count alike, together; it stays at the largest int32 as theirs do."""
    each, many = steps[..., 0], steps.shape[-1]
    most = np.iinfo(np.int32).max
    return jnp.where(each > most // many, most, each * many).astype(steps.dtype)


def step_keys(key: Key[Array, ""], num: int) -> Key[Array, " {num}"]:
    """`num` keys for the steps of a rollout, with the implementation that draws fastest."""
    return jax.random.split(fast_key(key), num)


def ends_of(steps: Any) -> Ends:
    """Where episodes ended in `Steps`, or in the TimeSteps of a VectorEnv with a leading axis of time."""
    return Ends(steps.terminated | steps.truncated, steps.info["episode_return"], steps.info["episode_length"])


def rollout(
    venv: VectorEnv,
    state: Any,
    num_steps: int,
    act: Callable[..., tuple[Any, Any, Any]],
    carry: Any = (),
    ended: Callable[[Any, Array], Any] | None = None,
) -> tuple[Any, Any, Steps]:
    """`(state, carry, steps)` after `num_steps` steps of every environment.

    Args:
        state: an algorithm's, of which `key, env_state, obs` and `step` advance.
        act: `(key, obs, carry) -> (action, output, carry)`, obs being (N, ...) and the action the environment's.
        ended: `(carry, done) -> carry`, called after each step: where a recurrent policy learns that an episode ended.
    """
    key, rollout_key = jax.random.split(state.key)

    def step(carried, key):
        obs, env_state, carry = carried
        act_key, env_key = jax.random.split(light_key(key))
        action, output, carry = stock_keys(act(act_key, obs, carry))
        ts = venv.step(env_key, env_state, action, state.env_params)
        if ended is not None:
            carry = ended(carry, ts.terminated | ts.truncated)
        info = dict(ts.info)
        next_obs = info.pop("final_obs")
        return (ts.obs, ts.state, carry), Steps(obs, output, ts.reward, ts.terminated, ts.truncated, next_obs, info)

    keys = step_keys(rollout_key, num_steps)
    (obs, env_state, carry), steps = jax.lax.scan(step, (state.obs, state.env_state, carry), keys)
    step_count = ticked(state.step, num_steps * venv.num_envs)
    return state.replace(key=key, obs=obs, env_state=env_state, step=step_count), carry, steps


def successor_values(
    critic: Callable[[Any], Any],
    value: Float[Array, "T N"],
    last_obs: Any,
    next_obs: Any,
    truncated: Bool[Array, "T N"],
) -> Float[Array, "T N"]:
    """The value of each step's true successor, from `value` of the steps themselves.

    `critic`, from observations to values, is called on `last_obs` (N, ...), where the rollout stopped, and on
    `next_obs` (T, N, ...) only if an episode was truncated: elsewhere a step's successor is the next one's observation,
    or nothing (terminated).
    """
    following = jnp.concatenate([value[1:], critic(last_obs)[None]])

    def cut():
        return jnp.where(truncated, critic(next_obs), following)

    # On an accelerator the conditional costs more than what it saves: of thousands of episodes some are truncated.
    return on_cpu(lambda: jax.lax.cond(truncated.any(), cut, lambda: following), cut)


def minibatches(batch: PyTree, order: Int[Array, " B"], num: int) -> PyTree:
    """The rows of `batch` (B, ...) in this order, in `num` parts: leaves (num, B / num, ...), `spread` over devices."""
    ordered = on_cpu(_each_leaf_in_order, _in_order, batch, order)
    return spread(jax.tree.map(lambda x: x.reshape(num, -1, *x.shape[1:]), ordered), 1)


def _each_leaf_in_order(batch: PyTree, order: Array) -> PyTree:
    return jax.tree.map(lambda x: x[order], batch)


def _in_order(batch: PyTree, order: Array) -> PyTree:
    """The same for a TPU, which reads a tile of 4 kB for every number that it gathers.

    So narrow leaves are gathered together, as the columns of one matrix, and images as flat rows: for 7 x 7 x 3 uint8 a
    300th of the bytes.
    """
    leaves, treedef = jax.tree.flatten(batch)
    flat = [x.reshape(x.shape[0], -1) for x in leaves]
    narrow: dict[Any, list[int]] = {}
    for i, x in enumerate(flat):
        if x.shape[1] > NARROW:
            flat[i] = x[order]
        else:
            narrow.setdefault(x.dtype, []).append(i)
    for members in narrow.values():
        ends = np.cumsum([flat[i].shape[1] for i in members])
        columns = jnp.concatenate([flat[i].T for i in members])[:, order]
        for i, x in zip(members, jnp.split(columns, ends[:-1]), strict=True):
            flat[i] = x.T
    return jax.tree.unflatten(treedef, [x.reshape(leaf.shape) for x, leaf in zip(flat, leaves, strict=True)])


def spread(batch: PyTree, axis: int = 0) -> PyTree:
    """`batch`, divided along this axis over the devices of the mesh axis `envs` where a program is made for one; else
    `batch` itself.

    For minibatches: drawn from anywhere in a rollout or a replay memory, they would be whole on every device, which
    would all compute the same gradient.
    """
    mesh = jax.sharding.get_abstract_mesh()
    parts = dict(mesh.shape).get("envs", 1)
    if parts == 1 or any(x.shape[axis] % parts for x in jax.tree.leaves(batch)):
        return batch
    spec = jax.sharding.PartitionSpec(*[None] * axis, "envs")
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, spec), batch)

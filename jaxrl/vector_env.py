"""A batch of environments stepped as one, with auto-reset: here and only here.

Keys are derived once per step for the whole batch, and finished slots alone pay for their reset.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from jaxrl.environment import Environment, TimeStep, pytree
from jaxrl.math import fast_key, fence, light_key, on_cpu, stock_keys

RESETS = ("auto", "dense", "sparse")
GENERATORS = ("hash", "threefry")


@pytree
class VectorState:
    """The state of `num_envs` slots."""

    env: Any  # environment states, leading axis N
    params: Any  # levels drawn by level_fn, leading axis N; None without level_fn
    episode_return: jax.Array  # (N,) or (N, M): undiscounted, so far


@dataclasses.dataclass(frozen=True)
class VectorEnv:
    """Static and hashable; made by `vectorize`."""

    env: Environment
    num_envs: int
    reset_strategy: str
    level_fn: Callable[[Array, Any], Any] | None = None
    batched_params: bool = False
    chunk: int = 1
    generator: str = "hash"

    @property
    def default_params(self) -> Any:
        """The environment's, with a leading axis N where `batched_params`."""
        params = self.env.default_params
        if not self.batched_params:
            return params
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.num_envs, *x.shape)), params)

    def reset(self, key: Array, params: Any) -> tuple[Any, VectorState]:
        """Start every slot: `(obs, vstate)`, leaves with leading axis N."""
        if self.batched_params:
            check_batched(params, self.num_envs)
        slot_key = jax.random.split(self._key(key))[0]
        obs, state, level = self._starts(slot_key, params, self.num_envs)
        agents = (self.env.num_agents,) if self.env.num_agents > 1 else ()
        episode_return = jnp.zeros((self.num_envs, *agents))
        return obs, VectorState(state, level, episode_return)

    def step(self, key: Array, vstate: VectorState, action: Any, params: Any) -> TimeStep:
        """Step every slot and restart the finished ones. `obs` and `state` are after the restart.

        `info` gains `final_obs` (before the restart: bootstrap from it where `truncated & ~terminated`) and, valid
        where `terminated | truncated`, `episode_return` and `episode_length`.
        """
        ts, key, reset_key, slot_params, axis = self._transition(key, vstate, action, params)
        finished = ts.terminated | ts.truncated
        episode_return = vstate.episode_return + ts.reward
        # Where the key does not matter, we observe after the restart: its loop then carries states alone, and on a CPU
        # copying observations through it costs more than making them twice.
        noiseless = self.env.hints.deterministic or self.env.hints.noiseless
        carried_obs = None if noiseless else ts.obs
        current = (carried_obs, ts.state, vstate.params)
        obs, state, level = self._restart(reset_key, finished, current, params)
        if noiseless:
            slot_params = slot_params if self.level_fn is None else level
            obs = jax.vmap(self.env.observe, (None, 0, axis))(key, state, slot_params)
        info = {
            **ts.info,
            "final_obs": ts.obs,
            "episode_return": episode_return,
            "episode_length": ts.state.time,
        }
        so_far = rows_where(finished, jnp.zeros_like(episode_return), episode_return)
        return TimeStep(obs, VectorState(state, level, so_far), ts.reward, ts.terminated, ts.truncated, info)

    def advance(self, key: Array, vstate: VectorState, action: Any, params: Any) -> TimeStep:
        """Step every slot and restart none: `restart` is the caller's to call, before a finished slot is stepped again.

        `info` gains `episode_return` and `episode_length`, so far.
        """
        ts, *_ = self._transition(key, vstate, action, params)
        state = vstate.replace(env=ts.state, episode_return=vstate.episode_return + ts.reward)
        info = {**ts.info, "episode_return": state.episode_return, "episode_length": ts.state.time}
        return ts._replace(state=state, info=info)

    def restart(self, key: Array, vstate: VectorState, params: Any, mask: Bool[Array, " N"]) -> tuple[Any, VectorState]:
        """Start a new episode now in the slots where `mask`, on `params` (their own row, or a level drawn from it).

        Returns `(obs, vstate)`. The observation of a slot that goes on is made again from its state.
        """
        if self.batched_params:
            check_batched(params, self.num_envs)
        start_key, observe_key = jax.random.split(self._key(key))
        slot_params, axis = (params, 0 if self.batched_params else None)
        if self.level_fn is not None:
            slot_params, axis = vstate.params, 0
        observe_keys = jax.random.split(observe_key, self.num_envs)
        obs = jax.vmap(self.env.observe, (0, 0, axis))(observe_keys, vstate.env, slot_params)
        fresh = self._starts(start_key, params, self.num_envs)
        obs, state, level = rows_where(mask, fresh, (obs, vstate.env, vstate.params))
        carried = rows_where(mask, jnp.zeros_like(vstate.episode_return), vstate.episode_return)
        return obs, vstate.replace(env=state, params=level, episode_return=carried)

    def _transition(self, key: Array, vstate: VectorState, action: Any, params: Any) -> tuple[Any, ...]:
        """`(ts, key, reset_key, slot_params, axis)`: a step of every slot, and what a restart after it takes."""
        key = self._key(key)
        slot_params, axis = (params, 0 if self.batched_params else None)
        if self.level_fn is not None:
            slot_params, axis = vstate.params, 0
        if self.env.hints.deterministic:  # the key reaches nobody, so it may serve the reset
            reset_key = key
            ts = jax.vmap(self.env.step, (None, 0, 0, axis))(key, vstate.env, action, slot_params)
        else:
            step_key, reset_key = jax.random.split(key)
            step_keys = self._slot_keys(step_key, self.num_envs)
            ts = jax.vmap(self.env.step, (0, 0, 0, axis))(step_keys, vstate.env, action, slot_params)
        return stock_keys(ts), key, reset_key, slot_params, axis

    # ---- keys of what is drawn within a step

    def _key(self, key: Array) -> Array:
        return light_key(key) if self.generator == "hash" else fast_key(key)

    def _slot_keys(self, key: Array, n: int) -> Array:
        keys = jax.random.split(key, n)
        # Materialised: fused with the splits inside a step, XLA computes threefry anew for every word it reads.
        return fence(keys) if self.generator == "threefry" else keys

    # ---- starts: (obs, state, level or None), leading axis n

    def _starts(self, key: Array, params: Any, n: int) -> tuple[Any, Any, Any]:
        """`n` fresh episodes; with batched params, of the `n` slots whose params are given."""

        def start(key, params):
            if self.level_fn is None:
                return *self.env.reset(key, params), None
            level_key, key = jax.random.split(key)
            level = self.level_fn(level_key, params)
            return *self.env.reset(key, level), level

        keys = self._slot_keys(key, n)
        return stock_keys(jax.vmap(start, (0, 0 if self.batched_params else None))(keys, params))

    def _restart(self, key: Array, finished: Bool[Array, " N"], current: PyTree, params: Any) -> Any:
        """`current`, an (obs or None, state, level or None), with fresh starts where `finished`."""
        args = key, finished, current, params
        if self.reset_strategy == "auto":
            constant = functools.partial(_dense_restart, self, stop=True)  # as the loop of `sparse` has it
            return on_cpu(functools.partial(_sparse_restart, self), constant, *args)
        return (_dense_restart if self.reset_strategy == "dense" else _sparse_restart)(self, *args)


def vectorize(
    env: Environment,
    num_envs: int,
    reset: str | None = None,
    *,
    level_fn: Callable[[Array, Any], Any] | None = None,
    batched_params: bool = False,
    chunk: int | None = None,
    generator: str = "hash",
) -> VectorEnv:
    """`num_envs` copies of `env` stepped together, restarting what finishes.

    Args:
        reset: `dense` computes a start for every slot at every step and selects; `sparse` computes starts only for
            finished slots, `chunk` at a time until none is left (same distribution; on CPUs cheaper by far, elsewhere a
            loop that the machine waits for); `auto` is `sparse` in programs compiled for CPUs, else `dense` without its
            derivative, which `sparse` has not either. Default: what the environment declares, mostly `auto`.
        level_fn: `level_fn(key, params) -> level` draws a slot's own params at each of its resets.
        batched_params: `params` have a leading axis N, a row a slot (a level each).
        generator: what a step's random numbers are drawn with. `hash` (`jaxrl.math.light_key`): one draw of the key's
            own generator for the whole batch, then a counter-based hash; `threefry`: jax's own bits, slower.

    Raises ValueError for an impossible combination.
    """
    reset = reset or env.hints.reset
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: it must be at least 1.")
    if reset not in RESETS:
        raise ValueError(f"reset={reset!r}: choose one of {', '.join(RESETS)}.")
    if generator not in GENERATORS:
        raise ValueError(f"generator={generator!r}: choose one of {', '.join(GENERATORS)}.")
    chunk = math.ceil(num_envs * env.hints.reset_share) if chunk is None else chunk
    if not 1 <= chunk <= num_envs:
        raise ValueError(f"chunk={chunk}: it must be from 1 to {num_envs}.")
    return VectorEnv(env, num_envs, reset, level_fn, batched_params, chunk, generator)


def check_batched(params: Any, num_envs: int) -> None:
    """Raise ValueError unless every leaf of `params` has a leading axis of `num_envs`."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.shape(leaf) or jnp.shape(leaf)[0] != num_envs:
            name = jax.tree_util.keystr(path)
            raise ValueError(
                f"batched_params: params{name} has shape {jnp.shape(leaf)}; its first axis must be {num_envs}."
            )


def _like(current: PyTree, starts: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """`starts` without the observation, where `current` has none."""
    return (None, *starts[1:]) if current[0] is None else starts


def rows_where(mask: Bool[Array, " N"], new: PyTree, old: PyTree) -> PyTree:
    """`new` in the rows where `mask`, else `old`, of leaves with leading axis N."""

    def leaf(n, o):
        return jnp.where(mask.reshape(mask.shape + (1,) * (o.ndim - 1)), n, o)

    return jax.tree.map(leaf, new, old)


def _first(mask: Bool[Array, " N"], k: int) -> tuple[Int[Array, " k"], Bool[Array, " N"]]:
    """Indices of the first `k` set entries (N where there are fewer), and the mask without them."""
    count = _running_count(mask)
    return jnp.searchsorted(count, jnp.arange(1, k + 1), method="scan_unrolled"), mask & (count > k)


def _running_count(mask: Bool[Array, " N"]) -> Int[Array, " N"]:
    n = mask.shape[0]
    if n < 256 or n % 16:
        return jnp.cumsum(mask, dtype=jnp.int32)
    # Two levels: a cumsum over all of N costs more on a CPU than the rest of the reset.
    columns = list(jnp.moveaxis(mask.reshape(n // 16, 16).astype(jnp.int32), 1, 0))
    for i in range(1, 16):
        columns[i] = columns[i] + columns[i - 1]
    before = jnp.cumsum(columns[-1]) - columns[-1]
    return (jnp.stack(columns, 1) + before[:, None]).reshape(n)


def _dense_restart(
    venv: VectorEnv, key: Array, finished: Bool[Array, " N"], current: PyTree, params: Any, stop: bool = False
) -> PyTree:
    """Finished slots of `current` take theirs of a start for every slot, without its derivative if `stop`."""
    fresh = _like(current, venv._starts(key, params, venv.num_envs))
    return rows_where(finished, jax.lax.stop_gradient(fresh) if stop else fresh, current)


def _sparse_restart(venv: VectorEnv, key: Array, finished: Bool[Array, " N"], current: PyTree, params: Any) -> PyTree:
    """Replace finished slots of `current`, `venv.chunk` a round.

    The scatter works in place, which a select after the loop would undo; so the derivative is given by hand: a finished
    slot's fresh start depends on nothing, the others pass through.
    """

    def rounds(current, key_data, finished, params):
        key = jax.random.wrap_key_data(key_data, impl=jax.random.key_impl(stop_key))

        def body(carry):
            current, left, key = carry
            key, start_key = jax.random.split(key)
            rows, left = _first(left, venv.chunk)
            slot_params = jax.tree.map(lambda x: x[rows], params) if venv.batched_params else params
            fresh = _like(current, venv._starts(start_key, slot_params, venv.chunk))
            # Rows past the end (fewer finished than the chunk holds) are dropped.
            current = jax.tree.map(lambda x, new: x.at[rows].set(new, mode="drop"), current, fresh)
            return current, left, key

        return jax.lax.while_loop(lambda carry: carry[1].any(), body, (current, finished, key))[0]

    restart = jax.custom_jvp(rounds)

    @restart.defjvp
    def _(primals, tangents):
        # Without custom rule or tangents in the loop: reverse mode twice through a scan would meet the bare loop.
        current, mask = primals[0], primals[2]
        current = rows_where(mask, rounds(*jax.lax.stop_gradient(primals)), current)

        def leaf(x, t):
            return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - 1)), 0, t) if _differentiable(x) else t

        return current, jax.tree.map(leaf, current, tangents[0])

    stop_key = key
    return restart(current, jax.random.key_data(key), finished, params)


def _differentiable(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))

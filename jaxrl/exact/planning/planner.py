"""What planners share: their interface, the environment as their model, and plans in units of the action box."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxrl.environment import Environment, is_concrete, pytree, strongly_typed
from jaxrl.math import fast_key
from jaxrl.spaces import Box, Discrete, Space

TerminalValue = Callable[[Any, Any], Array]


class Planner(NamedTuple):
    """What `mppi`, `cem` and `ilqr` return.

    `carry = planner.init(hyper=None)`, then `action, carry = planner.plan(key, carry, state, params)` in every step.
    `carry.plan` (horizon, ...) is what it means to do next, `carry.value` the return it expected of the last plan.
    """

    name: str
    env: Environment  # the model
    config: Any  # static settings
    hyper: Any  # the class of the dynamic settings
    init: Callable[..., Carry]
    plan: Callable[..., tuple[Any, Carry]]


@pytree
class Carry:
    """What a planner remembers between decisions."""

    hyper: Any
    plan: jax.Array  # (H, A): actions in units of the box; probabilities of Discrete ones
    value: jax.Array  # the return that was expected of the plan when it was made


def select(on: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(functools.partial(jnp.where, on), new, old)


def advance(env: Environment, key: Array, state: Any, on: Array, action: Any, params: Any) -> tuple[Any, Array, Array]:
    """`(state, on, reward)` of one step; once an episode has ended the state stays and nothing is earned."""
    ts = env.step(key, state, action, params)
    reward = jnp.where(on, ts.reward, 0)
    return select(on, ts.state, state), on & ~(ts.terminated | ts.truncated), reward


@dataclasses.dataclass(frozen=True)
class Model:
    """An environment as planners use it."""

    env: Environment
    space: Space  # its kind and shape are static; bounds are read from params
    terminal_value: TerminalValue | None

    @property
    def size(self) -> int:
        """Numbers in one action of a plan."""
        return self.space.n if isinstance(self.space, Discrete) else math.prod(self.space.shape)

    def scale(self, params: Any) -> tuple[Array, Array, Array, Array]:
        """`(middle, half, low, high)`, (A,) each: actions are `middle + half * u` with u from low to high."""
        space = self.env.action_space(params)
        dtype = jnp.result_type(float)
        low, high = (
            jnp.broadcast_to(jnp.asarray(x, dtype), space.shape).ravel()
            for x in (space.low, space.high)  # pyright: ignore[reportAttributeAccessIssue]
        )
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle = jnp.where(bounded, (low + high) / 2, 0)
        half = jnp.where(bounded, (high - low) / 2, 1)
        return middle, half, (low - middle) / half, (high - middle) / half

    def action(self, u: Array, params: Any) -> Array:
        """The environment's action of plan entries `u` (..., A)."""
        if isinstance(self.space, Discrete):
            return jnp.argmax(u, -1).astype(self.space.dtype)
        middle, half, _, _ = self.scale(params)
        return (middle + half * u).reshape(*u.shape[:-1], *self.space.shape)

    def values(self, key: Array, state: Any, plans: Array, params: Any, gamma: Array) -> Array:
        """The discounted returns (K,) of plans (K, H, A) from one state, each with randomness of its own."""
        K, H, _ = plans.shape
        advance_all = jax.vmap(functools.partial(advance, self.env), (0, 0, 0, 0, None))

        def step(carry, inputs):
            states, on, discount = carry
            key, action = inputs
            states, on, reward = advance_all(jax.random.split(key, K), states, on, action, params)
            return (states, on, discount * gamma), discount * reward

        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (K, *x.shape)), state)
        start = (states, jnp.ones(K, bool), jnp.ones_like(gamma))
        inputs = (jax.random.split(fast_key(key), H), self.action(plans.swapaxes(0, 1), params))
        (states, on, discount), rewards = jax.lax.scan(step, start, inputs)
        total = jnp.sum(rewards, 0) + discount * jax.vmap(self.end_value, (0, 0, None))(states, on, params)
        # A plan whose simulation blew up is as bad as the worst of the others; a NaN would spoil every average.
        finite = jnp.isfinite(total)
        worst = jnp.min(jnp.where(finite, total, jnp.inf))
        return jnp.where(finite, total, jnp.where(jnp.isfinite(worst), worst, 0))

    def end_value(self, state: Any, on: Array, params: Any) -> Array:
        """What the state after the horizon is worth: nothing if the episode has ended."""
        return jnp.where(on, self.terminal_value(state, params), 0) if self.terminal_value else jnp.zeros(())

    def init(self, horizon: int, hyper_class: Any, ranges: dict[str, str], hyper: Any = None) -> Carry:
        """The carry before the first decision: the middle of the box throughout. Raises ValueError for bad `hyper`."""
        defaults = strongly_typed(hyper_class())
        hyper = defaults if hyper is None else hyper
        if not isinstance(hyper, hyper_class):
            raise TypeError(f"hyper is a {type(hyper).__qualname__}, not a {hyper_class.__qualname__}.")
        hyper = jax.tree.map(lambda default, x: jnp.asarray(x, default.dtype), defaults, hyper)
        if is_concrete(hyper):
            for name, x in vars(hyper).items():
                allowed = ranges.get(name, "at least 0")
                if not np.all(_RANGES[allowed](np.asarray(x))):
                    raise ValueError(f"{name}={x}: it must be {allowed}.")
        fill = 1 / self.size if isinstance(self.space, Discrete) else 0.0
        return Carry(hyper, jnp.full((horizon, self.size), fill, jnp.result_type(float)), jnp.zeros(()))


_RANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "positive": lambda x: x > 0,
    "at least 0": lambda x: x >= 0,
    "at least 0 and at most 1": lambda x: (x >= 0) & (x <= 1),
    "more than 1": lambda x: x > 1,
}


def model_of(name: str, env: Environment, terminal_value: TerminalValue | None, *kinds: type[Space]) -> Model:
    """Raises ValueError where a planner cannot act."""
    if env.num_agents > 1:
        raise ValueError(f"{env.id} has {env.num_agents} agents; {name} plans for one.")
    space = env.action_space(env.default_params)
    real = not isinstance(space, Box) or jnp.issubdtype(space.dtype, jnp.floating)
    if not isinstance(space, kinds) or not real:
        others = " cem does." if isinstance(space, Discrete) else ""
        raise ValueError(
            f"{name} plans in {' and '.join(kind.__name__ for kind in kinds)} action spaces (of real numbers); "
            f"{env.id} has {space}.{others}"
        )
    return Model(env, space, terminal_value)


def check_at_least_one(config: Any) -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not isinstance(value, bool) and value < 1:
            raise ValueError(f"{field.name}={value}: it must be at least 1.")


def shifted(plan: Float[Array, "H A"]) -> Float[Array, "H A"]:
    """The rest of a plan after its first action, the last one held."""
    return jnp.concatenate([plan[1:], plan[-1:]])

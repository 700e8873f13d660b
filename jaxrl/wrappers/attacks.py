"""Wrappers that attack an agent: its observations within a ball, its actions, or the parameters of its task.

The strength is a leaf of params, so one program serves all strengths, and `vmap` takes a batch of them. At strength 0
an episode is bit for bit that of the wrapped environment from the same keys. State and reward are those of the task: an
attack changes what is seen, what is done, or the parameters of an episode, nothing else.

- `ObservationAttack`: what the agent sees lies within `strength * unit` of what is so, in the l-infinity norm, and in
  the observation's box, by which it is cut. Without a `loss` it is drawn uniformly; with one it is where the loss was
  largest of a random point and `steps` projected signs of its gradient (Madry et al. 2018, "Towards deep learning
  models resistant to adversarial attacks"). `ActionDifference` is the loss of Zhang et al. (2020, "Robust deep
  reinforcement learning against adversarial perturbations on state observations", maximal action difference) for
  actions that are numbers, `LeastValue` that of Pattanaik et al. (2018, "Robust deep reinforcement learning with
  adversarial attacks") as the same paper has it: the action for what is seen, judged by the critic for what is so.
- `ActionAttack`: of actions that are numbers, the mixture (1 - strength) action + strength other; of discrete ones, the
  other's with probability `strength` (Tessler et al. 2019, "Action robust reinforcement learning", noisy and
  probabilistic). The other is an `adversary`, or chance.
- `DynamicsAttack`: in each episode named leaves of the task's params, as its masses or lengths, are up to a share
  `strength` of themselves larger or smaller, as where the environment is disrupted in Robust-Gymnasium (Gu et al. 2025,
  "Robust Gymnasium: a unified modular benchmark for robust reinforcement learning"). How much is chosen by an
  `adversary`, or by chance.

An attack on a policy needs its weights, which are params, too:

    act = lambda policy, obs: algo.act(policy, key, obs, (), greedy=True)[0]
    attacked = ObservationAttack(env, ActionDifference(act))
    params = attacked.attacking(env_params, 0.1, victim=algo.policy(state))
    evaluate(algo, algo.policy(state), key, attacked, params)
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import field, names_of, with_fields
from jaxrl.environment import Hints, Levels, TimeStep, Transition, check_params, is_concrete, pytree, strongly_typed
from jaxrl.math import fence
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl.wrappers.base import AddsParams, Wrapper, WrapperState
from jaxrl.wrappers.vectors import RESERVED


@pytree
class AttackParams:
    env: Any  # the wrapped environment's params
    strength: jax.Array = 0.0  # of an observation: radius of the ball, in units; else a share, from 0 to 1
    unit: Any = 1.0  # of an observation: what 1 is, () or an array that broadcasts to each attacked entry
    victim: Any = ()  # what the loss or the adversary reads, as a policy's weights; None: neither is asked, but chance

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


# ---- what an attacker of observations increases: (victim, obs, seen) -> ()


@dataclasses.dataclass(frozen=True)
class ActionDifference:
    """The squared distance of the action for what is seen from that for what is so; `act(victim, obs) -> action`."""

    act: Callable[[Any, Any], Any]

    def __call__(self, victim: Any, obs: Any, seen: Any) -> Float[Array, ""]:
        return jnp.sum((self.act(victim, seen) - self.act(victim, obs)) ** 2)


@dataclasses.dataclass(frozen=True)
class LeastValue:
    """Minus the value, where it is so, of the action for what is seen; `q(victim, obs, action) -> value`."""

    act: Callable[[Any, Any], Any]
    q: Callable[[Any, Any, Any], Any]

    def __call__(self, victim: Any, obs: Any, seen: Any) -> Float[Array, ""]:
        return -jnp.sum(self.q(victim, obs, self.act(victim, seen)))


def within(
    key: Array, low: Any, high: Any, loss: Callable[[Any], Float[Array, ""]] | None = None, steps: int = 1
) -> Any:
    """A tree between `low` and `high`: drawn uniformly, or the best of that and `steps` steps up the loss.

    A step moves each number by the sign of its derivative, the first one across the whole width, so to a corner, the
    k-th by a k-th of it. An attack never has less loss than the random point it began at.
    """
    leaves, tree = jax.tree.flatten(low)
    keys = jax.tree.unflatten(tree, list(jax.random.split(key, len(leaves))))

    def inside(x: Array, low: Array, high: Array) -> Array:
        return jnp.where(high > low, jnp.clip(x, low, high), low)  # where it is one point, that to the bit

    def drawn(key: Array, low: Array, high: Array) -> Array:
        return inside(low + (high - low) * jax.random.uniform(key, low.shape, low.dtype), low, high)

    start = jax.tree.map(drawn, keys, low, high)
    if loss is None:
        return start

    def step(carry: Any, k: Array) -> tuple[Any, None]:
        x, best, most = carry
        value, slope = jax.value_and_grad(loss)(x)
        best, most = jax.tree.map(functools.partial(jnp.where, value > most), (x, value), (best, most))

        def moved(x: Array, slope: Array, low: Array, high: Array) -> Array:
            return inside(x + (high - low) / k.astype(x.dtype) * jnp.sign(slope), low, high)

        return (jax.tree.map(moved, x, slope, low, high), best, most), None

    first = start, start, jnp.asarray(-jnp.inf, jnp.result_type(float))
    (x, best, most), _ = jax.lax.scan(step, first, jnp.arange(1, steps + 1))
    return jax.tree.map(functools.partial(jnp.where, loss(x) > most), x, best)


@dataclasses.dataclass(frozen=True)
class Attack(AddsParams):
    """What all attacks share: the wrapped environment's params and keys inside of their own."""

    Params = AttackParams

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.hints._replace(deterministic=False, noiseless=False)

    @property
    def default_params(self) -> AttackParams:
        return self.attacking(self.env.default_params, 0.0, victim=None)

    def attacking(self, params: Any, strength: Any, unit: Any = 1.0, victim: Any = ()) -> AttackParams:
        """The wrapped environment's `params` under an attack of this strength."""
        return strongly_typed(AttackParams(params, strength, unit, victim))

    def reset(self, key: Array, params: AttackParams) -> tuple[Any, Any]:
        if is_concrete(params):
            check_params(self, params)
        obs, state = self.env.reset(key, params.env)
        return self.seen(key, obs, params), state

    def step(self, key: Array, state: Any, action: Any, params: AttackParams) -> TimeStep:
        action = self._done(key, state, action, params)
        ts = self.env.step(key, state, action, params.env)
        return ts._replace(obs=self.seen(key, ts.obs, params))

    def transition(self, key: Array, state: Any, action: Any, params: AttackParams) -> Transition:
        return self.env.transition(key, state, self._done(key, state, action, params), params.env)

    def observe(self, key: Array, state: Any, params: AttackParams) -> Any:
        return self.seen(key, self.env.observe(key, state, params.env), params)

    def seen(self, key: Array, obs: Any, params: AttackParams) -> Any:
        """What the agent sees of `obs`."""
        return obs

    def _done(self, key: Array, state: Any, action: Any, params: AttackParams) -> Any:
        """What is done of `action`."""
        return action

    def _key(self, key: Array) -> Array:
        # The key itself is the wrapped environment's, whose random numbers stay as they are; an attack around another
        # one, of its own kind or not, draws others.
        depth, env = 0, self.env
        while isinstance(env, Wrapper):
            depth, env = depth + isinstance(env, Attack), env.env
        return jax.random.fold_in(key, zlib.crc32(type(self).__name__.encode(), depth))

    def validate(self, params: AttackParams) -> None:
        super().validate(params)
        strength = np.asarray(params.strength)
        if not np.all(strength >= 0):
            raise ValueError(f"{type(self).__name__}: strength={strength} must be at least 0, where nothing changes.")

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()


@dataclasses.dataclass(frozen=True)
class ObservationAttack(Attack):
    """The agent sees a point within `params.strength * params.unit` of each number, and within its box.

    Of a Dict the boxes of floats are attacked, without the reserved entries. Raises ValueError where there is none, and
    for fewer than one step; `validate` raises it for a strength or a unit below 0.
    """

    loss: Callable[[Any, Any, Any], Any] | None = None  # (victim, obs, seen) -> (), which it increases; None: chance
    steps: int = 1  # of gradients, each a call of `loss` and of its derivative

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise ValueError(f"ObservationAttack: steps={self.steps} must be at least 1.")
        space = self.env.observation_space(self.env.default_params)
        if not self._boxes(space):
            raise ValueError(f"ObservationAttack: {self.id} observes {space}; it attacks boxes of floats.")

    def _boxes(self, space: Space) -> dict[str, Box]:
        """What is attacked, by name; an observation that is no Dict has none, ''."""
        spaces = space.spaces if isinstance(space, Dict) else {"": space}
        floats = {name: x for name, x in spaces.items() if isinstance(x, Box) and jnp.issubdtype(x.dtype, jnp.floating)}
        return {name: x for name, x in floats.items() if name not in RESERVED}

    def seen(self, key: Array, obs: Any, params: AttackParams) -> Any:
        space = self.env.observation_space(params.env)
        boxes = self._boxes(space)
        obs = fence(obs)  # computed anew for each of its readers, it might round in several ways

        def whole(part: dict[str, Array]) -> Any:
            return {**obs, **part} if isinstance(space, Dict) else part[""]

        so = {name: obs[name] if name else obs for name in boxes}

        def end(name: str, sign: int) -> Array:
            x, box = so[name], boxes[name]
            ball = x + sign * jnp.asarray(params.strength * params.unit, x.dtype)
            # A number that is outside of its box is no reason to move it.
            return (
                jnp.maximum(ball, jnp.minimum(box.low, x)) if sign < 0 else jnp.minimum(ball, jnp.maximum(box.high, x))
            )

        low, high = ({name: end(name, sign).astype(so[name].dtype) for name in so} for sign in (-1, 1))
        loss = None if self.loss is None or params.victim is None else self._loss(obs, params, whole)
        return whole(within(self._key(key), low, high, loss, self.steps))

    def _loss(self, obs: Any, params: AttackParams, whole: Callable[[Any], Any]) -> Callable[[Any], Array]:
        attacker: Any = self.loss
        return lambda part: jnp.asarray(attacker(params.victim, obs, whole(part)), jnp.result_type(float))

    def terminal(self, obs: Any, params: AttackParams) -> Bool[Array, ""]:
        """Raises NotImplementedError: ends cannot be read from what is seen."""
        raise NotImplementedError(f"ObservationAttack changes the observations of {self.id}, so they do not tell ends.")

    def validate(self, params: AttackParams) -> None:
        super().validate(params)
        unit = np.asarray(params.unit)
        if not np.all(unit >= 0):
            raise ValueError(f"ObservationAttack: unit={unit} must be at least 0.")
        if self.loss is not None and params.victim is None and np.any(np.asarray(params.strength) > 0):
            raise ValueError("ObservationAttack: params have no victim; take those of `attacking(..., victim=...)`.")


@dataclasses.dataclass(frozen=True)
class ActionAttack(Attack):
    """Of a Box, (1 - strength) action + strength other is done; of discrete actions, the other with that probability.

    `adversary(victim, key, obs) -> action` is the other; None: an action drawn uniformly from the space. Raises
    ValueError for other action spaces; `validate` raises it for a strength that is not from 0 to 1.
    """

    adversary: Callable[[Any, Array, Any], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.env.action_space(self.env.default_params)
        if not isinstance(space, Box | Discrete | MultiDiscrete):
            raise ValueError(f"ActionAttack: {self.id} acts in {space}; it attacks Box, Discrete and MultiDiscrete.")

    def _done(self, key: Array, state: Any, action: Any, params: AttackParams) -> Any:
        other_key, seen_key, key = jax.random.split(self._key(key), 3)
        action, space = jnp.asarray(action), self.env.action_space(params.env)
        lead = action.shape[: action.ndim - len(space.shape)]
        if self.adversary is not None and params.victim is not None:
            other = self.adversary(params.victim, other_key, self.env.observe(seen_key, state, params.env))
        else:
            keys = jax.random.split(other_key, lead) if lead else other_key
            other = jax.vmap(space.sample)(keys) if lead else space.sample(keys)
        if not isinstance(space, Box):
            by_other = jax.random.bernoulli(key, params.strength, lead)
            return jnp.where(by_other.reshape(*lead, *[1] * len(space.shape)), other.astype(action.dtype), action)
        strength = jnp.asarray(params.strength, action.dtype)
        return jnp.where(strength > 0, (1 - strength) * action + strength * other.astype(action.dtype), action)

    def validate(self, params: AttackParams) -> None:
        super().validate(params)
        strength = np.asarray(params.strength)
        if self.adversary is not None and params.victim is None and np.any(strength > 0):
            raise ValueError("ActionAttack: params have no victim; take those of `attacking(..., victim=...)`.")
        if not np.all(strength <= 1):
            raise ValueError(f"ActionAttack: strength={strength} must be from 0 to 1, where the other acts alone.")


@dataclasses.dataclass(frozen=True)
class DynamicsAttack(Attack):
    """In each episode every entry p of the named leaves of the task's params is p (1 + strength x), x in [-1, 1].

    Names are dotted, as `mass` or `machine.r_s`. `adversary(victim, key) -> (D,)` chooses x, one number for each entry
    of the leaves in their order; None: drawn uniformly. It is the memory of the state, so it stays for the episode.
    Spaces are those of the params as they are. Raises ValueError without names, and for a name that is no leaf of
    floating point; `validate` raises it for a strength that is not from 0 to below 1, where signs are kept, and as the
    task does for params with each entry at its least or at its most.
    """

    names: tuple[str, ...] = ()
    adversary: Callable[[Any, Array], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.env.default_params
        known = [name for name in names_of(inner) if jnp.issubdtype(jnp.result_type(field(inner, name)), jnp.floating)]
        has = f"{self.id} has {', '.join(known) or 'none of floating point'}"
        if not self.names:
            raise ValueError(f"DynamicsAttack: names=() of no parameter; {has}.")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"DynamicsAttack: names={self.names}: each of them once.")
        for name in self.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"{has}."
                raise ValueError(f"DynamicsAttack: {name!r} is no parameter that it can change; {hint}")

    def attacked(self, params: AttackParams, x: Float[Array, " D"]) -> Any:
        """The params of the wrapped environment that an episode of direction x has."""
        changes, begin = {}, 0
        for name in self.names:
            leaf = jnp.asarray(field(params.env, name))
            share = x[begin : begin + leaf.size].reshape(leaf.shape)
            changes[name] = leaf * (1 + params.strength * share).astype(leaf.dtype)
            begin += leaf.size
        return with_fields(params.env, changes)

    def _direction(self, key: Array, params: AttackParams) -> Float[Array, " D"]:
        size = sum(math.prod(jnp.shape(field(params.env, name))) for name in self.names)
        if self.adversary is None or params.victim is None:
            return jax.random.uniform(self._key(key), (size,), minval=-1.0)
        x = jnp.asarray(self.adversary(params.victim, self._key(key)), jnp.result_type(float))
        if x.shape != (size,):
            raise TypeError(f"DynamicsAttack: the adversary gives {x.shape}; {', '.join(self.names)} need {(size,)}.")
        return jnp.clip(x, -1, 1)

    def _inner(self, state: WrapperState) -> Any:
        return state.env

    def initial(self, key: Array, params: AttackParams) -> WrapperState:
        x = self._direction(key, params)
        return WrapperState(self.env.initial(key, self.attacked(params, x)), x)

    def reset(self, key: Array, params: AttackParams) -> tuple[Any, WrapperState]:
        if is_concrete(params):
            check_params(self, params)
        x = self._direction(key, params)
        obs, state = self.env.reset(key, self.attacked(params, x))
        return obs, WrapperState(state, x)

    def step(self, key: Array, state: WrapperState, action: Any, params: AttackParams) -> TimeStep:
        ts = self.env.step(key, state.env, action, self.attacked(params, state.memory))
        return ts._replace(state=WrapperState(ts.state, state.memory))

    def transition(self, key: Array, state: WrapperState, action: Any, params: AttackParams) -> Transition:
        out = self.env.transition(key, state.env, action, self.attacked(params, state.memory))
        return out._replace(state=WrapperState(out.state, state.memory))

    def observe(self, key: Array, state: WrapperState, params: AttackParams) -> Any:
        return self.env.observe(key, state.env, self.attacked(params, state.memory))

    def terminal(self, obs: Any, params: AttackParams) -> Bool[Array, ""]:
        """Raises NotImplementedError: ends may depend on the parameters of an episode, which are not observed."""
        raise NotImplementedError(f"DynamicsAttack changes parameters of {self.id}, so observations do not tell ends.")

    def validate(self, params: AttackParams) -> None:
        super().validate(params)
        strength = np.asarray(params.strength)
        if not np.all(strength < 1):
            raise ValueError(f"DynamicsAttack: strength={strength} must be from 0 to below 1: it is a share.")
        if self.adversary is not None and params.victim is None and np.any(strength > 0):
            raise ValueError("DynamicsAttack: params have no victim; take those of `attacking(..., victim=...)`.")
        size = sum(math.prod(np.shape(field(params.env, name))) for name in self.names)
        for end in (-1.0, 1.0):
            self.env.validate(self.attacked(params.replace(strength=strength.max()), jnp.full(size, end)))

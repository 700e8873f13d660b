"""Probe environments, whose values are known: each finds one fault of an algorithm (after rejax and Andy Jones)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space


@pytree
class ProbeParams:
    max_steps: jax.Array = NO_LIMIT


@pytree
class ProbeState:
    time: jax.Array  # steps since reset
    cue: jax.Array  # -1 or 1, drawn at the start


class Known(NamedTuple):
    """What is known of a probe under the best policy, for a batch of B observations."""

    obs: Any  # (B, ...)
    value: Float[Array, " B"]
    action: Any  # (B, ...): the best one; None where actions do not matter
    tolerance: float = 0.0  # by which an action may miss it


@dataclasses.dataclass(frozen=True)
class Probe(Environment):
    """One step, observation 0, reward 1, actions without effect; subclasses change one thing each.

    `kind` is the action space: "discrete" (2 actions), "box" (one number in [-2, 1], so that units and middle matter)
    or "multi_discrete" (2 and 3 actions).
    """

    kind: str = "discrete"
    id: str = dataclasses.field(default="", kw_only=True)

    Params = ProbeParams
    hints = Hints(reset="dense")

    def __post_init__(self) -> None:
        if self.kind not in ("discrete", "box", "multi_discrete"):
            raise ValueError(f"kind={self.kind!r}: it is 'discrete', 'box' or 'multi_discrete'.")
        if not self.id:
            object.__setattr__(self, "id", f"{type(self).__name__}-{self.kind}")

    def initial(self, key: Array, params: Any) -> ProbeState:
        return ProbeState(jnp.int32(0), jax.random.rademacher(key, (), jnp.result_type(float)))

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        return Transition(state, self.reward(state, action), jnp.bool_(True), jnp.bool_(False), {})

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return jnp.ones_like(state.cue)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return jnp.zeros_like(state.cue)[None]

    def observation_space(self, params: Any) -> Space:
        return Box(-1.0, 1.0, (1,))

    def action_space(self, params: Any) -> Space:
        if self.kind == "box":
            return Box(-2.0, 1.0, (1,))
        return Discrete(2) if self.kind == "discrete" else MultiDiscrete((2, 3))

    def best(self, cue: Float[Array, "*batch"]) -> Shaped[Array, "*batch_and_action"]:
        """The action that earns 1: the sign of the cue as an action of this kind."""
        up = (cue > 0).astype(jnp.int32)
        if self.kind == "box":
            return jnp.where(cue > 0, 0.5, -1.25)[..., None]
        return up if self.kind == "discrete" else jnp.stack([1 - up, 2 * up], -1)

    def match(self, action: Any, cue: Float[Array, ""]) -> Float[Array, ""]:
        """1 for the best action, less the further from it."""
        best = self.best(cue)
        if self.kind == "box":
            return 1 - jnp.sum((action - best) ** 2).astype(cue.dtype)
        return jnp.mean(action == best, dtype=cue.dtype)

    def known(self, gamma: float) -> Known:
        """Observations with the value and the action of the best policy there."""
        return Known(jnp.zeros((1, 1)), jnp.ones(1), None)


CUES = np.array([-1.0, 1.0], np.float32)


class ConstantReward(Probe):
    """Value 1: the value loss works at all."""


class ObservationReward(Probe):
    """The reward is the observation, -1 or 1: the value sees the observation."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return state.cue

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return state.cue[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.asarray(CUES)[:, None], jnp.asarray(CUES), None)


class DelayedReward(Probe):
    """Two steps, observed 0 and 1, with the reward 1 at the end: the discount works."""

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        last = state.time == 1
        return Transition(state, last.astype(state.cue.dtype), last, jnp.bool_(False), {})

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return (state.time == 1).astype(state.cue.dtype)[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.array([[0.0], [1.0]]), jnp.array([gamma, 1.0]), None)


class ActionReward(Probe):
    """The reward is for one action, always the same: the policy loss works."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return self.match(action, jnp.ones_like(state.cue))

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1), self.best(jnp.ones(1)), 0.3)


class ObservationActionReward(Probe):
    """The best action is told by the observation: the policy sees it, and actions belong to their observations."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return self.match(action, state.cue)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return state.cue[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.asarray(CUES)[:, None], jnp.ones(2), self.best(jnp.asarray(CUES)), 0.3)


@pytree
class TimeLimitParams:
    max_steps: jax.Array = 5


class TimeLimit(Probe):
    """Reward 1 for ever, cut every 5 steps: value 1 / (1 - gamma) for who bootstraps at a time limit, else about 3."""

    Params = TimeLimitParams

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        return Transition(state, self.reward(state, action), jnp.bool_(False), jnp.bool_(False), {})

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1) / (1 - gamma), None)


@pytree
class TerminationParams:
    max_steps: jax.Array = NO_LIMIT
    probability: jax.Array = 0.2  # of ending, each step


class Termination(Probe):
    """`TimeLimit`'s twin, ending by itself after 5 steps on average: value 1 / (1 - 0.8 gamma)."""

    Params = TerminationParams

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        end = jax.random.bernoulli(key, params.probability)
        return Transition(state, self.reward(state, action), end, jnp.bool_(False), {})

    def known(self, gamma: float) -> Known:
        return Known(jnp.zeros((1, 1)), jnp.ones(1) / (1 - 0.8 * gamma), None)


class Masked(Probe):
    """Four actions; the mask allows the first two (cue -1) or the others. Odd ones earn 1, forbidden ones -10."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        allowed = (action >= 2) == (state.cue > 0)
        return jnp.where(allowed, (action % 2).astype(state.cue.dtype), -10.0)

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return {"obs": jnp.zeros_like(state.cue)[None], "action_mask": (jnp.arange(4) >= 2) == (state.cue > 0)}

    def observation_space(self, params: Any) -> Space:
        return Dict({"obs": Box(-1.0, 1.0, (1,)), "action_mask": Box(0, 1, (4,), jnp.bool_)})

    def action_space(self, params: Any) -> Space:
        return Discrete(4)

    def known(self, gamma: float) -> Known:
        mask = (jnp.arange(4) >= 2) == (CUES[:, None] > 0)
        return Known({"obs": jnp.zeros((2, 1)), "action_mask": mask}, jnp.ones(2), jnp.array([1, 3]))


class Privileged(Probe):
    """`ObservationReward` with the cue in `privileged`: the critic sees it, the policy acts without it."""

    def reward(self, state: ProbeState, action: Any) -> Float[Array, ""]:
        return state.cue

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return {"obs": jnp.zeros_like(state.cue)[None], "privileged": state.cue[None]}

    def observation_space(self, params: Any) -> Space:
        return Dict({"obs": Box(-1.0, 1.0, (1,)), "privileged": Box(-1.0, 1.0, (1,))})

    def known(self, gamma: float) -> Known:
        return Known({"obs": jnp.zeros((2, 1)), "privileged": jnp.asarray(CUES)[:, None]}, jnp.asarray(CUES), None)


class Recall(Probe):
    """Three steps; the first shows the cue, the other two reward the action that it tells: a carry remembers.

    It is none of `PROBES`, as without a memory it cannot be learned: the same action for both cues earns at most 0.47
    of 2 in a box, and 1 of 2 where actions are discrete.
    """

    def transition(self, key: Array, state: ProbeState, action: Any, params: Any) -> Transition:
        reward = jnp.where(state.time > 0, self.match(action, state.cue), 0)
        return Transition(state, reward, state.time == 2, jnp.bool_(False), {})

    def observe(self, key: Array, state: ProbeState, params: Any) -> Any:
        return jnp.where(state.time == 0, state.cue, 0)[None]

    def known(self, gamma: float) -> Known:
        return Known(jnp.asarray(CUES)[:, None], jnp.full(2, gamma + gamma**2), None)


PROBES: tuple[Probe, ...] = (
    ConstantReward(),
    ObservationReward(),
    DelayedReward(),
    ActionReward(),
    ObservationActionReward(),
    TimeLimit(),
    Termination(),
    Masked(),
    Privileged(),
    ObservationActionReward("multi_discrete"),
    ConstantReward("box"),
    ObservationReward("box"),
    DelayedReward("box"),
    ActionReward("box"),
    ObservationActionReward("box"),
    TimeLimit("box"),
    Termination("box"),
)
"""Every probe without a need of memory, in the order in which an algorithm should be made to pass them."""

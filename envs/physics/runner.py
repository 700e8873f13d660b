"""What the tasks that run along x share: starts near rest, a reward of speed less effort, an observation without x."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition

from .task import ModelTask, State, noise


def names_of(joints: tuple[str, ...]) -> tuple[str, ...]:
    """Of the observation: height, pitch and the joints' angles, then the rates of x and of these."""
    places = ("z [m]", "pitch [rad]", *(f"{name} [rad]" for name in joints))
    return (*places, "x_dot [m/s]", "z_dot [m/s]", "pitch_dot [rad/s]", *(f"{name}_dot [rad/s]" for name in joints))


@dataclasses.dataclass(frozen=True)
class Runner(ModelTask):
    """Base of the tasks. Params have `forward` (reward a metre a second), `control` and `reset_noise`."""

    most_rate: ClassVar[float] = math.inf
    """Where observed rates are cut."""

    def start_rates(self, key: Key[Array, ""], rest: Float[Array, "n"], params: Any) -> Float[Array, "n"]:
        return noise(key, rest, params.reset_noise)

    def healthy(self, state: State, params: Any) -> Bool[Array, ""]:
        """Whether the episode goes on."""
        return jnp.bool_(True)

    def reward_terms(
        self, speed: Float[Array, ""], action: Float[Array, "m"], safe: Bool[Array, ""], params: Any
    ) -> dict[str, Float[Array, ""]]:
        """What the reward is the sum of."""
        effort = jnp.sum(action**2).astype(speed.dtype)
        return {"reward/forward": params.forward * speed, "reward/control": -params.control * effort}

    def initial(self, key: Key[Array, ""], params: Any) -> State:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qpos = rest + noise(keys[0], rest, params.reset_noise)
        return State(jnp.int32(0), qpos, self.start_rates(keys[1], rest, params), jnp.zeros_like(rest))

    def transition(self, key: Array, state: State, action: Float[Array, "m"], params: Any) -> Transition:
        moved = self.advance(state, action, params.model)
        speed = (moved.qpos[0] - state.qpos[0]) / (self.frame_skip * params.model["timestep"])
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        safe = self.healthy(state, params)
        terms = self.reward_terms(speed, action, safe, params)
        reward: Any = sum(terms.values())
        info = {"x [m]": moved.qpos[0], "x_dot [m/s]": speed, **terms}
        return Transition(state, reward, ~safe, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Any) -> Float[Array, "n"]:
        return jnp.concatenate([state.qpos[1:], jnp.clip(state.qvel, -self.most_rate, self.most_rate)])

"""Quadcopter-MultiHover-v0: several drones rise to heights of their own, as gym-pybullet-drones' MultiHoverAviary.

Everything is as in `tasks/gpd_hover.py`, for each of `num_drones`: drone i starts 0.1588 i m along x and y, to rise by
1 / (i + 1) m. Reward: the sum of theirs (a perfect episode of two is worth 968; upstream stops training at 949.5 with
`one_d_rpm`, else at 920). The episode ends when all their distances together are below 0.1 mm, and is cut when one is
2 m aside or up, or too tilted. They do not meet; `downwash=True` lets those above press on those below.

One policy moves all, as upstream: observations and actions one after the other in one vector. With `joint=False` every
drone is an agent, on a leading axis: it sees itself and earns its own reward.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree
from jaxrl.spaces import Box, Dict
from jaxrl.telemetry import named

from .. import dynamics, rotations
from ..dynamics import Drone
from ..tasks.gpd_hover import GpdHover, lost, reward
from ..tasks.gpd_hover import Params as HoverParams
from ..tasks.task import State


@pytree
class Params(HoverParams):
    start: jax.Array = ()  # (M, 3) m
    target: jax.Array = ()  # (M, 3) m
    arena: jax.Array = 2.0  # m, most of |x| and |y|


@dataclasses.dataclass(frozen=True)
class MultiHover(GpdHover):
    id: str = dataclasses.field(default="Quadcopter-MultiHover-v0", kw_only=True)
    Params = Params

    num_drones: int = 2
    joint: bool = True
    downwash: bool = False
    static_ranges = {"num_drones": (2, 100)}

    @property
    def default_params(self) -> Params:
        i = jnp.arange(self.num_drones, dtype=jnp.result_type(float))
        aside = 4 * 0.0397 * i
        start = jnp.stack([aside, aside, jnp.full_like(i, 0.1125)], 1)
        return super().default_params.replace(start=start, target=start.at[:, 2].add(1 / (i + 1)))

    @property
    def num_agents(self) -> int:
        return 1 if self.joint else self.num_drones

    @property
    def agents(self) -> tuple[int, ...]:
        return (self.num_drones,)

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        one = dynamics.at_rest(params.model, rpm=0.0)
        drone = jax.tree.map(lambda x: jnp.broadcast_to(x, self.agents), one)
        return drone._replace(position=tuple(params.start[:, i] for i in range(3))), ()

    def validate(self, params: Params) -> None:
        super().validate(params)
        for name in ("start", "target"):
            shape = np.shape(getattr(params, name))
            if shape[-2:] != (self.num_drones, 3):
                raise ValueError(f"{self.id}: {name} has shape {shape}; {self.num_drones} drones need (.., M, 3).")

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return tuple(params.target[:, i] for i in range(3)), (0.0, 0.0, 0.0)

    def transition(self, key: Array, state: State, action: Float[Array, "..."], params: Params) -> Transition:
        return super().transition(key, state, action.reshape(self.num_drones, -1), params)

    def judge(self, state: State, action: Float[Array, "M A"], drone: Drone, params: Params) -> Transition:
        target = tuple(params.target[:, i] for i in range(3))
        distance = rotations.norm(rotations.add(drone.position, target, -1))
        gain = reward(drone.position, target)
        info = {"distance": jnp.mean(distance)}
        terminated = jnp.sum(distance) < params.reached
        return Transition((), jnp.sum(gain) if self.joint else gain, terminated, jnp.any(lost(drone, params)), info)

    @property
    def observation_names(self) -> tuple[str, ...]:
        return self._of_each(super().observation_names)

    @property
    def action_names(self) -> tuple[str, ...]:
        return self._of_each(super().action_names)

    def _of_each(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self.joint:
            return names
        return tuple(name for drone in range(1, self.num_drones + 1) for name in named(names, f"drone {drone}: "))

    def observe(self, key: Array, state: State, params: Params) -> Any:
        obs = super().observe(key, state, params)
        return jax.tree.map(jnp.ravel, obs) if self.joint else obs

    def observation_space(self, params: Params) -> Any:
        space = super().observation_space(params)
        if not self.joint:
            return space
        return Dict({k: self._joined(v) for k, v in space.spaces.items()}) if self.privileged else self._joined(space)

    def action_space(self, params: Params) -> Box:
        space = super().action_space(params)
        return self._joined(space) if self.joint else space

    def _joined(self, box: Box) -> Box:
        return Box(box.low, box.high, (self.num_drones * box.shape[0],))

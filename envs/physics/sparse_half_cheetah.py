"""SparseHalfCheetah-v0: run to one of two stretches of the ground, ahead or behind, and be there when time is up.

A task of exploration for searchers of diversity, after the ant of Paolo, Coninx, Doncieux and Laflaquiere (2021),
"Sparse reward exploration via novelty search and emitters", arXiv:2102.03140, on a body that stays in a plane; the
bands are this project's choice. Observation, action, starts and equations are `HalfCheetah-v5`'s (half_cheetah.py).
Reward, in the last of `max_steps` alone, with x the place of the torso [m] and the first of the bands `areas` that x is
in:

    1 - |x - centre| / radius        0 in no band

`info["area"]` is that band's number, from 1; 0 for none. No end of its own. `telemetry` has x with the limits +-`far`,
which a descriptor takes; beyond them it goes on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive
from jaxrl.telemetry import Quantity

from .half_cheetah import HalfCheetah
from .task import State


@pytree
class Params:
    max_steps: jax.Array = 200
    model: Any = None  # the model's numbers, by MuJoCo's names
    reset_noise: jax.Array = 0.1
    areas: jax.Array = dataclasses.field(default_factory=lambda: np.asarray(((15.0, 3.0), (-15.0, 1.5))))
    # (G, 2) centre and radius of a band of x [m]
    far: jax.Array = 20.0  # m, of the descriptor's limits


def band_and_worth(x: Float[Array, ""], areas: Float[Array, "G 2"]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The number of the first band around x, from 1, or 0; and 1 in its middle, 0 at its rim and outside."""
    distance = jnp.abs(x - areas[:, 0])
    inside = distance <= areas[:, 1]
    first = jnp.argmax(inside)
    worth = jnp.where(inside.any(), 1 - distance[first] / areas[first, 1], 0)
    return jnp.where(inside.any(), first + 1, 0).astype(jnp.int32), worth


@dataclasses.dataclass(frozen=True)
class SparseHalfCheetah(HalfCheetah):
    id: str = dataclasses.field(default="SparseHalfCheetah-v0", kw_only=True)
    Params = Params

    def start_rates(self, key: Key[Array, ""], rest: Float[Array, "n"], params: Any) -> Float[Array, "n"]:
        return params.reset_noise * jax.random.normal(key, rest.shape, rest.dtype)

    def transition(self, key: Array, state: State, action: Float[Array, "m"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        area, worth = band_and_worth(state.qpos[0], params.areas)
        reward = jnp.where(state.time + 1 >= params.max_steps, worth, 0)
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), {"x [m]": state.qpos[0], "area": area})

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        return {"x": Quantity(state.qpos[0], low=-params.far, high=params.far), **super().telemetry(state, params)}

    def validate(self, params: Params) -> None:
        super(HalfCheetah, self).validate(params)
        require_non_negative(self, params, "reset_noise")
        require_positive(self, params, "far")
        areas = np.asarray(params.areas)
        if areas.shape[-1:] != (2,):
            raise ValueError(f"{self.id}: areas has shape {areas.shape}: (..., 2).")
        if not np.all(areas[..., 1] > 0):
            raise ValueError(f"{self.id}: areas: a radius of {areas[..., 1]} must be positive.")

"""Fishery-v0: harvest one or two of three interacting fish populations for 200 years without losing any of them.

Montealegre-Mora, Lapeyrolerie, Chapman, Keller and Boettiger (2023), "Pretty darn good control: when are approximate
solutions better than approximate models", Bull. Math. Biol., arXiv:2308.13654. Species X and Y compete, Z preys on
both. Each year effort M takes its part, `x = X - M_X X` (likewise y), then, with standard normal noise e,

    X' = x + r_X(t) x (1 - x / K_X) -   beta z x^2 / (c^2 + x^2) - c_XY x y + sigma_X x e_X
    Y' = y + r_Y    y (1 - y / K_Y) - D beta z y^2 / (c^2 + y^2) - c_XY x y + sigma_Y y e_Y
    Z' = z + z (b (x + D y) - d_Z)                                          + sigma_Z z e_Z
    r_X(t) = r_X max(1 - r_x_drift t, r_x_floor)

The paper's Model 2 is the default, Model 3 has `num_fisheries=2`, Model 4 also `r_x_drift=0.005` (halved in 100 years).
Constants are those of the authors' code; its noise, sigma = 0.1, also is what reproduces the authors' published returns
(their text gives variances of 0.05, under which even unfished populations crash).

| observation | unit | range |
|---|---|---|
| 2 X / bound - 1 | biomass, in carrying capacities, mapped | [-1, 1], clipped |
| 2 Y / bound - 1 | the same | [-1, 1] |
| 2 Z / bound - 1 | the same | [-1, 1] |

Action: the effort, the part of X (and of Y, with two fisheries) that is caught, in [0, 1], clipped. Reward: the catch
less `cost` a unit of effort; `-penalty / t` more in the year t (from 1) in which a population is down to `threshold`,
which ends the episode. Time is not observed. Results: docs/envs/fishery.md.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Transition, pytree, require_non_negative, require_positive
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

Scalar = Float[Array, ""]


@pytree
class Params:
    max_steps: jax.Array = 200  # years
    r_x: jax.Array = 1.0  # 1/year, growth
    r_y: jax.Array = 1.0  # 1/year
    k_x: jax.Array = 1.0  # carrying capacity
    k_y: jax.Array = 1.0
    beta: jax.Array = 0.3  # 1/year, most that one Z eats
    c: jax.Array = 0.3  # half-saturation constant: density of the prey at which Z eats half of its maximum
    c_xy: jax.Array = 0.1  # 1/year, competition
    preference: jax.Array = 1.1  # D: of Z for Y over X
    b: jax.Array = 0.1  # 1/year, births of Z a unit of prey
    d_z: jax.Array = 0.1  # 1/year, deaths of Z
    sigma_x: jax.Array = 0.1  # standard deviation of a year's growth, as a part of the population
    sigma_y: jax.Array = 0.1
    sigma_z: jax.Array = 0.1
    r_x_drift: jax.Array = 0.0  # 1/year, part of r_x lost a year
    r_x_floor: jax.Array = 0.5  # part of r_x that stays
    threshold: jax.Array = 0.05  # biomass at which a population counts as lost
    penalty: jax.Array = 100.0  # for losing one in the first year
    cost: jax.Array = 0.0  # biomass a unit of effort and year
    initial_x: jax.Array = 0.5
    initial_y: jax.Array = 0.5
    initial_z: jax.Array = 0.7
    initial_sigma: jax.Array = 0.02
    bound: jax.Array = 4.0  # biomass observed as 1


@pytree
class State:
    time: jax.Array  # years since reset
    x: jax.Array  # biomass, in carrying capacities
    y: jax.Array
    z: jax.Array


def growth_rate(time: Array, params: Params) -> Scalar:
    """r_X of the year that starts `time` years after reset (paper eq. 5)."""
    return params.r_x * jnp.maximum(1 - params.r_x_drift * time, params.r_x_floor)


def recruitment(
    x: Scalar, y: Scalar, z: Scalar, r_x: Scalar, noise: tuple[Scalar, Scalar, Scalar], params: Params
) -> tuple[Scalar, Scalar, Scalar]:
    """Next year's populations of what is left after the harvest (paper eq. 4), never below zero."""
    p = params
    eaten_x = p.beta * z * x**2 / (p.c**2 + x**2)
    eaten_y = p.preference * p.beta * z * y**2 / (p.c**2 + y**2)
    competition = p.c_xy * x * y
    return (
        jnp.maximum(x + r_x * x * (1 - x / p.k_x) - eaten_x - competition + p.sigma_x * x * noise[0], 0),
        jnp.maximum(y + p.r_y * y * (1 - y / p.k_y) - eaten_y - competition + p.sigma_y * y * noise[1], 0),
        jnp.maximum(z + z * (p.b * (x + p.preference * y) - p.d_z) + p.sigma_z * z * noise[2], 0),
    )


def constant_mortality(population: Scalar, mortality: Scalar) -> Scalar:
    """The effort of the constant-mortality rule: the same part of any stock (Schaefer 1954)."""
    return jnp.broadcast_to(mortality, population.shape)


def constant_escapement(population: Scalar, escapement: Scalar) -> Scalar:
    """The effort of the constant-escapement rule: catch what exceeds `escapement` (Clark 1973, Reed 1979)."""
    # Dividing by the larger one keeps the derivative finite at a stock of zero.
    safe = jnp.where(population > escapement, population, 1)
    return jnp.where(population > escapement, 1 - escapement / safe, 0)


@dataclasses.dataclass(frozen=True)
class Fishery(Environment):
    num_fisheries: int = 1  # 1: X is fished; 2: X and Y
    id: str = dataclasses.field(default="Fishery-v0", kw_only=True)
    Params = Params
    observation_names = ("2 X / bound - 1", "2 Y / bound - 1", "2 Z / bound - 1")
    static_ranges = {"num_fisheries": (1, 2)}

    def initial(self, key: Array, params: Params) -> State:
        e_x, e_y, e_z = params.initial_sigma * jax.random.normal(key, (3,))
        x, y, z = params.initial_x + e_x, params.initial_y + e_y, params.initial_z + e_z
        return State(jnp.int32(0), jnp.maximum(x, 0), jnp.maximum(y, 0), jnp.maximum(z, 0))

    def transition(self, key: Array, state: State, action: Float[Array, " fisheries"], params: Params) -> Transition:
        effort = jnp.clip(action, 0, 1).astype(state.x.dtype)
        effort_x = effort[0]
        effort_y = effort[1] if self.num_fisheries == 2 else jnp.zeros_like(effort_x)
        catch = effort_x * state.x + effort_y * state.y
        e_x, e_y, e_z = jax.random.normal(key, (3,), state.x.dtype)
        x, y, z = recruitment(
            state.x * (1 - effort_x),
            state.y * (1 - effort_y),
            state.z,
            growth_rate(state.time, params),
            (e_x, e_y, e_z),
            params,
        )
        lost = (x <= params.threshold) | (y <= params.threshold) | (z <= params.threshold)
        terms = {
            "reward/catch": catch,
            "reward/cost": -params.cost * (effort_x + effort_y),
            "reward/lost": -jnp.where(lost, params.penalty / (state.time + 1), 0),
        }
        return Transition(
            state.replace(x=x, y=y, z=z), sum(terms.values(), jnp.zeros_like(catch)), lost, jnp.bool_(False), terms
        )

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "3"]:
        return jnp.clip(2 * jnp.stack([state.x, state.y, state.z]) / params.bound - 1, -1, 1)

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("effort on X", "effort on Y")[: self.num_fisheries]

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        fish = {"X": state.x, "Y": state.y, "Z": state.z}
        return {f"{name} [capacities]": Quantity(x, low=params.threshold) for name, x in fish.items()}

    def observation_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (3,))

    def action_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (self.num_fisheries,))

    def validate(self, params: Params) -> None:
        require_positive(self, params, "k_x", "k_y", "c", "bound", "initial_x", "initial_y", "initial_z")
        names = ("r_x", "r_y", "beta", "c_xy", "preference", "b", "d_z", "sigma_x", "sigma_y", "sigma_z", "r_x_drift")
        require_non_negative(self, params, *names, "r_x_floor", "threshold", "initial_sigma")
        for name in ("initial_x", "initial_y", "initial_z"):
            if not np.all(np.asarray(getattr(params, name)) > np.asarray(params.threshold)):
                raise ValueError(
                    f"{self.id}: {name}={getattr(params, name)} must be above threshold={params.threshold}."
                )

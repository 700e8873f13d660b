"""RedundantArm-v0: fold an arm of 20 joints on a plane among walls until its tip is in one of three small areas.

The task of Paolo, Coninx, Doncieux and Laflaquiere (2021), "Sparse reward exploration via novelty search and emitters",
arXiv:2102.03140 (SERENE 83bc38a). The arm, `length` long, is rooted in the middle of the unit square and starts as a
spiral. Angle q_i is between a segment and the one before, the first from straight up; in each of two substeps

    q' = q + dt v + dt^2 u / 2        v' = (q' - q) / dt

| observation | unit of 1 | range |
|---|---|---|
| the angles q | pi | unbounded |

Action: u [rad/s^2] of every joint in [-1, 1], clipped. A substep is not made, and the episode terminates, where after
it a joint is outside the square or within a wall, two joints are nearer than 0.95 of a segment in |dx| + |dy| (the arm
would go through itself), or half of the tip's way [1] plus the last joint's v exceeds 1 (the authors' test of speed,
whose parts have different units). Reward: at the end of the episode alone, 1 - d / radius of the first area that the
tip is in, else 0. Truncated after `max_steps`. `info["area"]` is that area's number, from 1; 0 for none. Deterministic.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.canvas import BLUE, GREEN, INK, ORANGE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree, require_positive
from jaxrl.spaces import Box
from jaxrl.telemetry import Curve, Plane, Quantity

SUBSTEPS = 2
ROOT = 0.5
CROSS = ((0.49, 0.0, 0.02, 0.2), (0.49, 0.8, 0.02, 0.2), (0.0, 0.49, 0.2, 0.02), (0.8, 0.49, 0.2, 0.02))
AREAS = ((0.25, 0.25, 0.05), (0.85, 0.85, 0.05), (0.25, 0.9, 0.05))


def _leaf(values: Any) -> Any:
    return dataclasses.field(default_factory=lambda: np.asarray(values, float))


@pytree
class Params:
    """Lengths are in sides of the square."""

    max_steps: jax.Array = 250
    dt: jax.Array = 0.01  # s, of a substep
    length: jax.Array = 1.0  # of the whole arm
    walls: jax.Array = _leaf(CROSS)  # (W, 4) x, y of the lower left corner, width, height
    areas: jax.Array = _leaf(AREAS)  # (G, 3) x, y, radius


@pytree
class State:
    time: jax.Array  # steps since reset
    angle: jax.Array  # (J,) rad
    speed: jax.Array  # (J,) rad/s


def joints(angle: Float[Array, " J"], length: Float[Array, ""]) -> tuple[Float[Array, " J+1"], Float[Array, " J+1"]]:
    """x and y of the root, the joints and the tip."""
    heading = math.pi / 2 + jnp.cumsum(angle)
    segment = length / angle.shape[0]
    root = jnp.full(1, ROOT, angle.dtype)
    x = ROOT + segment * jnp.cumsum(jnp.cos(heading))
    y = ROOT + segment * jnp.cumsum(jnp.sin(heading))
    return jnp.concatenate([root, x]), jnp.concatenate([root, y])


def possible(after: Float[Array, " J"], state: State, params: Params) -> Bool[Array, ""]:
    """Whether the arm may have these angles a substep after `state`."""
    J = after.shape[0]
    (x, y), (x0, y0) = joints(after, params.length), joints(state.angle, params.length)
    speed = jnp.sqrt((x[-1] - x0[-1]) ** 2 + (y[-1] - y0[-1]) ** 2) / SUBSTEPS + state.speed[-1]
    inside = (jnp.minimum(x.min(), y.min()) >= 0) & (jnp.maximum(x.max(), y.max()) < 1)
    left, low, width, height = params.walls.T[:, :, None]
    blocked = jnp.any((left < x) & (x < left + width) & (low < y) & (y < low + height))
    apart = jnp.abs(x[:, None] - x) + jnp.abs(y[:, None] - y)
    pairs = np.triu(np.ones((J + 1, J + 1), bool), 1)
    crossing = jnp.any(pairs & (apart < 0.95 * params.length / J))
    return (speed <= 1) & inside & ~blocked & ~crossing


def dynamics(state: State, acceleration: Float[Array, " J"], params: Params) -> tuple[State, Bool[Array, ""]]:
    """`(state, stopped)` after a step, up to the substep that was not possible."""
    stopped = jnp.bool_(False)
    for _ in range(SUBSTEPS):
        angle = acceleration / 2 * params.dt**2 + state.speed * params.dt + state.angle
        stopped = stopped | ~possible(angle, state, params)
        speed = (angle - state.angle) / params.dt
        state = state.replace(
            angle=jnp.where(stopped, state.angle, angle), speed=jnp.where(stopped, state.speed, speed)
        )
    return state, stopped


def area_and_worth(
    x: Float[Array, ""], y: Float[Array, ""], areas: Float[Array, "G 3"]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The number of the first area around a place, from 1, or 0; and 1 in its middle, 0 at its rim and outside."""
    distance = jnp.sqrt((areas[:, 0] - x) ** 2 + (areas[:, 1] - y) ** 2)
    inside = distance <= areas[:, 2]
    first = jnp.argmax(inside)
    worth = jnp.where(inside.any(), 1 - distance[first] / areas[first, 2], 0)
    return jnp.where(inside.any(), first + 1, 0).astype(jnp.int32), worth


@dataclasses.dataclass(frozen=True)
class RedundantArm(Environment):
    id: str = dataclasses.field(default="RedundantArm-v0", kw_only=True)
    num_joints: int = 20

    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"num_joints": (20, 200)}  # with fewer a segment could lie across a wall between two joints

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f"angle {i + 1}, 1 is pi" for i in range(self.num_joints))

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f"acceleration {i + 1} [rad/s^2]" for i in range(self.num_joints))

    def initial(self, key: Array, params: Params) -> State:
        most = 4 * math.pi / self.num_joints
        angle = jnp.linspace(most, most / 4, self.num_joints, dtype=params.length.dtype)
        return State(jnp.int32(0), angle, jnp.zeros_like(angle))

    def transition(self, key: Array, state: State, action: Float[Array, " J"], params: Params) -> Transition:
        after, stopped = dynamics(state, jnp.clip(action, -1, 1).astype(state.angle.dtype), params)
        x, y = joints(after.angle, params.length)
        area, worth = area_and_worth(x[-1], y[-1], params.areas)
        last = stopped | (state.time + 1 >= params.max_steps)
        return Transition(after, jnp.where(last, worth, 0), stopped, jnp.bool_(False), {"area": area})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, " J"]:
        return state.angle / math.pi

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (self.num_joints,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (self.num_joints,))

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        x, y = joints(state.angle, params.length)
        return {"tip x": Quantity(x[-1], low=0.0, high=1.0), "tip y": Quantity(y[-1], low=0.0, high=1.0)}

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        areas = np.asarray(params.areas, float)
        curves = [Curve("tip", telemetry["tip x"].value, telemetry["tip y"].value, "path")]
        curves.append(Curve("areas", areas[:, 0], areas[:, 1], "dots"))
        return [Plane("The square from above", "x", "y", curves, equal=True)]

    def validate(self, params: Params) -> None:
        require_positive(self, params, "dt", "length")
        for name, columns in (("walls", 4), ("areas", 3)):
            if np.shape(getattr(params, name))[-1:] != (columns,):
                raise ValueError(f"{self.id}: {name} has shape {np.shape(getattr(params, name))}: (..., {columns}).")
        if not np.all(np.asarray(params.areas)[..., 2] > 0):
            raise ValueError(f"{self.id}: areas: a radius of {np.asarray(params.areas)[..., 2]} must be positive.")

    def render(self, state: State, params: Params) -> np.ndarray:
        canvas = Canvas(400, 400, 1.04, (0.5, 0.5))
        for x, y, radius in np.asarray(params.areas, float).tolist():
            canvas.circle((x, y), radius, GREEN)
        for x, y, width, height in np.asarray(params.walls, float).tolist():
            canvas.rectangle((x, y), (x + width, y + height), INK)
        corners = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]
        for start, end in zip(corners, corners[1:], strict=False):
            canvas.line([start, end], 0.008, INK)
        places = [tuple(place) for place in np.stack(joints(state.angle, params.length), -1).tolist()]
        for start, end in zip(places, places[1:], strict=False):
            canvas.line([start, end], 0.012, BLUE)
        canvas.circle(places[-1], 0.012, ORANGE)
        return canvas.image()

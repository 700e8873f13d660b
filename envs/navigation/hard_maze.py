"""HardMaze-v0, KheperaxMaze-v0: a robot with two wheels, three lasers and two bumpers in the deceptive maze.

The maze of Lehman and Stanley (2011), "Abandoning objectives: evolution through the search for novelty alone", in the
unit square: what leads towards a goal ends in a dead end. HardMaze-v0 is the task of Paolo, Coninx, Doncieux and
Laflaquiere (2021), "Sparse reward exploration via novelty search and emitters", arXiv:2102.03140 (SERENE 83bc38a), with
two reward areas; KheperaxMaze-v0 that of Grillotti and Cully (2023), "Kheperax: a lightweight JAX-based robot control
environment for benchmarking quality-diversity algorithms" (0.2.0), whose steps it takes to rounding.

The wheels roll l and r in a step, `max_speed` times the action, 2 `radius` apart; the robot goes along an arc:

    a = (r - l) / (2 radius)        chord = (l + r) / 2 sin(a / 2) / (a / 2)
    x' = x + chord cos(theta + a/2)    y' = y + chord sin(theta + a/2)    theta' = theta + a, in [-pi, pi)

`walls="turns"` (HardMaze-v0): where it would then touch a wall it stays and only turns. `walls="sticks"`
(KheperaxMaze-v0): it goes into the wall, and a robot that touches one before a step does not move any more.

| observation, in this order | unit of 1 | range |
|---|---|---|
| range of the lasers at -45, 0 and 45 degrees from the heading | side of the square | [0, laser_range] |
| right and left bumper: 1 where it touches a wall, else -1 | | {-1, 1} |

A bumper touches what is within the robot's disc before it, on its side or straight ahead: at the place that the step
tried ("turns") or that it left ("sticks").

Action: speed of the left and of the right wheel in [-1, 1], clipped. An episode is `max_steps` long.

| `task` | reward | end |
|---|---|---|
| "areas" (HardMaze-v0) | of the last step alone: 1 - d / radius of the nearest area's middle, not below 0 | none |
| "energy" (KheperaxMaze-v0) | -(l^2 + r^2) | none |
| "target" | minus the distance to the first area's middle | within its radius |

`robot` says whose sizes, speed, range, start, areas and length of an episode the default params are: "serene"
(HardMaze-v0) or "kheperax" (KheperaxMaze-v0).

`info["area"]` is the number of the area that the robot is in, from 1; 0 for none. Walls, start and areas are leaves.
Deterministic: the sparse task is one of exploration, `telemetry` has the place that a descriptor is made of.

What differs from SERENE's code: its maze is a bitmap of 200 x 200, here are kheperax's segments of the same walls; no
episode ends because the robot is stuck. From kheperax: no noise.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.canvas import BLUE, GREEN, INK, ORANGE, PALE, WHITE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree, require_positive
from jaxrl.math import wrap
from jaxrl.spaces import Box
from jaxrl.telemetry import Curve, Plane, Quantity

BORDER = ((0, 0, 1, 0), (0, 0, 0, 1), (0, 1, 1, 1), (1, 1, 1, 0))
INSIDE = (
    (0.25, 0.25, 0.25, 0.75),
    (0.14, 0.45, 0.0, 0.65),
    (0.25, 0.75, 0.0, 0.8),
    (0.25, 0.75, 0.66, 0.875),
    (0.355, 0.0, 0.525, 0.185),
    (0.25, 0.5, 0.75, 0.215),
    (1.0, 0.25, 0.435, 0.55),
)
LASERS = (-math.pi / 4, 0.0, math.pi / 4)
GRAZE = 1e-6  # of a wall's length: a laser that meets its very end sees it, however that rounds
PARALLEL = 1e-12  # a determinant below it: a laser along a wall does not meet it


def _leaf(values: Any) -> Any:
    return dataclasses.field(default_factory=lambda: np.asarray(values, float))


@pytree
class Params:
    """Lengths are in sides of the square; the defaults are SERENE's, of 600 pixels a side."""

    max_steps: jax.Array = 2000
    max_speed: jax.Array = 4 / 600  # of a wheel in a step
    radius: jax.Array = 10 / 600  # of the robot, and half the distance of its wheels
    laser_range: jax.Array = 100 / 600
    start: jax.Array = _leaf((0.1, 0.25, -math.pi / 4))  # (3,) x, y, heading [rad]
    walls: jax.Array = _leaf(BORDER + INSIDE)  # (W, 4) x, y of both ends
    areas: jax.Array = _leaf(((0.1, 0.9, 50 / 600), (1 / 6, 2 / 3, 50 / 600)))  # (G, 3) x, y, radius


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array
    y: jax.Array
    theta: jax.Array  # rad, from x towards y, in [-pi, pi)
    bumpers: jax.Array  # (2,) -1 or 1


Pose = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]


def moved(pose: Pose, left: Float[Array, ""], right: Float[Array, ""], radius: Float[Array, ""]) -> Pose:
    """The pose after the wheels rolled `left` and `right`, exactly, if nothing is in the way."""
    x, y, theta = pose
    half = (right - left) / (4 * radius)
    small = jnp.abs(half) < 1e-3  # the series: sin(h) / h loses nothing there, and has a derivative at 0
    safe = jnp.where(small, 1, half)
    chord = (left + right) / 2 * jnp.where(small, 1 - half * half / 6, jnp.sin(safe) / safe)
    middle = theta + half
    turned = wrap(theta + 2 * half, -math.pi, math.pi)
    return x + chord * jnp.cos(middle), y + chord * jnp.sin(middle), turned


def nearest_points(
    x: Float[Array, ""], y: Float[Array, ""], walls: Float[Array, "W 4"]
) -> tuple[Float[Array, " W"], Float[Array, " W"]]:
    """From a place to the nearest point of each wall: the two parts of the way."""
    x0, y0, x1, y1 = walls.T
    along_x, along_y = x1 - x0, y1 - y0
    length = jnp.maximum(along_x**2 + along_y**2, PARALLEL)
    share = jnp.clip(((x - x0) * along_x + (y - y0) * along_y) / length, 0, 1)
    return x0 + share * along_x - x, y0 + share * along_y - y


def touches(x: Float[Array, ""], y: Float[Array, ""], params: Params) -> Bool[Array, ""]:
    """Whether the robot, a disc, touches a wall."""
    dx, dy = nearest_points(x, y, params.walls)
    return jnp.any(dx * dx + dy * dy <= params.radius**2)


def bumpers(pose: Pose, params: Params) -> Float[Array, "2"]:
    """1 for a wall within the robot's disc before it, on the side of each bumper; -1 elsewhere."""
    x, y, theta = pose
    dx, dy = nearest_points(x, y, params.walls)
    # Of the nearest point in the robot's own axes: before it, and to its left.
    ahead = dx * jnp.cos(theta) + dy * jnp.sin(theta)
    left = dy * jnp.cos(theta) - dx * jnp.sin(theta)
    near = (dx * dx + dy * dy < params.radius**2) & (ahead > 0)
    hit = jnp.stack([jnp.any(near & (left <= 0)), jnp.any(near & (left >= 0))])
    return jnp.where(hit, 1, -1).astype(x.dtype)


def lasers(pose: Pose, params: Params) -> Float[Array, "3"]:
    """The distance to the nearest wall along each laser, at most its range."""
    x, y, theta = pose
    x0, y0, x1, y1 = params.walls.T[:, None]
    angle = theta + jnp.asarray(LASERS, theta.dtype)[:, None]
    dx, dy = jnp.cos(angle), jnp.sin(angle)
    along_x, along_y = x1 - x0, y1 - y0
    across = dx * along_y - dy * along_x
    parallel = jnp.abs(across) < PARALLEL
    safe = jnp.where(parallel, 1, across)
    distance = ((x0 - x) * along_y - (y0 - y) * along_x) / safe
    share = ((x0 - x) * dy - (y0 - y) * dx) / safe
    meets = ~parallel & (distance >= 0) & (share >= -GRAZE) & (share <= 1 + GRAZE)
    return jnp.minimum(jnp.min(jnp.where(meets, distance, jnp.inf), 1), params.laser_range)


def step_of(pose: Pose, left: Float[Array, ""], right: Float[Array, ""], params: Params, sticks: bool) -> State:
    """Where the wheels take the robot among the walls, and what its bumpers say there; the clock is not set."""
    goal = moved(pose, left, right, params.radius)
    if sticks:
        held = touches(pose[0], pose[1], params)
        x, y, theta = (jnp.where(held, old, new) for old, new in zip(pose, goal, strict=True))
        return State(jnp.int32(0), x, y, theta, bumpers(pose, params))
    held = touches(goal[0], goal[1], params)
    x, y = (jnp.where(held, old, new) for old, new in zip(pose[:2], goal[:2], strict=True))
    return State(jnp.int32(0), x, y, goal[2], bumpers(goal, params))


def distances(x: Float[Array, ""], y: Float[Array, ""], areas: Float[Array, "G 3"]) -> Float[Array, " G"]:
    """To the middle of each area."""
    return jnp.sqrt((areas[:, 0] - x) ** 2 + (areas[:, 1] - y) ** 2)


def area_of(x: Float[Array, ""], y: Float[Array, ""], areas: Float[Array, "G 3"]) -> Int[Array, ""]:
    """The number of the area around a place, from 1, of several the first; 0 for none."""
    inside = distances(x, y, areas) <= areas[:, 2]
    return jnp.where(inside.any(), jnp.argmax(inside) + 1, 0).astype(jnp.int32)


def worth(x: Float[Array, ""], y: Float[Array, ""], areas: Float[Array, "G 3"]) -> Float[Array, ""]:
    """What it is worth to end there: 1 in the middle of an area, 0 at its rim and outside."""
    return jnp.max(jnp.maximum(1 - distances(x, y, areas) / areas[:, 2], 0))


@dataclasses.dataclass(frozen=True)
class HardMaze(Environment):
    id: str = dataclasses.field(default="HardMaze-v0", kw_only=True)
    task: str = "areas"  # or "energy", "target"
    walls: str = "turns"  # or "sticks"
    robot: str = "serene"  # or "kheperax": whose numbers the default params are

    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    observation_names = ("laser -45", "laser 0", "laser 45", "bumper right", "bumper left")
    action_names = ("left wheel, 1 is max_speed", "right wheel, 1 is max_speed")

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = {
            "task": ("areas", "energy", "target"),
            "walls": ("turns", "sticks"),
            "robot": ("serene", "kheperax"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{self.id}: {name}={getattr(self, name)!r}; it is one of {', '.join(allowed)}.")

    @property
    def default_params(self) -> Any:
        params = super().default_params
        if self.robot == "serene":
            return params
        areas = jnp.asarray(((0.15, 0.9, 0.05),), params.areas.dtype)
        kheperax = {"max_speed": 0.025, "radius": 0.015, "laser_range": 0.2}
        start = jnp.asarray((0.15, 0.15, math.pi / 2), params.start.dtype)
        numbers = {name: jnp.asarray(x, params.radius.dtype) for name, x in kheperax.items()}
        return params.replace(max_steps=jnp.int32(250), start=start, areas=areas, **numbers)

    def initial(self, key: Array, params: Params) -> State:
        x, y, theta = params.start
        pose = x, y, wrap(theta, -math.pi, math.pi)
        return State(jnp.int32(0), *pose, bumpers(pose, params))

    def transition(self, key: Array, state: State, action: Float[Array, "2"], params: Params) -> Transition:
        left, right = jnp.clip(action, -1, 1).astype(state.x.dtype) * params.max_speed
        pose = state.x, state.y, state.theta
        after = step_of(pose, left, right, params, self.walls == "sticks").replace(time=state.time)
        never, area = jnp.bool_(False), area_of(after.x, after.y, params.areas)
        info = {"area": area}
        if self.task == "energy":
            return Transition(after, -(left**2 + right**2), never, never, info)
        if self.task == "target":
            distance = distances(after.x, after.y, params.areas)[0]
            return Transition(after, -distance, distance < params.areas[0, 2], never, info)
        last = state.time + 1 >= params.max_steps
        reward = jnp.where(last, worth(after.x, after.y, params.areas), 0)
        return Transition(after, reward, never, never, info)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "5"]:
        return jnp.concatenate([lasers((state.x, state.y, state.theta), params), state.bumpers])

    def observation_space(self, params: Params) -> Box:
        far = jnp.asarray(params.laser_range)
        one = jnp.ones_like(far)
        low, high = (0 * far,) * 3 + (-one,) * 2, (far,) * 3 + (one,) * 2
        return Box(jnp.stack(low, -1), jnp.stack(high, -1), (5,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        return {
            "x": Quantity(state.x, low=0.0, high=1.0),
            "y": Quantity(state.y, low=0.0, high=1.0),
            "theta [rad]": Quantity(state.theta, low=-math.pi, high=math.pi),
        }

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        lines = np.asarray(params.walls, float)
        curves = [Curve(f"wall {i + 1}", line[[0, 2]], line[[1, 3]]) for i, line in enumerate(lines)]
        areas = np.asarray(params.areas, float)
        curves.append(Curve("areas", areas[:, 0], areas[:, 1], "dots"))
        curves.append(Curve("robot", telemetry["x"].value, telemetry["y"].value, "path"))
        return [Plane("The maze from above", "x", "y", curves, equal=True)]

    def validate(self, params: Params) -> None:
        require_positive(self, params, "max_speed", "radius", "laser_range")
        for name, columns in (("start", 3), ("walls", 4), ("areas", 3)):
            if np.shape(getattr(params, name))[-1:] != (columns,):
                raise ValueError(f"{self.id}: {name} has shape {np.shape(getattr(params, name))}: (..., {columns}).")
        if not np.all(np.asarray(params.areas)[..., 2] > 0):
            raise ValueError(f"{self.id}: areas: a radius of {np.asarray(params.areas)[..., 2]} must be positive.")

    def render(self, state: State, params: Params) -> np.ndarray:
        canvas = Canvas(400, 400, 1.04, (0.5, 0.5))
        for x, y, radius in np.asarray(params.areas, float).tolist():
            canvas.circle((x, y), radius, GREEN)
        pose = jnp.asarray(state.x), jnp.asarray(state.y), jnp.asarray(state.theta)  # a film's states are of NumPy
        (x, y, theta), reaches = map(float, pose), np.asarray(lasers(pose, params)).tolist()
        for reach, angle in zip(reaches, LASERS, strict=True):
            end = (x + reach * math.cos(theta + angle), y + reach * math.sin(theta + angle))
            canvas.line([(x, y), end], 0.003, PALE)
            canvas.circle(end, 0.006, BLUE)
        for x0, y0, x1, y1 in np.asarray(params.walls, float).tolist():
            canvas.line([(x0, y0), (x1, y1)], 0.01, INK)
        radius = float(params.radius)
        canvas.circle((x, y), radius, ORANGE)
        canvas.line([(x, y), (x + radius * math.cos(theta), y + radius * math.sin(theta))], 0.005, WHITE)
        return canvas.image()

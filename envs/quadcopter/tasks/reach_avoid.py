"""Quadcopter-ReachAvoid-v0: be in a ball within a window of time, past spheres and boxes, and never leave the arena.

    eventually(reach & on_time) & always(clear & inside)

with the robustness of `reach` the radius of the ball less the distance to its centre, of `clear` the distance of the
drone's hull from the nearest obstacle, of `inside` that from the nearest wall [m]. Judged at control steps of 0.05 s.

| observation | components | unit |
|---|---|---|
| position minus the goal, rotation matrix, velocity, body rates (`task.py`) | 18 | |
| position | 3 | m |
| until the window opens and closes | 2 | s |
| robustness so far of reaching it and of safety | 2 | m |
| each obstacle: centre minus position, half a box's sides, radius | 7 each | m |

Actions: velocities (`control/actions.py`). Reward and end: `stl_task.py`. An obstacle is all points within `radius` of
a box of sides 2 `half`: a sphere where the box is a point, a box where the radius is zero.

Levels: `generate`, `mutate`, `validate`; `ReachAvoid(...).as_levels()` flies a given one. The best robustness of a
level is not known; it is below the radius of the goal.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import pytree, require_positive
from jaxrl.exact import stl

from ..rotations import TINY
from ..scene import Scene
from .stl_task import (
    SpecifiedParams,
    SpecifiedTask,
    State,
    check,
    draw_ball,
    draw_box,
    inside,
    on_time,
    settings,
    with_layout,
)


@pytree
class Params(SpecifiedParams):
    """The distribution of levels."""

    goal_radius: jax.Array = (0.3, 0.5)  # m, least and greatest
    opens: jax.Array = (0, 40)  # control steps, likewise
    closes: jax.Array = (90, 130)
    radius: jax.Array = (0.2, 0.7)  # m, of a sphere
    half: jax.Array = (0.15, 0.6)  # m, of a box
    boxes: jax.Array = 0.5  # their share of the obstacles
    margin: jax.Array = 0.3  # m, that obstacles leave about start and goal


@pytree
class Layout:
    start: jax.Array  # (3,) m
    goal: jax.Array  # (3,) m
    goal_radius: jax.Array  # m
    window: jax.Array  # (2,) int32, control steps
    center: jax.Array  # (K, 3) m
    half: jax.Array  # (K, 3) m
    radius: jax.Array  # (K,) m


@pytree
class Level(SpecifiedParams):
    margin: jax.Array = 0.3
    layout: Any = None


# ---- geometry


def clearance(position: Float[Array, "*batch 3"], layout: Any) -> Float[Array, "*batch"]:
    """The signed distance of a point from the nearest obstacle [m]; `layout` has `center`, `half` and `radius`."""
    beyond = jnp.abs(position[..., None, :] - layout["center"]) - layout["half"]
    outside = jnp.sqrt(jnp.sum(jnp.square(jnp.maximum(beyond, 0)), -1) + TINY)
    return jnp.min(outside + jnp.minimum(jnp.max(beyond, -1), 0) - layout["radius"], -1, initial=jnp.inf)


@stl.predicate
def reach(signal: Any) -> Float[Array, " T"]:
    """How deep in the goal [m]."""
    away = signal["position"] - signal["goal"]
    return signal["goal_radius"] - jnp.sqrt(jnp.sum(jnp.square(away), -1) + TINY)


@stl.predicate
def clear(signal: Any) -> Float[Array, " T"]:
    """Between the drone and the nearest obstacle [m]."""
    return clearance(signal["position"], signal["obstacles"]) - signal["radius"]


# ---- level kit


def generate(key: Key[Array, ""], params: Params, obstacles: int = 6) -> Level:
    """Start and goal at opposite ends in x, obstacles in between, at least `margin` from both."""
    u = jax.random.uniform(key, (10 + 8 * obstacles,))
    size = params.arena

    def between(u: Array, limits: Any) -> Array:
        return limits[0] + (limits[1] - limits[0]) * u

    def whole(u: Array, limits: Any) -> Array:
        return jnp.minimum(jnp.floor(between(u, (limits[0], limits[1] + 1))), limits[1]).astype(jnp.int32)

    side = jnp.where(u[0] < 0.5, -1, 1) * jnp.array([1, -1])
    x = side * size[0] * between(u[1:3], (0.6, 0.85))
    y = size[1] * between(u[3:5], (-0.8, 0.8))
    z = size[2] * between(u[5:7], (0.2, 0.8))
    ends = jnp.stack([x, y, z], -1)
    v = u[10:].reshape(obstacles, 8)
    half_arena = size * jnp.array([0.6, 0.9, 0.5])
    center = (2 * v[:, :3] - 1) * half_arena + jnp.array([0, 0, 0.5]) * size
    is_box = v[:, 7] < params.boxes
    half = jnp.where(is_box[:, None], between(v[:, 3:6], params.half), 0)
    radius = jnp.where(is_box, 0, between(v[:, 6], params.radius))
    window = jnp.stack([whole(u[7], params.opens), whole(u[8], params.closes)])
    goal_radius = between(u[9], params.goal_radius)
    layout = Layout(ends[0], ends[1], goal_radius, window, center, half, radius)
    return with_layout(Level, params, _fitted(layout, params.margin))


def _fitted(layout: Layout, margin: Any) -> Layout:
    """With obstacles pushed and shrunk until they leave `margin` about start and goal."""
    center = layout.center
    for end in (layout.start, layout.goal):
        away = center - end
        distance = jnp.sqrt(jnp.sum(jnp.square(away), -1, keepdims=True) + TINY)
        center = end + away * jnp.maximum(distance, margin) / distance
    ends = jnp.stack([layout.start, layout.goal])
    distance = jnp.sqrt(jnp.sum(jnp.square(center[:, None] - ends), -1) + TINY)
    size = jnp.sqrt(jnp.sum(jnp.square(layout.half), -1) + TINY) + layout.radius
    scale = jnp.clip((jnp.min(distance, -1) - margin) / size, 0, 1)
    return layout.replace(center=center, half=layout.half * scale[:, None], radius=layout.radius * scale)


def mutate(key: Key[Array, ""], level: Level) -> Level:
    """A neighbour of `level`: its start, its goal, or an obstacle moved, an obstacle resized, or the window shifted."""
    what_key, which_key, noise_key, shift_key = jax.random.split(key, 4)
    layout = level.layout
    what = jax.random.randint(what_key, (), 0, 5)
    which = jnp.arange(len(layout.radius)) == jax.random.randint(which_key, (), 0, max(len(layout.radius), 1))
    noise = jax.random.normal(noise_key, (3,))
    low, high = level.arena * jnp.array([-0.85, -0.85, 0.2]), level.arena * jnp.array([0.85, 0.85, 0.8])

    def moved(end: Array, other: Array) -> Array:
        new = jnp.clip(end + 0.3 * noise, low, high)
        apart = jnp.sum(jnp.square(new - other)) > 4 * level.margin**2
        return jnp.where(apart, new, end)

    grown = jnp.where(which & (what == 3), jnp.exp(0.3 * noise[0]), 1)
    shift = jax.random.randint(shift_key, (), -10, 11)
    shift = jnp.clip(shift, -layout.window[0], level.max_steps - layout.window[1])
    layout = layout.replace(
        start=jnp.where(what == 0, moved(layout.start, layout.goal), layout.start),
        goal=jnp.where(what == 1, moved(layout.goal, layout.start), layout.goal),
        center=layout.center + jnp.where(which & (what == 2), 1, 0)[:, None] * 0.5 * noise,
        half=layout.half * grown[:, None],
        radius=layout.radius * grown,
        window=layout.window + jnp.where(what == 4, shift, 0),
    )
    return level.replace(layout=_fitted(layout, level.margin))


def validate(level: Level) -> None:
    """Raise ValueError for a level that nobody can fly. Host only; leaves may be batched."""
    layout = jax.tree.map(np.asarray, level.layout)
    opened, closed = layout.window[..., 0], layout.window[..., 1]
    check((opened >= 0) & (closed >= opened), f"reach-avoid level: window={layout.window} must be 0 <= open <= close.")
    limit = np.asarray(level.max_steps)
    check(closed <= limit, f"reach-avoid level: the window {layout.window} closes after max_steps={limit}.")
    check(layout.goal_radius > 0, f"reach-avoid level: goal_radius={layout.goal_radius} must be positive.")
    sizes = np.all(layout.half >= 0) and np.all(layout.radius >= 0)
    check(sizes, f"reach-avoid level: half={layout.half} and radius={layout.radius} must not be negative.")
    hull = np.asarray(level.model.radius)
    arena = np.asarray(level.arena)
    for name, end in (("start", layout.start), ("goal", layout.goal)):
        walls = np.concatenate([arena[..., :2] - np.abs(end[..., :2]), end[..., 2:], arena[..., 2:] - end[..., 2:]], -1)
        check(walls.min(-1) > hull, f"reach-avoid level: {name}={end} is not in the arena {arena}.")
        beyond = np.abs(end[..., None, :] - layout.center) - layout.half
        gap = np.linalg.norm(np.maximum(beyond, 0), axis=-1) + np.minimum(beyond.max(-1), 0) - layout.radius
        check(gap > hull[..., None], f"reach-avoid level: {name}={end} is in an obstacle.")


# ---- the task


@dataclasses.dataclass(frozen=True)
class ReachAvoid(SpecifiedTask):
    id: str = dataclasses.field(default="Quadcopter-ReachAvoid-v0", kw_only=True)
    Params = Params
    visit = stl.eventually(reach & on_time)
    avoid = stl.always(clear & inside)

    obstacles: int = 6
    static_ranges = {"obstacles": (0, 100)}

    @property
    def num_features(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 7 + 7 * self.obstacles

    def as_levels(self) -> ReachAvoidLevel:
        return ReachAvoidLevel(**settings(self))

    def generate(self, key: Key[Array, ""], params: Params) -> Level:
        return generate(key, params, self.obstacles)

    def mutate(self, key: Key[Array, ""], level: Level) -> Level:
        return mutate(key, level)

    def generated(self, key: Key[Array, ""], params: Params) -> Layout:
        return generate(key, params, self.obstacles).layout

    def starts_at(self, layout: Layout) -> Float[Array, "3"]:
        return layout.start

    def visits(self, layout: Layout, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        signal = {"position": position, "time": time, "goal": layout.goal, "goal_radius": layout.goal_radius}
        return jax.tree.map(lambda x: x[None], signal | {"open": layout.window[0], "close": layout.window[1]})

    def hazards(self, layout: Layout, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        obstacles = {"center": layout.center, "half": layout.half, "radius": layout.radius}
        return {"position": position, "arena": params.arena, "radius": params.model.radius, "obstacles": obstacles}

    def deadline(self, layout: Layout) -> Integer[Array, ""]:
        return layout.window[1]

    def target(self, state: State, params: Any) -> tuple[Any, Any]:
        return tuple(state.goal.layout.goal), (0.0, 0.0, 0.0)

    @property
    def feature_names(self) -> tuple[str, ...]:
        seen = ("x [m]", "y [m]", "z [m]", "opens in [s]", "closes in [s]", "robustness [m]", "safety [m]")
        of = [f"{axis} - position [m]" for axis in "xyz"] + [f"half {axis} [m]" for axis in "xyz"] + ["radius [m]"]
        obstacles = (self.num_features - len(seen)) // len(of)
        return (*seen, *(f"obstacle {k} {name}" for k in range(1, obstacles + 1) for name in of))

    def features(self, state: State, params: Any) -> tuple:
        layout, position = state.goal.layout, jnp.stack(state.drone.position)
        left = (layout.window - state.time) * (self.substeps * params.dt)
        obstacles = jnp.concatenate([layout.center - position, layout.half, layout.radius[:, None]], -1)
        return (*position, *left, state.goal.visits[0], state.goal.safety, *obstacles.reshape(-1))

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "goal_radius", "margin")
        for name in ("goal_radius", "opens", "closes", "radius", "half"):
            value = np.asarray(getattr(params, name))
            check((value >= 0) & (value[..., :1] <= value[..., 1:]), f"{self.id}: {name}={value} must be 0 <= a <= b.")
        order = np.asarray(params.opens)[..., 1] <= np.asarray(params.closes)[..., 0]
        check(order, f"{self.id}: opens={params.opens} must be before closes={params.closes}.")
        late = np.asarray(params.closes)[..., 1] <= np.asarray(params.max_steps)
        check(late, f"{self.id}: closes={params.closes} must be within max_steps={params.max_steps}.")
        hull = np.asarray(params.model.radius)
        margin = np.asarray(params.margin)
        check(margin > hull, f"{self.id}: margin={margin} must exceed the drone's radius {hull}.")
        wide = np.asarray(params.arena).min(-1) * 0.15 > hull
        check(wide, f"{self.id}: arena={params.arena} is too small for a drone of radius {hull}.")

    def scene(self, state: State, params: Any) -> Scene:
        from jaxrl.canvas import GREEN, GREY

        layout, arena = state.goal.layout, np.asarray(params.arena)
        scene = Scene.of_arena((-arena[0], -arena[1], 0.0), arena)
        draw_ball(scene, layout.goal, layout.goal_radius, GREEN)
        for center, half, radius in zip(layout.center, layout.half, layout.radius, strict=True):
            if float(radius) > 0:
                draw_ball(scene, center, radius, GREY)
            else:
                draw_box(scene, center, half, GREY)
        return scene


@dataclasses.dataclass(frozen=True)
class ReachAvoidLevel(ReachAvoid):
    """`ReachAvoid` with the layout in the params. The default level is one draw from the distribution."""

    id: str = dataclasses.field(default="Quadcopter-ReachAvoidLevel-v0", kw_only=True)
    Params = Level

    @property
    def generate(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """None: a level says nothing of others."""

    @property
    def default_params(self) -> Level:
        return generate(jax.random.key(0), ReachAvoid(**settings(self)).default_params, self.obstacles)

    def generated(self, key: Key[Array, ""], params: Level) -> Layout:
        return params.layout

    def validate(self, params: Level) -> None:
        SpecifiedTask.validate(self, params)
        shape = np.shape(params.layout.center)[-2:]
        check(shape == (self.obstacles, 3), f"{self.id}: center {shape} does not fit obstacles={self.obstacles}.")
        validate(params)

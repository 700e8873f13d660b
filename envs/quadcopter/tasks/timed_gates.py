"""Quadcopter-TimedGates-v0: be in gate after gate, each while its window of time is open, and touch no frame.

    for all k: eventually(through_k & on_time_k)   and   always(clear & inside)

Windows follow each other without overlap, so the gates have an order. A gate is a square opening of sides 2 `half` in a
frame of round bars; in its own coordinates (x through it, turned by `yaw` about the vertical) the robustness of
`through` is that of being in the box |x| <= `depth`, |y|, |z| <= `half` less the drone's radius. Of `clear` it is the
distance of the drone's hull from the nearest frame, a little too small off the frame's corners, and of `inside` that
from the nearest wall [m]. Judged at control steps of 0.05 s.

| observation | components | unit |
|---|---|---|
| position minus that of the next gate, rotation matrix, velocity, body rates (`task.py`) | 18 | |
| position | 3 | m |
| robustness so far of safety | 1 | m |
| the next gate: cosine and sine of its yaw; until its window opens and closes; its robustness so far | 5 | s, m |
| the gate after it: centre minus position, and the same | 8 | m, s |

The next gate is the first whose window has not closed; after the last there is the last. Actions: velocities
(`control/actions.py`). Reward and end: `stl_task.py`.

Levels: `generate`, `mutate`, `validate`; `TimedGates(...).as_levels()` flies a given one. The best robustness of a
level is not known; it is below `depth`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import pytree, require_non_negative, require_positive
from jaxrl.exact import stl
from jaxrl.math import sincos

from ..rotations import TINY
from ..scene import Scene
from .stl_task import SpecifiedParams, SpecifiedTask, State, check, inside, on_time, settings, with_layout


@pytree
class Params(SpecifiedParams):
    """The distribution of levels."""

    max_steps: jax.Array = 300
    half: jax.Array = 0.4  # m, of a gate's opening
    depth: jax.Array = 0.25  # m, how far before and behind its plane one is in a gate
    bar: jax.Array = 0.05  # m, radius of the frame's bars
    yaw: jax.Array = 0.5  # rad, the most that a gate is turned
    legs: jax.Array = (40, 60)  # control steps from one window's middle to the next, least and most
    width: jax.Array = 10  # control steps that a window is open before and after its middle


@pytree
class Layout:
    start: jax.Array  # (3,) m
    center: jax.Array  # (K, 3) m
    yaw: jax.Array  # (K,) rad
    window: jax.Array  # (K, 2) int32, control steps


@pytree
class Level(SpecifiedParams):
    max_steps: jax.Array = 300
    half: jax.Array = 0.4
    depth: jax.Array = 0.25
    bar: jax.Array = 0.05
    layout: Any = None


# ---- geometry


def in_gate(signal: Any) -> tuple[Array, Array, Array]:
    """|x|, |y|, |z| in the coordinates of each gate [m]."""
    away = signal["position"] - signal["center"]
    sine, cosine = sincos(signal["yaw"])
    x, y, z = away[..., 0], away[..., 1], away[..., 2]
    return jnp.abs(cosine * x + sine * y), jnp.abs(cosine * y - sine * x), jnp.abs(z)


@stl.predicate
def through(signal: Any) -> Float[Array, " T"]:
    """How deep in the gate's box [m]."""
    x, y, z = in_gate(signal)
    return jnp.minimum(signal["depth"] - x, signal["half"] - signal["radius"] - jnp.maximum(y, z))


@stl.predicate
def clear(signal: Any) -> Float[Array, " T"]:
    """Between the drone and the nearest frame [m]; the gates' leaves are (T, K, ...)."""
    gates = signal["gates"]
    x, y, z = in_gate(gates | {"position": signal["position"][..., None, :]})
    aside = jnp.maximum(y, z) - (signal["half"] + signal["bar"])[..., None]
    distance = jnp.sqrt(x * x + aside * aside + TINY)
    return jnp.min(distance, -1) - signal["bar"] - signal["radius"]


# ---- level kit


def generate(key: Key[Array, ""], params: Params, gates: int = 3) -> Level:
    """Gates one behind the other in x, in the order of their windows, the start before the first."""
    u = jax.random.uniform(key, (2 + 5 * gates,))
    v = 2 * u[2:].reshape(gates, 5) - 1
    size = params.arena
    rise = jnp.array([0.0, 0.0, 0.5]) * size
    along = (jnp.arange(gates) + 0.5) / gates * 1.5 - 0.65
    spread = jnp.stack([0.1 * v[:, 0] / gates, 0.4 * v[:, 1], 0.2 * v[:, 2]], -1)
    center = (spread + along[:, None] * jnp.array([1.0, 0.0, 0.0])) * size + rise
    start = jnp.stack([jnp.full_like(u[0], -0.8), u[0] - 0.5, 0.4 * (u[1] - 0.5)]) * size + rise
    shortest, longest = params.legs[0], params.legs[1]
    leg = shortest + jnp.floor(0.5 * (v[:, 3] + 1) * (longest - shortest + 1)).astype(jnp.int32)
    middle = jnp.cumsum(jnp.minimum(leg, longest))
    window = jnp.stack([middle - params.width, middle + params.width], -1).astype(jnp.int32)
    return with_layout(Level, params, Layout(start, center, params.yaw * v[:, 4], window))


def mutate(key: Key[Array, ""], level: Level) -> Level:
    """A neighbour of `level`: its start or a gate moved, a gate turned, or a window shifted, if it stays flyable.

    A window shifts at most to its neighbours and max_steps.
    """
    what_key, which_key, noise_key, shift_key = jax.random.split(key, 4)
    layout = level.layout
    what = jax.random.randint(what_key, (), 0, 4)
    which = jnp.arange(len(layout.yaw)) == jax.random.randint(which_key, (), 0, len(layout.yaw))
    noise = jax.random.normal(noise_key, (3,))
    low, high = level.arena * jnp.array([-0.8, -0.8, 0.25]), level.arena * jnp.array([0.8, 0.8, 0.75])
    moved = jnp.where(which[:, None] & (what == 1), jnp.clip(layout.center + 0.3 * noise, low, high), layout.center)
    turned = layout.yaw + jnp.where(which & (what == 2), 0.3 * noise[0], 0)
    before = jnp.concatenate([jnp.full(1, -1, jnp.int32), layout.window[:-1, 1]])
    after = jnp.concatenate([layout.window[1:, 0], level.max_steps[None] + 1])
    shift = jax.random.randint(shift_key, (), -10, 11)
    shift = jnp.clip(shift, before + 1 - layout.window[:, 0], after - 1 - layout.window[:, 1])
    start = jnp.where(what == 0, jnp.clip(layout.start + 0.3 * noise, low, high), layout.start)
    new = layout.replace(
        start=start,
        center=moved,
        yaw=turned,
        window=layout.window + jnp.where(which & (what == 3), shift, 0)[:, None],
    )
    radius = level.model.radius
    here = {"position": start[None], "radius": radius[None], "half": level.half[None], "bar": level.bar[None]}
    gap = clear.value(here | {"gates": {"center": moved[None], "yaw": turned[None]}})[0]
    return level.replace(layout=jax.tree.map(lambda a, b: jnp.where(gap > 0, a, b), new, layout))


def validate(level: Level) -> None:
    """Raise ValueError for a level that nobody can fly. Host only; leaves may be batched."""
    layout = jax.tree.map(np.asarray, level.layout)
    opened, closed = layout.window[..., 0], layout.window[..., 1]
    order = np.all(opened >= 0) and np.all(closed >= opened) and np.all(opened[..., 1:] > closed[..., :-1])
    check(
        order, f"timed-gates level: windows {layout.window} must each be 0 <= open <= close, without overlap in order."
    )
    limit = np.asarray(level.max_steps)
    check(closed[..., -1] <= limit, f"timed-gates level: the last of {layout.window} closes after max_steps={limit}.")
    hull, half, bar = (np.asarray(x) for x in (level.model.radius, level.half, level.bar))
    check(half > hull, f"timed-gates level: half={half} must exceed the drone's radius {hull}.")
    check(np.asarray(level.depth) > 0, f"timed-gates level: depth={level.depth} must be positive.")
    arena, start = np.asarray(level.arena), layout.start
    for name, at in (("start", start[..., None, :]), ("center", layout.center)):
        limits = arena[..., None, :]
        walls = np.concatenate([limits[..., :2] - np.abs(at[..., :2]), at[..., 2:], limits[..., 2:] - at[..., 2:]], -1)
        check(walls.min(-1) > hull[..., None], f"timed-gates level: {name}={at} is not in the arena {arena}.")
    away = start[..., None, :] - layout.center
    x = away[..., 0] * np.cos(layout.yaw) + away[..., 1] * np.sin(layout.yaw)
    y = away[..., 1] * np.cos(layout.yaw) - away[..., 0] * np.sin(layout.yaw)
    aside = np.maximum(np.abs(y), np.abs(away[..., 2])) - (half + bar)[..., None]
    gap = np.hypot(x, aside).min(-1) - bar - hull
    check(gap > 0, f"timed-gates level: start={start} is in the frame of a gate.")


# ---- the task


@dataclasses.dataclass(frozen=True)
class TimedGates(SpecifiedTask):
    id: str = dataclasses.field(default="Quadcopter-TimedGates-v0", kw_only=True)
    Params = Params
    visit = stl.eventually(through & on_time)
    avoid = stl.always(clear & inside)
    num_features = 17

    gates: int = 3
    static_ranges = {"gates": (1, 100)}

    def as_levels(self) -> TimedGatesLevel:
        return TimedGatesLevel(**settings(self))

    def generate(self, key: Key[Array, ""], params: Params) -> Level:
        return generate(key, params, self.gates)

    def mutate(self, key: Key[Array, ""], level: Level) -> Level:
        return mutate(key, level)

    def generated(self, key: Key[Array, ""], params: Params) -> Layout:
        return generate(key, params, self.gates).layout

    def starts_at(self, layout: Layout) -> Float[Array, "3"]:
        return layout.start

    def visits(self, layout: Layout, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        same = {"position": position, "time": time, "half": params.half, "depth": params.depth}
        same = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (self.gates, *jnp.shape(x))), same | {"radius": params.model.radius}
        )
        opened, closed = layout.window[:, 0], layout.window[:, 1]
        return same | {"center": layout.center, "yaw": layout.yaw, "open": opened, "close": closed}

    def hazards(self, layout: Layout, position: Float[Array, "3"], time: Integer[Array, ""], params: Any) -> dict:
        same = {"position": position, "half": params.half, "bar": params.bar, "radius": params.model.radius}
        return same | {"arena": params.arena, "gates": {"center": layout.center, "yaw": layout.yaw}}

    def deadline(self, layout: Layout) -> Integer[Array, ""]:
        return layout.window[-1, 1]

    def coming(self, state: State, ahead: int) -> tuple[Any, Any, Any, Any]:
        """Centre, yaw, window and robustness so far of the next gate, or of that so many `ahead` of it."""
        layout = state.goal.layout
        index = jnp.minimum(jnp.sum(layout.window[:, 1] < state.time) + ahead, self.gates - 1)
        chosen = jnp.arange(self.gates) == index

        def pick(x: Array) -> Array:
            return jnp.sum(jnp.where(chosen.reshape(-1, *(1,) * (x.ndim - 1)), x, 0), 0)

        return pick(layout.center), pick(layout.yaw), pick(layout.window), pick(state.goal.visits)

    def target(self, state: State, params: Any) -> tuple[Any, Any]:
        return tuple(self.coming(state, 0)[0]), (0.0, 0.0, 0.0)

    @property
    def feature_names(self) -> tuple[str, ...]:
        gate = ("cos(yaw)", "sin(yaw)", "opens in [s]", "closes in [s]", "robustness [m]")
        ahead = [f"{axis} - position [m]" for axis in "xyz"]
        following = [f"gate after it {name}" for name in (*ahead, *gate)]
        return ("x [m]", "y [m]", "z [m]", "safety [m]", *(f"next gate {name}" for name in gate), *following)

    def features(self, state: State, params: Any) -> tuple:
        position = jnp.stack(state.drone.position)
        second = self.coming(state, 1)

        def seen(gate: tuple[Any, Any, Any, Any]) -> tuple:
            sine, cosine = sincos(gate[1])
            return cosine, sine, *((gate[2] - state.time) * (self.substeps * params.dt)), gate[3]

        ahead = (*(second[0] - position), *seen(second))
        return (*position, state.goal.safety, *seen(self.coming(state, 0)), *ahead)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "half", "depth", "bar")
        require_non_negative(self, params, "yaw", "width")
        legs, width = np.asarray(params.legs), np.asarray(params.width)
        apart = (legs[..., 0] > 2 * width) & (legs[..., 0] <= legs[..., 1])
        check(apart, f"{self.id}: legs={legs} must be least <= most, above twice the width={width} of the windows.")
        last = self.gates * legs[..., 1] + width
        late = f"{self.id}: {self.gates} gates can take {last} steps, more than max_steps={params.max_steps}."
        check(last <= np.asarray(params.max_steps), late)
        room = np.asarray(params.arena) * np.array([1.3 / max(self.gates, 2), 0.5, 0.3])
        hull = np.asarray(params.model.radius)
        check(np.asarray(params.half) > hull, f"{self.id}: half={params.half} must exceed the drone's radius {hull}.")
        need = np.asarray(params.half) + 2 * np.asarray(params.bar) + hull
        check(
            room.min(-1) > need,
            f"{self.id}: arena={params.arena} is too small for {self.gates} gates of {params.half}.",
        )

    def scene(self, state: State, params: Any) -> Scene:
        from jaxrl.canvas import GREEN, GREY, INK

        layout, arena = state.goal.layout, np.asarray(params.arena)
        scene = Scene.of_arena((-arena[0], -arena[1], 0.0), arena)
        closed = np.asarray(layout.window[:, 1]) < np.asarray(state.time)
        for k, (center, yaw) in enumerate(zip(np.asarray(layout.center), np.asarray(layout.yaw), strict=True)):
            side = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
            reach = float(params.half) + float(params.bar)
            corners = [
                center + reach * (a * side + np.array([0, 0, b]))
                for a, b in ((1, 1), (1, -1), (-1, -1), (-1, 1), (1, 1))
            ]
            done = float(state.goal.visits[k]) > 0
            scene.path(corners, GREEN if done else GREY if closed[k] else INK, 1.5)
        return scene


@dataclasses.dataclass(frozen=True)
class TimedGatesLevel(TimedGates):
    """`TimedGates` with the layout in the params. The default level is one draw from the distribution."""

    id: str = dataclasses.field(default="Quadcopter-TimedGatesLevel-v0", kw_only=True)
    Params = Level

    @property
    def generate(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """None: a level says nothing of others."""

    @property
    def default_params(self) -> Level:
        return generate(jax.random.key(0), TimedGates(**settings(self)).default_params, self.gates)

    def generated(self, key: Key[Array, ""], params: Level) -> Layout:
        return params.layout

    def validate(self, params: Level) -> None:
        SpecifiedTask.validate(self, params)
        require_positive(self, params, "half", "depth", "bar")
        shape = np.shape(params.layout.center)[-2:]
        check(shape == (self.gates, 3), f"{self.id}: center {shape} does not fit gates={self.gates}.")
        validate(params)

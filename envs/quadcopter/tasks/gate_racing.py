"""Quadcopter-GateRacing-v0: as many gates as possible, in order, from collective thrust and body rates.

Song, Steinweg, Kaufmann and Scaramuzza (2021), "Autonomous drone racing with deep reinforcement learning" (progress as
reward), and Kaufmann et al. (2023), "Champion-level drone racing using deep reinforcement learning". With d the
distance to the centre of the gate that was next before the step, each step earns

    progress (d_before - d_after) + gate [passed] - rates |body rates| - smoothness |a - a_before|^2 - crash [crashed]

so a faster lap is a larger return: the undiscounted progress of a lap is the same however long it takes. It ends with a
crash: into a gate's frame (any gate, either way), within its radius of the ground, or out of the arena. A gate missed
counts for nothing and stays the next. Time limit 10 s, at 50 Hz of control.

A lap off the centres has less progress, so the fastest line is not the best. `weights.course`, by default 0, is for
another measure, the change of gates passed - d / D by a step, D being the distance between the gate before the next one
and it: a lap is worth the number of gates on every line. With it `progress` and `gate` can be 0.

`weights.clearance`, by default 0, is for who differentiates the flight, as a crash has no derivative: who crosses the
next gate forwards with less than `clearance` [m] between its sphere and the frame, or on the frame, pays for the square
of what is missing. A miss of the whole frame, a crossing backwards and other gates' frames cost nothing by it.

Observation: the base class's 18 numbers (`task.py`), relative to the next gate's centre; centre minus own position [m]
and normal of the next gate and of the one after it, in the body (12); the last action (4). With `frame="body"` the
first are 10 without the place and the heading in the world, so that what was learnt at one gate holds at the others:
height over the next gate's centre [m], the world's up in the body (3), velocity [m/s] and rates [rad/s] in the body.

Levels: a track is `params.track`, so params are levels: `generate(key, params)` draws one, `tracks.TRACKS` has five.
`info["lap_time"]` [s] is of the last complete lap, from the first gate passed to that gate again; 0 before.

The racing drone is gym-pybullet-drones' with motors that lag by 30 ms. What to beat: `geometric_lap`, the SE(3)
controller along the smoothest curve through the gates, tuned for each track in `experiments/quadcopter`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive

from .. import dynamics, models, rotations
from ..control.cascade import attitude_of
from ..control.se3 import SE3Gains, se3
from ..control.setpoints import Setpoint
from ..courses import tracks
from ..courses.tracks import Curve, Track
from ..dynamics import Drone, Model, Physics
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State

LAG = np.array([1 / 0.03, 0.0])
RACER = models.RACER.replace(spin_up=LAG, spin_down=LAG, radius=0.2)
"""The racing drone with motors that lag: 0.83 kg, thrust 4.17 times the weight."""


@pytree
class Weights:
    progress: jax.Array = 1.0  # 1/m
    gate: jax.Array = 1.0
    rates: jax.Array = 2e-3  # s/rad
    smoothness: jax.Array = 1e-3
    crash: jax.Array = 5.0
    course: jax.Array = 0.0  # 1/gate
    clearance: jax.Array = 0.0  # 1/m^2


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 500
    model: Any = RACER
    dt: jax.Array = 0.005
    weights: Any = Weights()
    track: Any = tracks.FIGURE_EIGHT
    arena: jax.Array = (10.0, 10.0, 9.0)  # m: |x| and |y| at most, height at most
    start_anywhere: jax.Array = 0.5  # share of episodes that start before a random gate; the others before the first
    start_distance: jax.Array = 2.0  # m, from the centre of that gate, against its normal
    start_spread: jax.Array = 0.3  # m, largest error of each coordinate
    clearance: jax.Array = 0.15  # m, from the drone's sphere to the frame, below which `weights.clearance` counts


# ---- level kit


def generate(key: Key[Array, ""], params: Params) -> Params:
    """`params` with a random closed track of as many gates, left or right about the middle of the arena.

    Gate i stands in the i-th sector of a circle, 3.5 to 7.5 m out and 1.2 to 4.5 m high, and looks along the line from
    the gate before it to the one after it, up to 0.4 rad off. Neighbours are at least 1.5 m apart, up to 8 gates.
    """
    count = params.track.yaw.shape[0]
    u = jax.random.uniform(key, (4 * count + 1,), jnp.result_type(params.track.gates))
    out, high, within, off = (u[i * count : (i + 1) * count] for i in range(4))
    hand = jnp.where(u[-1] < 0.5, -1, 1)
    angle = 2 * math.pi / count * (jnp.arange(count) + 0.5 * (within - 0.5))
    radius = 3.5 + 4 * out
    gates = jnp.stack([radius * jnp.cos(angle), hand * radius * jnp.sin(angle), 1.2 + 3.3 * high], -1)
    ahead = jnp.roll(gates, -1, 0) - jnp.roll(gates, 1, 0)
    yaw = jnp.arctan2(ahead[:, 1], ahead[:, 0]) + 0.8 * (off - 0.5)
    return params.replace(track=params.track.replace(gates=gates, yaw=yaw, pitch=jnp.zeros_like(yaw)))


def mutate(key: Key[Array, ""], params: Params) -> Params:
    """`params` with a gate moved by up to 1 m along each axis and turned by up to 0.4 rad, unless that is no level."""
    track, which_key, move_key = params.track, *jax.random.split(key)
    chosen = jnp.arange(track.yaw.shape[0]) == jax.random.randint(which_key, (), 0, track.yaw.shape[0])
    move = jax.random.uniform(move_key, (4,), track.gates.dtype, -1.0, 1.0)
    gates = track.gates + jnp.where(chosen[:, None], move[:3], 0)
    new = track.replace(gates=gates, yaw=track.yaw + jnp.where(chosen, 0.4 * move[3], 0))
    good = feasible(new, params.arena)
    return params.replace(track=jax.tree.map(lambda a, b: jnp.where(good, a, b), new, track))


def feasible(track: Track, arena: Any) -> Bool[Array, ""]:
    """Whether all gates, frames included, are above the ground and in the arena, and a gate's width from the next."""
    _, left, up = tracks.axes(track.yaw, track.pitch)
    reach = [(track.half_width + track.frame) * (jnp.abs(a) + jnp.abs(b)) for a, b in zip(left, up, strict=True)]
    x, y, z = (track.gates[:, i] for i in range(3))
    inside = (jnp.abs(x) + reach[0] < arena[0]) & (jnp.abs(y) + reach[1] < arena[1])
    inside = inside & (z - reach[2] > 0) & (z + reach[2] < arena[2])
    apart = rotations.norm(tuple((jnp.roll(track.gates, -1, 0) - track.gates).T)) > 2 * track.half_width
    return jnp.all(inside & apart)


def validate(params: Params) -> None:
    """Raise ValueError for a track that cannot be flown. Host only; leaves may be batched."""
    gates, yaw, pitch = (np.asarray(x) for x in (params.track.gates, params.track.yaw, params.track.pitch))
    if gates.shape[-1] != 3 or gates.shape[:-1] != yaw.shape or yaw.shape != pitch.shape or yaw.shape[-1] < 2:
        raise ValueError(
            f"track: gates {gates.shape}, yaw {yaw.shape} and pitch {pitch.shape}; they are (G, 3), (G,), (G,), G >= 2."
        )
    half_width, radius = np.asarray(params.track.half_width), np.asarray(params.model.radius)
    if np.any(half_width <= radius):
        raise ValueError(f"track: half_width={half_width} must exceed the drone's radius {radius}.")
    lead = yaw.shape[:-1]
    with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
        track = jax.tree.map(jnp.asarray, params.track)
        arena = params.arena if isinstance(params.arena, tuple) else jnp.moveaxis(jnp.asarray(params.arena), -1, 0)
        arena = tuple(jnp.broadcast_to(most, lead) for most in arena)
        track = track.replace(**{n: jnp.broadcast_to(getattr(track, n), lead) for n in ("half_width", "frame")})
        check = feasible
        for _ in lead:
            check = jax.vmap(check)
        good = np.asarray(check(track, arena))
    if not np.all(good):
        raise ValueError(
            f"track: {int((~good).sum())} of {good.size} has a gate in the ground, out of the arena {params.arena}, or "
            "closer to the next than a gate is wide."
        )


# ---- the task


def rewards(
    progress: Any,
    passed: Any,
    crashed: Any,
    body_rates: Any,
    action: Any,
    last_action: Any,
    course: Any,
    lacking: Any,
    weights: Weights,
) -> dict[str, Float[Array, ""]]:
    """The terms of a step: `progress` [m] towards the gate, whether it was `passed` and whether it `crashed`, the body
    rates [rad/s] after it, its action and the one before, how far it went along the `course` [gates], and how much
    clearance was `lacking` [m]."""
    return {
        "progress": weights.progress * progress,
        "gate": weights.gate * passed,
        "rates": -weights.rates * rotations.norm(body_rates),
        "smoothness": -weights.smoothness * jnp.sum((action - last_action) ** 2, -1),
        "crash": -weights.crash * crashed,
        "course": weights.course * course,
        "clearance": -weights.clearance * lacking**2,
    }


def gate_at(track: Track, index: Integer[Array, ""]) -> tuple[Any, Any]:
    """Centre [m] and normal of one gate."""
    center = tuple(tracks.pick(track.gates[:, i], index) for i in range(3))
    normal = tracks.axes(tracks.pick(track.yaw, index), tracks.pick(track.pitch, index))[0]
    return center, normal


def left_of_leg(track: Track, index: Integer[Array, ""], position: Any) -> Float[Array, ""]:
    """How far `position` is from a gate, in distances from the gate before to it."""
    center, _ = gate_at(track, index)
    before, _ = gate_at(track, jnp.where(index == 0, track.yaw.shape[0] - 1, index - 1))
    leg = rotations.norm(rotations.add(center, before, -1))
    return rotations.norm(rotations.add(position, center, -1)) / leg


@dataclasses.dataclass(frozen=True)
class GateRacing(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-GateRacing-v0", kw_only=True)
    Params = Params

    action: str = "body_rates"
    substeps: int = 4
    history: int = 1
    frame: str = "world"  # of the observation: world or body

    num_features = 12
    static_ranges = {"history": (1, 1000)}  # the reward compares with the last action

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame not in ("world", "body"):
            raise ValueError(f"{self.id}: frame={self.frame!r}; it is one of world, body.")

    def as_levels(self) -> GateRacing:
        """Itself: params are levels."""
        return self

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        return generate(key, params)

    def mutate(self, key: Key[Array, ""], level: Params) -> Params:
        return mutate(key, level)

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (5,))
        count = params.track.yaw.shape[0]
        anywhere = jnp.floor(u[4] / jnp.maximum(params.start_anywhere, 1e-6) * count).astype(jnp.int32)
        gate = jnp.where(u[4] < params.start_anywhere, jnp.minimum(anywhere, count - 1), 0)
        center, normal = gate_at(params.track, gate)
        behind = rotations.add(center, normal, -params.start_distance)
        position = tuple(behind[i] + params.start_spread * (2 * u[i] - 1) for i in range(3))
        height = jnp.maximum(position[2], 2 * params.model.radius)
        facing = rotations.from_euler(0.0, 0.0, tracks.pick(params.track.yaw, gate))
        drone = dynamics.at_rest(params.model, (*position[:2], height), facing)
        return drone, tracks.race_start(gate)

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return gate_at(params.track, state.goal.gate)[0], (0.0, 0.0, 0.0)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        control_dt = self.substeps * params.dt
        before, after, radius = state.drone.position, drone.position, params.model.radius
        race, passed, hit, gap = tracks.race_step(
            state.goal, params.track, before, after, radius, state.time * control_dt, control_dt
        )
        x, y, z = after
        lost = (jnp.abs(x) > params.arena[0]) | (jnp.abs(y) > params.arena[1]) | (z > params.arena[2])
        crashed = hit | lost | (z < radius)
        center, _ = gate_at(params.track, state.goal.gate)
        progress = rotations.norm(rotations.add(before, center, -1)) - rotations.norm(rotations.add(after, center, -1))
        last = state.history[..., -action.shape[-1] :]
        was, left = left_of_leg(params.track, state.goal.gate, before), left_of_leg(params.track, race.gate, after)
        course = passed + was - left
        lacking = jnp.maximum(params.clearance - gap, 0)
        terms = rewards(progress, passed, crashed, drone.body_rates, action, last, course, lacking, params.weights)
        laps = jnp.maximum(race.passed - 1, 0) // params.track.yaw.shape[0]
        info = {"gates": race.passed, "laps": laps, "lap_time": race.lap_time, "crashed": crashed}
        info |= {f"reward/{name}": term for name, term in terms.items()}
        gain: Any = sum(terms.values())
        return Transition(race, gain, crashed, jnp.bool_(False), info)

    @property
    def sensors(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (1, 3, 3, 3) if self.frame == "body" else super().sensors

    @property
    def measured_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.frame == "world":
            return super().measured_names
        seen = (*(f"up {axis}" for axis in "xyz"), *(f"v_{axis} in the body [m/s]" for axis in "xyz"))
        return ("z - target [m]", *seen, *super().measured_names[-3:])

    def measured(self, state: State, params: Params) -> list:
        if self.frame == "world":
            return super().measured(state, params)
        drone, center = state.drone, self.target(state, params)[0]
        up = rotations.matrix(drone.quaternion)[2]
        velocity = rotations.unrotate(drone.quaternion, drone.velocity)
        return [drone.position[2] - center[2], *up, *velocity, *drone.body_rates]

    @property
    def feature_names(self) -> tuple[str, ...]:
        gates = ("next gate", "gate after it")
        of = [*(f"{axis} [m]" for axis in "xyz"), *(f"normal {axis}" for axis in "xyz")]
        return tuple(f"{gate} {name}" for gate in gates for name in of)

    def features(self, state: State, params: Params) -> tuple:
        count = params.track.yaw.shape[0]
        following = jnp.where(state.goal.gate == count - 1, 0, state.goal.gate + 1)
        seen = ()
        for index in (state.goal.gate, following):
            center, normal = gate_at(params.track, index)
            way = rotations.add(center, state.drone.position, -1)
            seen += (
                *rotations.unrotate(state.drone.quaternion, way),
                *rotations.unrotate(state.drone.quaternion, normal),
            )
        return seen

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "arena")
        require_non_negative(self, params, "start_distance", "start_spread", "start_anywhere", "clearance")
        if np.any(np.asarray(params.start_anywhere) > 1):
            raise ValueError(f"{self.id}: start_anywhere={params.start_anywhere} is a share, at most 1.")
        validate(params)

    def scene(self, state: State, params: Params) -> Scene:
        x, y, z = (float(a) for a in params.arena)
        scene = Scene.of_arena((-x, -y, 0.0), (x, y, z))
        draw_gates(scene, params.track, int(state.goal.gate))
        return scene


def draw_gates(scene: Any, track: Track, upcoming: int | None = None) -> None:
    """All gates into a picture, the next one in green. Host only."""
    from jaxrl.canvas import GREEN, GREY

    _, left, up = (np.stack(np.broadcast_arrays(*axis), -1) for axis in tracks.axes(track.yaw, track.pitch))
    gates, half = np.asarray(track.gates), float(track.half_width)
    for i, center in enumerate(gates):
        corners = [center + half * (a * left[i] + b * up[i]) for a, b in ((1, 1), (1, -1), (-1, -1), (-1, 1), (1, 1))]
        scene.path(corners, GREEN if i == upcoming else GREY, 1.2)


# ---- the classical pilot


class Lap(NamedTuple):
    lap_time: Array  # s, of the last complete lap
    valid: Array  # whether `laps` were flown without touching anything
    passed: Array  # int32, gates passed before a crash
    position: Array  # (T, 3) m, after each physics step


def geometric_lap(
    track: Track,
    gains: SE3Gains,
    time_scale: Any,
    model: Model = RACER,
    *,
    curve: Curve | None = None,
    physics: Physics = dynamics.L2F,
    dt: float = 0.005,
    duration: float = 15.0,
    laps: int = 2,
) -> Lap:
    """The SE(3) controller along the smoothest closed curve through the gates, in `time_scale` [s] a lap.

    It starts on the curve, a twentieth of a lap before the first gate, and is judged as in the task, at every physics
    step; `laps` have to be complete within `duration` [s], and the last one is timed. Pure in `gains`, `time_scale` and
    `model`: vmap it. The curve is made on the host, so `track` must be concrete unless `curve` is given.
    """
    curve = tracks.smoothest_curve(track) if curve is None else curve
    dtype = jnp.result_type(float)
    rate = 2 * math.pi / jnp.asarray(time_scale, dtype)
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), model)
    track = jax.tree.map(lambda x: jnp.asarray(x, dtype), track)
    count = track.yaw.shape[0]

    def setpoint(time):
        turns = time * rate / (2 * math.pi) - 0.05
        phase = 2 * math.pi * (turns - jnp.floor(turns))
        position, velocity, acceleration, jerk, snap = tracks.along(curve, phase, rate)
        return Setpoint(position, velocity, acceleration, jerk=jerk, snap=snap)

    first = setpoint(jnp.zeros((), dtype))
    force = rotations.add(first.acceleration, (0.0, 0.0, model.gravity))
    drone = dynamics.at_rest(model, first.position, attitude_of(force, 0.0))
    drone = drone._replace(velocity=tuple(first.velocity))

    def body(carry, step):
        drone, race, alive = carry
        time = step.astype(dtype) * dt
        rpm, _ = se3((), drone, setpoint(time), gains, model, dt)
        new = dynamics.step(model, drone, rpm, dt, physics)
        ahead, _, hit, _ = tracks.race_step(race, track, drone.position, new.position, model.radius, time, dt)
        race = jax.tree.map(lambda a, b: jnp.where(alive, a, b), ahead, race)
        complete = race.passed > laps * count
        alive = alive & ~hit & (new.position[2] > model.radius) & ~complete
        return (new, race, alive), jnp.stack(new.position)

    start = (drone, tracks.race_start(), jnp.bool_(True))
    (_, race, _), position = jax.lax.scan(body, start, jnp.arange(round(duration / dt), dtype=jnp.int32))
    return Lap(race.lap_time, race.passed > laps * count, race.passed, position)

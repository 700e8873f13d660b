"""Race tracks: square gates to be flown through in order, for ever; and a smooth closed curve through them.

A gate is a square hole about its centre. Its normal, along which it is flown, is (1, 0, 0) turned up by `pitch` and
then left by `yaw`; with its left and up axes that makes a right-handed frame. All tracks here have eight gates, so they
stack: `jax.tree.map(lambda *x: jnp.stack(x), *TRACKS.values())` is a batch of levels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import sincos

from ..rotations import Vector, add, cross, dot


@pytree
class Track:
    gates: jax.Array  # (G, 3) m, centres
    yaw: jax.Array  # (G,) rad
    pitch: jax.Array  # (G,) rad
    half_width: jax.Array = 0.75  # m, of the hole
    frame: jax.Array = 0.3  # m, width of the frame around it


def _track(rows: list[tuple[float | int, ...]]) -> Track:
    """Of rows x, y, z [m], yaw, pitch [degrees]."""
    table: Any = np.array(rows)
    angles: Any = np.radians(table[:, 3:])
    return Track(table[:, :3], angles[:, 0], angles[:, 1])


def _along(curve: Any, count: int = 8) -> Track:
    """Upright gates on a curve, at equal steps of its phase in [0, 2 pi), the first half a step in."""
    phase = 2 * math.pi * (np.arange(count) + 0.5) / count
    points: Any = np.stack(curve(phase), -1)
    ahead = np.stack(curve(phase + 1e-4), -1) - points
    yaw: Any = np.arctan2(ahead[:, 1], ahead[:, 0])
    return Track(points, yaw, 0 * yaw)


CIRCLE = _along(lambda t: (5 * np.sin(t), -5 * np.cos(t), 2 + 0 * t))
"""Of radius 5 m, level."""
FIGURE_EIGHT = _along(lambda t: (7 * np.sin(t), 3.5 * np.sin(2 * t), 2 + 0 * t))
"""14 m by 7 m, level; it crosses itself between gates."""
LEMNISCATE = _along(lambda t: (7 * np.sin(t), 3.5 * np.sin(2 * t), 2.5 - np.cos(t) + 0.5 * np.sin(2 * t)))
"""The figure eight with heights from 1.2 to 3.8 m."""
SPLIT_S = _track(
    [
        (-4.0, -4.0, 1.5, 0, 0),
        (2.0, -5.0, 1.5, 0, 0),
        (6.5, -1.0, 2.5, 90, 0),
        (4.0, 4.0, 4.5, 180, 0),
        (0.0, 4.0, 5.0, 180, 0),
        (0.0, 4.0, 1.5, 0, 0),
        (1.5, 0.0, 1.5, 200, 0),
        (-6.5, -1.5, 2.0, 270, 0),
    ]
)
"""With two gates on top of each other that are flown in opposite directions: half a loop downwards."""
LOOP = _track(
    [
        (0.0, 0.0, 1.5, 0, 0),
        (2.5, 0.4, 4.0, 0, 90),
        (0.0, 0.8, 6.5, 180, 0),
        (-2.5, 1.2, 4.0, 0, -90),
        (0.0, 1.6, 1.5, 0, 0),
        (6.0, 4.0, 2.5, 90, 0),
        (0.0, 7.0, 2.5, 180, 0),
        (-6.0, 3.5, 2.0, 270, 0),
    ]
)
"""A full loop in a vertical plane, its gates lying on their backs half way up, and a wide turn back."""

TRACKS = {
    "circle": CIRCLE,
    "figure_eight": FIGURE_EIGHT,
    "lemniscate": LEMNISCATE,
    "split_s": SPLIT_S,
    "loop": LOOP,
}


# ---- gates


def axes(yaw: Any, pitch: Any) -> tuple[Vector, Vector, Vector]:
    """Normal, left and up of a gate, in the world."""
    (sy, cy), (sp, cp) = sincos(yaw), sincos(pitch)
    normal, left = (cy * cp, sy * cp, sp), (-sy, cy, jnp.zeros_like(sy))
    return normal, left, cross(normal, left)


def crossing(before: Vector, after: Vector, center: Vector, yaw: Any, pitch: Any) -> tuple[Any, Any, Any, Any]:
    """How the straight way from `before` to `after` [m] meets the plane of a gate.

    Returns `(crosses, forward, share, offset)`: whether it does, along the normal, after which share of the way, and
    how far from the centre [m], the larger of left and up. Elementwise: gates may be `(G,)` arrays.
    """
    normal, left, up = axes(yaw, pitch)
    start, end = add(before, center, -1), add(after, center, -1)
    here, there = dot(start, normal), dot(end, normal)
    forward = (here < 0) & (there >= 0)
    crosses = forward | ((here >= 0) & (there < 0))
    share = jnp.where(crosses, here / jnp.where(crosses, here - there, 1), 0)
    point = add(start, add(end, start, -1), share)
    return crosses, forward, share, jnp.maximum(jnp.abs(dot(point, left)), jnp.abs(dot(point, up)))


def pick(x: Float[Array, " G"], index: Any) -> Float[Array, ""]:
    """`x[index]`, as a sum that fuses under vmap where a gather would not."""
    return jnp.sum(jnp.where(jnp.arange(x.shape[0]) == index, x, 0))


class Race(NamedTuple):
    """How far a drone has come."""

    gate: Any  # int32, the next one
    passed: Any  # int32, gates so far; a lap is from the first of them to that gate again
    lap_start: Any  # s
    lap_time: Any  # s, of the last complete lap; 0 before


def race_start(gate: Any = 0) -> Race:
    """Before the first gate, which is `gate`."""
    zero = jnp.zeros((), jnp.result_type(float))
    return Race(jnp.asarray(gate, jnp.int32), jnp.int32(0), zero, zero)


def race_step(race: Race, track: Track, before: Vector, after: Vector, radius: Any, time: Any, dt: Any) -> tuple:
    """`(race, passed, hit, gap)` after the way from `before` to `after` [m], flown from `time` to `time + dt` [s].

    A gate is passed by who crosses the next one's plane forwards with its sphere of `radius` within the hole, and hit
    by who crosses any gate's plane, either way, with its sphere on the frame. The gap [m] is what the next gate's hole
    left between sphere and frame, negative on the frame; infinite where its plane was not crossed forwards or outside
    of the frame. It has a derivative, which passing and hitting have not.
    """
    count = track.yaw.shape[0]
    center = tuple(track.gates[:, i] for i in range(3))
    crosses, forward, share, offset = crossing(before, after, center, track.yaw, track.pitch)
    room = track.half_width - radius - offset
    inside = room > 0
    outside = offset > track.half_width + track.frame + radius
    hit = jnp.any(crosses & ~inside & ~outside)
    passed = jnp.any(forward & inside & (jnp.arange(count) == race.gate))
    near = jnp.any(forward & ~outside & (jnp.arange(count) == race.gate))
    gap = jnp.where(near, pick(room, race.gate), jnp.inf)
    moment = (time + pick(share, race.gate) * dt).astype(race.lap_start.dtype)
    around = passed & (race.passed % count == 0)  # at the gate where laps begin
    complete = around & (race.passed > 0)
    race = Race(
        jnp.where(passed, jnp.where(race.gate == count - 1, 0, race.gate + 1), race.gate),
        race.passed + passed,
        jnp.where(around, moment, race.lap_start),
        jnp.where(complete, moment - race.lap_start, race.lap_time),
    )
    return race, passed, hit, gap


# ---- a curve through them


class Curve(NamedTuple):
    """A closed curve by its Fourier series, p(phase) = constant + sum_k cosine_k cos(k phase) + sine_k sin(k phase)."""

    constant: Float[np.ndarray, "3"]  # m
    cosine: Float[np.ndarray, "K 3"]  # m
    sine: Float[np.ndarray, "K 3"]  # m
    phase: Float[np.ndarray, " G"]  # rad, at each gate


HARMONICS = 16


def smoothest_curve(track: Track, rounds: int = 60) -> Curve:
    """The closed curve of least squared snap through all gates along their normals. Host only.

    The least is over the coefficients (a linear system) and over the phases at the gates (`rounds` of a search by
    coordinates, from phases in proportion to the distances). Mellinger and Kumar (2011), "Minimum snap trajectory
    generation and control for quadrotors", with a Fourier series in place of polynomials: it closes by itself.
    """
    gates = np.asarray(track.gates, float)
    normal, left, up = (np.stack(np.broadcast_arrays(*axis), -1) for axis in _host_axes(track))
    length = np.linalg.norm(np.roll(gates, -1, 0) - gates, axis=1)
    logs, step = np.log(length), 0.3
    best, coefficients = _snap(gates, left, up, logs)
    for _ in range(rounds):
        improved = False
        for i in range(len(logs)):
            for change in (step, -step):
                trial = logs + change * (np.arange(len(logs)) == i)
                cost, solution = _snap(gates, left, up, trial)
                if cost < best:
                    best, coefficients, logs, improved = cost, solution, trial, True
                    break
        step = step if improved else step / 2
        if step < 0.01:
            break
    return Curve(coefficients[0], coefficients[1 : HARMONICS + 1], coefficients[HARMONICS + 1 :], _phases(logs))


def _host_axes(track: Track) -> tuple[Any, Any, Any]:
    yaw, pitch = np.asarray(track.yaw, float), np.asarray(track.pitch, float)
    (sy, cy), (sp, cp) = (np.sin(yaw), np.cos(yaw)), (np.sin(pitch), np.cos(pitch))
    return (cy * cp, sy * cp, sp), (-sy, cy, 0 * sy), (-sp * cy, -sp * sy, cp)


def _phases(logs: Float[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """Of the gates, from the logarithms of the durations between them."""
    share = np.exp(logs - logs.max())
    return 2 * np.pi * np.concatenate([[0.0], np.cumsum(share)[:-1]]) / share.sum()


def _snap(gates: Any, left: Any, up: Any, logs: Any) -> tuple[float, Any]:
    """The least squared snap with these durations, and its coefficients (1 + 2 K, 3)."""
    phase, k = _phases(logs), np.arange(1, HARMONICS + 1)
    angle, count = np.outer(phase, k), len(phase)
    value = np.concatenate([np.ones((count, 1)), np.cos(angle), np.sin(angle)], 1)
    slope = np.concatenate([np.zeros((count, 1)), -k * np.sin(angle), k * np.cos(angle)], 1)
    through = np.kron(value, np.eye(3))
    straight = [np.einsum("gk,ga->gka", slope, axis).reshape(count, -1) for axis in (left, up)]
    constraints = np.concatenate([through, *straight])
    middle = gates.mean(0)  # so that the constant, which costs nothing, is small: it needs some weight
    wanted = np.concatenate([(gates - middle).ravel(), np.zeros(2 * count)])
    weight = np.repeat(np.concatenate([[1e-3], k**4.0, k**4.0]), 3)
    scaled = constraints / weight
    solution = scaled.T @ np.linalg.solve(scaled @ scaled.T, wanted)  # the shortest weight * coefficients
    coefficients = (solution / weight).reshape(-1, 3)
    coefficients[0] += middle
    return float(np.sum(solution[3:] ** 2)), coefficients


def along(curve: Curve, phase: Any, rate: Any) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Position and its first four derivatives in time at a `phase` [rad] that grows with `rate` [rad/s]."""
    dtype = jnp.result_type(rate)
    k = jnp.arange(1, len(curve.cosine) + 1, dtype=dtype)
    sine, cosine = sincos(k * phase)
    a, b = jnp.asarray(curve.cosine, dtype), jnp.asarray(curve.sine, dtype)
    even, odd = cosine[:, None] * a + sine[:, None] * b, cosine[:, None] * b - sine[:, None] * a
    terms = (even, odd, -even, -odd, even)
    sums = [jnp.sum((k * rate)[:, None] ** n * term, 0) for n, term in enumerate(terms)]
    sums[0] = sums[0] + jnp.asarray(curve.constant, dtype)
    return tuple(tuple(x) for x in sums)  # pyright: ignore[reportReturnType]

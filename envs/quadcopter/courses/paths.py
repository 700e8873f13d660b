"""Paths through space as functions of time: pytrees of numbers, so that a path is a level.

`Fourier` has sines along each axis, and with one of them is a circle, a figure-eight or a Lissajous curve; `Waypoints`
is a closed spline through points. `position`, `velocity` and `acceleration` are exact at any time, an array of times
included. `PATHS` has those that the accepted simulators fly.

    p(t) = offset + sum_k amplitude_k sin(2 pi frequency_k t / period + phase_k)            each axis on its own

Random smooth paths: `generate` draws them from `RandomPaths`, `mutate` changes one a little, `validate` refuses what
is none.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import pytree
from jaxrl.math import rough_normals, sincos


@pytree
class Fourier:
    """K sines along each axis."""

    amplitude: jax.Array  # (K, 3) m
    frequency: jax.Array  # (K, 3) turns a period
    phase: jax.Array  # (K, 3) rad
    period: jax.Array  # s
    offset: jax.Array = (0.0, 0.0, 0.0)  # m


@pytree
class Waypoints:
    """A closed quintic spline through n points, which it passes at equal intervals of time.

    Between two of them it is the polynomial with the velocities and accelerations that the points around suggest
    (central differences), so both are continuous.
    """

    points: jax.Array  # (n, 3) m
    period: jax.Array  # s, of a round


@pytree(static=("harmonics",))
class RandomPaths:
    """A distribution of `Fourier` paths: the k-th of K sines has a random share of about 1 / k^2 and a random phase."""

    amplitude: jax.Array = (1.0, 1.0, 0.5)  # m, the furthest from `offset` along each axis
    period: jax.Array = 8.0  # s
    offset: jax.Array = (0.0, 0.0, 0.0)  # m
    harmonics: int = 4


Path = Fourier | Waypoints


def _array(*numbers: Any) -> Any:
    return np.array(numbers)


def _one(amplitude: Any, frequency: Any, phase: Any, period: Any) -> Fourier:
    return Fourier(_array(amplitude), _array(frequency), _array(phase), period)


def _through(*points: Any, period: Any) -> Waypoints:
    return Waypoints(_array(*points), period)


PATHS: dict[str, Any] = {
    "circle": _one((1.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.5 * math.pi, 0.0, 0.0), 5.5),
    # learning-to-fly's: x = sin 2a, y = 2 cos a with a = 2 pi t / 5.5 + pi / 2.
    "figure_eight": _one((1.0, 2.0, 0.0), (2.0, 1.0, 0.0), (math.pi, math.pi, 0.0), 5.5),
    # crazyflow's, about its middle: 500 points at 50 Hz of which the last is the first again.
    "upright_eight": _one((1.0, 0.0, 0.5), (1.0, 0.0, 2.0), (0.0, 0.0, 0.0), 9.98),
    # RLtools'.
    "lissajous": _one((0.5, 1.0, 0.0), (2.0, 1.0, 1.0), (0.0, 0.0, 0.0), 6.5),
    "waypoints": _through(
        (1.0, 0.0, 0.0), (0.5, 1.0, 0.3), (-0.8, 0.8, 0.0), (-0.5, -0.4, -0.3), (0.2, -1.0, 0.0), period=8.0
    ),
    "random": RandomPaths(),
}
"""By name."""


def position(path: Path, time: Float[Array, "*batch"]) -> Float[Array, "*batch 3"]:
    """[m] at `time` [s]."""
    return _value(path, time, 0)


def velocity(path: Path, time: Float[Array, "*batch"]) -> Float[Array, "*batch 3"]:
    """[m/s]"""
    return _value(path, time, 1)


def acceleration(path: Path, time: Float[Array, "*batch"]) -> Float[Array, "*batch 3"]:
    """[m/s^2]"""
    return _value(path, time, 2)


def _value(path: Path, time: Any, order: int) -> Array:
    """The derivative of this order (0 to 2) in time."""
    time = jnp.asarray(time, jnp.result_type(float))
    return _fourier(path, time, order) if isinstance(path, Fourier) else _spline(path, time, order)


def _fourier(path: Fourier, time: Array, order: int) -> Array:
    # Whole turns are taken off first: sines of large numbers are inexact.
    turns = jnp.asarray(path.frequency) * (time / path.period)[..., None, None]
    sine, cosine = sincos(2 * math.pi * (turns - jnp.floor(turns)) + jnp.asarray(path.phase))
    rate = 2 * math.pi * jnp.asarray(path.frequency) / path.period
    terms = jnp.asarray(path.amplitude) * (sine, rate * cosine, -rate * rate * sine)[order]
    total = jnp.sum(terms, -2)
    return total + jnp.stack([jnp.asarray(x) for x in path.offset]) if order == 0 else total


def _spline(path: Waypoints, time: Array, order: int) -> Array:
    points = jnp.asarray(path.points)
    n = len(points)
    step = path.period / n
    knots = time / step
    knot = jnp.floor(knots)
    s = (knots - knot)[..., None]
    first = knot.astype(jnp.int32) % n
    before, here, there, beyond = (points[(first + i) % n] for i in (-1, 0, 1, 2))
    # In units of `step`: position, velocity and acceleration at both ends.
    v0, v1 = 0.5 * (there - before), 0.5 * (beyond - here)
    a0, a1 = before - 2 * here + there, here - 2 * there + beyond
    d, w, b = there - here - v0 - 0.5 * a0, v1 - v0 - a0, a1 - a0
    coefficients = (here, v0, 0.5 * a0, 10 * d - 4 * w + 0.5 * b, -15 * d + 7 * w - b, 6 * d - 3 * w + 0.5 * b)
    value = jnp.zeros_like(here)
    for k in range(5, order - 1, -1):  # Horner
        value = value * s + math.perm(k, order) * coefficients[k]
    return value / step**order


# ---- levels


def generate(key: Key[Array, ""], ranges: RandomPaths) -> Fourier:
    """A random smooth path, no further from `offset` than `amplitude` along each axis."""
    u = jax.random.uniform(key, (2, ranges.harmonics, 3))
    k = jnp.arange(1.0, ranges.harmonics + 1)[:, None]
    share = (0.05 + 0.95 * u[0]) / (k * k)  # so that the sines accelerate alike; never nothing at all
    share = share / jnp.sum(share, 0)
    amplitude = share * jnp.stack([jnp.asarray(x) for x in ranges.amplitude])
    period = jnp.asarray(ranges.period, u.dtype)
    offset: Any = tuple(jnp.asarray(x, u.dtype) for x in ranges.offset)
    return Fourier(amplitude, jnp.broadcast_to(k, u[0].shape), 2 * math.pi * u[1], period, offset)


def mutate(key: Key[Array, ""], path: Fourier, size: Any = 0.2) -> Fourier:
    """The path with each phase moved by about `size` [rad] and the amplitudes by this share, their sums kept."""
    normal = size * rough_normals(key, (2, *path.phase.shape))
    amplitude = path.amplitude * jnp.exp(normal[0])
    total, was = jnp.sum(jnp.abs(amplitude), 0), jnp.sum(jnp.abs(path.amplitude), 0)
    amplitude = amplitude * jnp.where(total > 0, was / jnp.where(total > 0, total, 1), 1)
    return path.replace(amplitude=amplitude, phase=path.phase + normal[1])


def demands(path: Path, points: int = 400) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The greatest speed [m/s] and acceleration [m/s^2] over a period."""
    time = jnp.linspace(0, 1, points) * path.period
    speed, force = velocity(path, time), acceleration(path, time)
    return jnp.sqrt(jnp.max(jnp.sum(speed**2, -1))), jnp.sqrt(jnp.max(jnp.sum(force**2, -1)))


def validate(path: Any, who: str = "Path") -> None:
    """Raise ValueError for a path, or a distribution of them, that makes no sense. Host only; may be batched."""
    for name, leaf in vars(path).items():
        for value in leaf if isinstance(leaf, tuple) else (leaf,):
            if not np.all(np.isfinite(np.asarray(value))):
                raise ValueError(f"{who}: path.{name}={leaf} is not finite.")
    if np.any(np.asarray(path.period) <= 0):
        raise ValueError(f"{who}: path.period={path.period} must be positive.")
    if isinstance(path, Waypoints) and np.shape(path.points)[-2] < 3:
        raise ValueError(f"{who}: a closed spline needs at least 3 points, not {np.shape(path.points)[-2]}.")
    if isinstance(path, Fourier):
        shapes = {name: np.shape(getattr(path, name))[-2:] for name in ("amplitude", "frequency", "phase")}
        if len(set(shapes.values())) > 1 or shapes["phase"][-1] != 3:
            raise ValueError(f"{who}: amplitude, frequency and phase are each (K, 3), not {shapes}.")

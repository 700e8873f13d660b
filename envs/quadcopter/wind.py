"""Dryden gusts: normal noise through the linear filters of MIL-F-8785C, stepped exactly for any time step.

With tau = L / V, the time in which the air passes one scale length, the spectra along (u) and across (v, w) the motion
through the air are those of unit white noise behind

    H_u(s) = sigma sqrt(2 tau) / (1 + tau s)
    H_v(s) = sigma sqrt(tau) (1 + sqrt(3) tau s) / (1 + tau s)^2        H_w likewise, each with its sigma and L

of variance sigma^2 and autocorrelation exp(-t / tau) along, (1 - t / (2 tau)) exp(-t / tau) across. MIL-HDBK-1797 has
the same forms with twice our length in v and w. The state is of unit size, so `params` may change on the way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import sincos

FOOT = 0.3048  # m


@pytree
class Dryden:
    """One kind of turbulence. In a batch components come first: (3, N)."""

    sigma: jax.Array = (1.06, 1.06, 0.7)  # (3,) m/s, of u, v, w
    length: jax.Array = (40.0, 40.0, 6.1)  # (3,) m, the scale lengths
    airspeed: jax.Array = 5.0  # m/s through the air; of a hovering drone, the mean wind


class Gust(NamedTuple):
    """The filters' state: scalars of unit size."""

    u: Any  # variance 1
    v: Any  # (2,) variances 1 and 1/2, covariance 1/2
    w: Any  # likewise


def low_altitude(height: Any, wind: Any, airspeed: Any) -> Dryden:
    """MIL-F-8785C's turbulence at `height` [m] above ground, from 3 to 300, with a `wind` [m/s] 6 m above ground."""
    height, wind = jnp.broadcast_arrays(jnp.asarray(height, float), jnp.asarray(wind, float))
    shape = 0.177 + 0.000823 / FOOT * height
    sigma = 0.1 * wind
    along, aside = height / shape**1.2, sigma / shape**0.4
    return Dryden(jnp.stack([aside, aside, sigma]), jnp.stack([along, along, height]), airspeed)


def init(normals: Float[Array, "5 *batch"], params: Dryden) -> Gust:
    """A draw of the stationary distribution, from standard normal numbers."""
    v, w = ((n, 0.5 * (n + m)) for n, m in ((normals[1], normals[2]), (normals[3], normals[4])))
    return Gust(normals[0], v, w)


def gust(state: Gust, params: Dryden) -> tuple[Any, Any, Any]:
    """(u, v, w) [m/s]: along the wind, to its left, up."""
    across = (math.sqrt(1.5) * y[0] + (math.sqrt(0.5) - math.sqrt(1.5)) * y[1] for y in (state.v, state.w))
    return tuple(sigma * y for sigma, y in zip(params.sigma, (state.u, *across), strict=True))


def step(state: Gust, normals: Float[Array, "5 *batch"], params: Dryden, dt: Any) -> tuple[Gust, tuple[Any, Any, Any]]:
    """The state `dt` [s] later and its gust, from standard normal numbers; exact in distribution, however long `dt`."""
    rates = [dt * params.airspeed / length for length in params.length]
    u = jnp.exp(-rates[0]) * state.u + jnp.sqrt(-jnp.expm1(-2 * rates[0])) * normals[0]
    v = _second_order(state.v, normals[1], normals[2], rates[1])
    w = _second_order(state.w, normals[3], normals[4], rates[2])
    state = Gust(u, v, w)
    return state, gust(state, params)


def _second_order(state: tuple[Any, Any], first: Any, second: Any, z: Any) -> tuple[Any, Any]:
    """dy1 = -y1 dt + sqrt(2) dW, dy2 = (y1 - y2) dt, a time z later.

    The covariance of what the noise added is ((P1, P2 / 2), (P2 / 2, P3 / 2)) with Pn = 1 - exp(-x) times the first n
    terms of exp(x), at x = 2 z. As a difference that has no digits left at small x, so there it is the other terms.
    """
    x = 2 * jnp.asarray(z)
    decay = jnp.exp(-x)
    series = jnp.zeros_like(x)
    small = jnp.minimum(x, 1)
    for k in range(18, 2, -1):  # 6 / 19! is below 2^-53
        series = (1 + series) * small / k  # in the end sum over k > 2 of 2 x^k / k!, without x^2
    rest = jnp.where(x < 1, decay * 0.5 * x * x * series, 1 - decay * (1 + x + 0.5 * x * x))
    p1, p2, p3 = -jnp.expm1(-x), rest + 0.5 * x * x * decay, rest
    a = jnp.sqrt(p1)
    b = 0.5 * p2 / a
    c = jnp.sqrt(jnp.maximum(0.5 * p3 - b * b, 0))
    y1, y2 = state
    decay = jnp.exp(-jnp.asarray(z))
    return decay * y1 + a * first, decay * (y2 + z * y1) + b * first + c * second


def in_world(gust: Any, heading: Any, mean: Any = 0.0) -> tuple[Any, Any, Any]:
    """(u, v, w) and a `mean` wind [m/s] that blow towards `heading` [rad, from x to y], in world coordinates."""
    sine, cosine = sincos(jnp.asarray(heading))
    u = gust[0] + mean
    return cosine * u - sine * gust[1], sine * u + cosine * gust[1], gust[2]

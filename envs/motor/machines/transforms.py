"""Clarke's and Park's transforms and their inverses, amplitude-invariant, on tuples of scalars (or of equal arrays).

    alpha = 2/3 (a - b/2 - c/2),  beta = (b - c) / sqrt 3          d + j q = exp(-j angle) (alpha + j beta)

A zero sequence (a + b + c) is dropped, and absent from the inverse. The d axis lies on phase a at angle zero. Angles
are electrical [rad]. Inside a step the sine and cosine of an angle, a *frame*, serve many rotations: `turn`, `unturn`.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from jaxrl.math import sincos

HALF_SQRT3 = math.sqrt(3) / 2


def clarke(abc: Any) -> tuple[Any, Any]:
    """(alpha, beta) of three phase quantities."""
    a, b, c = abc
    return (2 * a - b - c) / 3, (b - c) / math.sqrt(3)


def inverse_clarke(alphabeta: Any) -> tuple[Any, Any, Any]:
    """Three phase quantities without zero sequence."""
    alpha, beta = alphabeta
    return alpha, HALF_SQRT3 * beta - 0.5 * alpha, -HALF_SQRT3 * beta - 0.5 * alpha


def turn(xy: Any, frame: Any) -> tuple[Any, Any]:
    """A vector turned by the angle of `frame` = (sine, cosine): components on turned axes -> on fixed ones."""
    (x, y), (sin, cos) = xy, frame
    return cos * x - sin * y, sin * x + cos * y


def unturn(xy: Any, frame: Any) -> tuple[Any, Any]:
    """The inverse of `turn`."""
    (x, y), (sin, cos) = xy, frame
    return cos * x + sin * y, cos * y - sin * x


def park(alphabeta: Any, angle: Any) -> tuple[Any, Any]:
    """(d, q) of a vector on fixed axes."""
    return unturn(alphabeta, sincos(jnp.asarray(angle)))


def inverse_park(dq: Any, angle: Any) -> tuple[Any, Any]:
    """(alpha, beta) of a vector on axes turned by `angle`."""
    return turn(dq, sincos(jnp.asarray(angle)))


def abc_to_dq(abc: Any, angle: Any) -> tuple[Any, Any]:
    """(d, q) of three phase quantities."""
    return park(clarke(abc), angle)


def dq_to_abc(dq: Any, angle: Any) -> tuple[Any, Any, Any]:
    """Three phase quantities of (d, q)."""
    return inverse_clarke(inverse_park(dq, angle))


def vsd(phases: Any) -> tuple[Any, Any, Any, Any]:
    """Vector space decomposition of two three-phase windings, 30 degrees apart (Zhao and Lipo 1995).

    (alpha, beta) makes torque; (x, y) only heats. `phases` is a1, b1, c1, a2, b2, c2; the two zero sequences are
    dropped.
    """
    a1, b1, c1, a2, b2, c2 = phases
    s = HALF_SQRT3
    return (
        (a1 - 0.5 * (b1 + c1) + s * (a2 - b2)) / 3,
        (s * (b1 - c1) + 0.5 * (a2 + b2) - c2) / 3,
        (a1 - 0.5 * (b1 + c1) - s * (a2 - b2)) / 3,
        (-s * (b1 - c1) + 0.5 * (a2 + b2) - c2) / 3,
    )


def inverse_vsd(vector: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Six phase quantities without zero sequences."""
    alpha, beta, x, y = vector
    s = HALF_SQRT3
    both, difference = alpha + x, beta - y
    other, total = alpha - x, beta + y
    return (
        both,
        -0.5 * both + s * difference,
        -0.5 * both - s * difference,
        s * other + 0.5 * total,
        -s * other + 0.5 * total,
        -total,
    )


def flux_frame(flux: Any) -> tuple[Any, Any]:
    """Sine and cosine of a vector's direction; of angle zero where it vanishes, without an infinite derivative."""
    alpha, beta = flux
    square = alpha * alpha + beta * beta
    there = square > 0
    inverse = 1 / jnp.sqrt(jnp.where(there, square, 1))
    return jnp.where(there, beta * inverse, 0), jnp.where(there, alpha * inverse, 1)

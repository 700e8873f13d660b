"""Vectors and symmetric matrices of the biped's coordinates: x, z, pitch and, for both legs, angles of thigh and shank.

The two legs are an axis of the arrays, so that what belongs to both is written once; neither leg knows of the other, so
the matrices have the shape of an arrow.
"""

from __future__ import annotations

from typing import Any

from ..planar.scalars import Matrix, Vector  # here vectors are of five, the last two (2,)


def over_legs(x: Any, i: int, k: int) -> Any:
    """What belongs to the coordinates i and k: summed over the legs where i is of the hull and k of the legs."""
    return x[..., 0] + x[..., 1] if i < 3 <= k else x


def multiply(matrix: Matrix, vector: Vector) -> Vector:
    out: Vector = [0.0] * 5
    for (i, j), x in matrix.items():
        out[i] = out[i] + x * vector[j]
        if j < i:
            out[j] = out[j] + over_legs(x * vector[i], j, i)
    return out


def product(a: Vector, b: Vector) -> Any:
    return sum(over_legs(x * y, 0, k) for k, (x, y) in enumerate(zip(a, b, strict=True)))


def solve(matrix: Matrix, vector: Vector) -> Vector:
    """`x` of `matrix @ x = vector`, the matrix positive definite: LDL' from the feet up."""
    a, b = dict(matrix), list(vector)
    factors = {}
    for k in (4, 3, 2, 1, 0):
        inverse = 1 / a[k, k]
        factors[k] = inverse, [a[k, i] * inverse for i in range(k)]
        for i, factor in enumerate(factors[k][1]):
            b[i] = b[i] - over_legs(factor * b[k], i, k)
            for j in range(i + 1):
                a[i, j] = a[i, j] - over_legs(factor * a[k, j], i, k)
    for k in range(5):
        inverse, factor = factors[k]
        b[k] = b[k] * inverse - sum(x * y for x, y in zip(factor, b[:k], strict=True))
    return b

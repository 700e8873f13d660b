"""Sums and products of numbers and pairs that leave out what is known to be zero or one."""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.math import fence

Scalar = Any  # an array of one number, or a Python number that is known as the program is written
Pair = tuple[Scalar, Scalar]
Triple = tuple[Scalar, Scalar, Scalar]
Vector = list[Scalar]  # of the degrees of freedom
Matrix = dict[tuple[int, int], Scalar]  # symmetric: of (i, j), j <= i, where j is above i in the tree
Numbers = dict[str, Any]  # of arrays


def is_known(x: Scalar, value: float) -> bool:
    return type(x) is float and x == value


def mul(a: Scalar, b: Scalar) -> Scalar:
    if is_known(a, 0.0) or is_known(b, 0.0):
        return 0.0
    if is_known(a, 1.0) or is_known(b, 1.0):
        return b if is_known(a, 1.0) else a
    if is_known(a, -1.0) or is_known(b, -1.0):
        return -(b if is_known(a, -1.0) else a)
    return a * b


def add(*terms: Scalar) -> Scalar:
    terms = tuple(x for x in terms if not is_known(x, 0.0))
    return sum(terms[1:], terms[0]) if terms else 0.0


def sub(a: Scalar, b: Scalar) -> Scalar:
    if is_known(b, 0.0):
        return a
    return -b if is_known(a, 0.0) else a - b


def dot(a: Any, b: Any) -> Scalar:
    return add(*(mul(x, y) for x, y in zip(a, b, strict=True)))


def plus(a: Pair, b: Pair) -> Pair:
    return add(a[0], b[0]), add(a[1], b[1])


def minus(a: Pair, b: Pair) -> Pair:
    return sub(a[0], b[0]), sub(a[1], b[1])


def times(x: Scalar, a: Pair) -> Pair:
    return mul(x, a[0]), mul(x, a[1])


def left(a: Pair) -> Pair:
    """A quarter turn from the first axis towards the second: what a turning of 1 does to an arm."""
    return mul(-1.0, a[1]), a[0]


def turned(turn: Pair, a: Pair) -> Pair:
    """`a` turned by an angle of which `turn` is sine and cosine."""
    return sub(mul(turn[1], a[0]), mul(turn[0], a[1])), add(mul(turn[0], a[0]), mul(turn[1], a[1]))


def settle(tree: Any) -> Any:
    """`fence` for what is computed; Python numbers stay known."""
    leaves, structure = jax.tree.flatten(tree)
    kept = iter(fence([x for x in leaves if isinstance(x, jax.Array)]))
    return jax.tree.unflatten(structure, [next(kept) if isinstance(x, jax.Array) else x for x in leaves])

"""Sums and products of numbers and pairs that leave out what is known to be zero or one."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxrl.math import fence, on_cpu

T = TypeVar("T")

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


def stacked(xs: Sequence[Scalar]) -> Array:
    """Numbers one after another along a new first axis."""
    return jnp.stack(jnp.broadcast_arrays(*xs))


_differentiated = contextvars.ContextVar("differentiated", default=False)


@contextlib.contextmanager
def differentiated(yes: bool = True) -> Iterator[None]:
    """Whether derivatives are taken of what is written within."""
    token = _differentiated.set(yes)
    try:
        yield
    finally:
        _differentiated.reset(token)


def is_differentiated() -> bool:
    return _differentiated.get()


def once(make: Callable[[], T]) -> T:
    """`make()`, computed before anything that reads it, each number once. Python numbers in it stay known.

    It does what `jaxrl.math.fence` does, but on a CPU computes within the conditional, whose results need no copies:
    copying the numbers of a step took longer than computing them. Of a conditional that computes, though, a derivative
    takes long to write and to compile: there it is the fence.
    """
    if is_differentiated():
        leaves, structure = jax.tree.flatten(make())
        kept = iter(fence([x for x in leaves if isinstance(x, jax.Array)]))
        return jax.tree.unflatten(structure, [next(kept) if isinstance(x, jax.Array) else x for x in leaves])
    structure: Any = None
    known: list[Any] = []

    @jax.jit
    def numbers() -> list[Array]:
        nonlocal structure, known
        leaves, structure = jax.tree.flatten(make())
        known = [None if isinstance(x, jax.Array) else x for x in leaves]
        return [x for x in leaves if isinstance(x, jax.Array)]

    shapes = jax.eval_shape(numbers)

    def apart() -> list[Array]:
        always = jax.lax.optimization_barrier(jnp.bool_(True))  # hides that it is constant
        return jax.lax.cond(always, numbers, lambda: [jnp.zeros(x.shape, x.dtype) for x in shapes])

    found = iter(on_cpu(apart, numbers))
    return jax.tree.unflatten(structure, [next(found) if x is None else x for x in known])

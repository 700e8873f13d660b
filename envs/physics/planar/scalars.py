"""Sums and products of numbers and pairs that leave out what is known to be zero or one."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

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


ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
"""Attributes of a call that XLA's CPU backend compiles to a single kernel, as it does itself with small loops."""


def once(make: Callable[[], T]) -> T:
    """`make()`, computed before anything that reads it, each number once. Python numbers in it stay known.

    On a CPU it is one kernel, where XLA would start one for each number, which takes longer than computing it for a few
    environments. `make` may have no matrix product, reduction, gather or sort: XLA has no code for them in such a
    kernel. Derivatives are taken of the numbers behind `jaxrl.math.fence`.
    """
    structure: Any = None
    known: list[Any] = []

    @jax.jit
    def numbers() -> list[Array]:
        nonlocal structure, known
        leaves, structure = jax.tree.flatten(make())
        known = [None if isinstance(x, jax.Array) else x for x in leaves]
        return [x for x in leaves if isinstance(x, jax.Array)]

    def marked() -> Any:
        return set_xla_metadata(numbers(), **ONE_KERNEL)

    def kernel() -> Any:
        # XLA ends the process at a kernel with an argument that nothing reads (jaxlib 0.10.2): a call within reads all.
        # Behind the barrier no number is the result of another call, which would be marked in the place of this one.
        return set_xla_metadata(jax.jit(lambda: jax.lax.optimization_barrier(marked()))(), **ONE_KERNEL)

    found = iter(fence(numbers()) if is_differentiated() else on_cpu(kernel, numbers))
    return jax.tree.unflatten(structure, [next(found) if x is None else x for x in known])

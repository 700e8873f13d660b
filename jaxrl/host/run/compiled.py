"""Jitted functions that are made once for equal arguments, so that jax knows again what it has compiled for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16
"""Results of each function that are held, with the programs compiled for them: the ones used last."""


class Static(NamedTuple):
    """A pytree of hashable leaves, None among them, as a hashable value."""

    leaves: tuple[Any, ...]
    structure: Any

    @classmethod
    def of(cls, tree: Any) -> Static:
        leaves, structure = jax.tree.flatten(tree, is_leaf=lambda x: x is None)
        return cls(tuple(leaves), structure)

    @property
    def tree(self) -> Any:
        return jax.tree.unflatten(self.structure, self.leaves)


class _Number:
    """An array or a number, equal to those of the same type, shape and bits."""

    def __init__(self, value: Any) -> None:
        self.value, array = value, np.asarray(jax.random.key_data(value) if _is_key(value) else value)
        weak = type(value), getattr(value, "weak_type", False)
        self.told = weak, str(getattr(value, "dtype", array.dtype)), array.shape, array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and self.told == other.told

    def __hash__(self) -> int:
        return hash(self.told)


class Contents(NamedTuple):
    """A pytree of numbers as a hashable value: equal to another one of the same structure and bits."""

    leaves: tuple[_Number, ...]
    structure: Any

    @property
    def tree(self) -> Any:
        return jax.tree.unflatten(self.structure, [leaf.value for leaf in self.leaves])


def contents(tree: Any) -> Contents:
    """A pytree of concrete numbers by what is in it."""
    leaves, structure = jax.tree.flatten(tree)
    return Contents(tuple(map(_Number, leaves)), structure)


def kept(make: Callable[P, R]) -> Callable[P, R]:
    """`make`, whose results for the `MOST` arguments used last are held; those that cannot be hashed are not."""
    cached = functools.lru_cache(MOST)(make)

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            hash((args, tuple(kwargs.items())))
        except TypeError:  # an algorithm with settings of this kind
            return make(*args, **kwargs)
        return cached(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    return made


def _is_key(x: Any) -> bool:
    return bool(jax.numpy.issubdtype(getattr(x, "dtype", np.dtype(bool)), jax.dtypes.prng_key))

"""What contracts and tests say of trees, keys, traces and spaces, beside chex's assertions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxrl.math import fast_key, fence, light_key
from jaxrl.spaces import Space


def assert_no_key_reuse(fn: Callable[..., Any], *args: Any) -> Any:
    """`jit(fn)(*args)` under jax's key-reuse checker. Raises `jax.errors.KeyReuseError` where a key is consumed twice.

    `fast_key` and `light_key` make new key objects, which the checker cannot follow, and a derivative through the
    conditional of `fence` looks to it like a second use, so meanwhile they do nothing.
    """
    originals = (fast_key, light_key, fence)  # this module's own names are replaced on the way, too
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            for original in originals:
                name = original.__name__
                if getattr(module, "__dict__", {}).get(name) is original:
                    stack.enter_context(mock.patch.object(module, name, lambda tree: tree))
        stack.enter_context(jax.debug_key_reuse(True))
        # A new function object, so that nothing traced without the checker is taken from the cache.
        return jax.jit(lambda *args: fn(*args))(*args)


# ---- comparing trees


def _describe(tree: PyTree) -> dict[str, tuple[Any, ...]]:
    """Path -> (shape, dtype, weakly typed) of each leaf: what must not change for a program to be used again."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): (jnp.shape(x), getattr(x, "dtype", type(x)), bool(getattr(x, "weak_type", False)))
        for path, x in leaves
    }


# chex's `assert_trees_all_equal_shapes_and_dtypes` takes weakly typed leaves and strong ones for the same.
def assert_same_type(a: PyTree, b: PyTree, what: str) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b), f"{what}: {jax.tree.structure(a)} != {jax.tree.structure(b)}"
    first, second = _describe(a), _describe(b)
    wrong = {path: (first[path], second[path]) for path in first if first[path] != second[path]}
    assert not wrong, f"{what}: (shape, dtype, weak) differ: {wrong}"


def assert_strong(tree: PyTree, what: str) -> None:
    loose = [path for path, (_, dtype, weak) in _describe(tree).items() if weak or isinstance(dtype, type)]
    assert not loose, f"{what}: python scalars or weakly typed leaves {loose}; strongly_typed() makes arrays of them."


def plain(x: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


# chex's `assert_trees_all_close` allows integers the tolerance of floats, and cannot read keys.
def assert_close(a: PyTree, b: PyTree, what: str, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Equal integers, booleans and keys; floats within tolerance."""
    chex.assert_trees_all_equal_structs(a, b, custom_message=what)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        where = f"{what}: {jax.tree_util.keystr(path)}"
        x, y = plain(x), plain(y)
        if np.issubdtype(x.dtype, np.inexact):
            np.testing.assert_allclose(x, y, rtol, atol, err_msg=where)
        else:
            np.testing.assert_array_equal(x, y, err_msg=where)


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def assert_stock_keys(tree: PyTree, key: Array, what: str) -> None:
    stock = jax.random.key(0, impl="threefry2x32").dtype  # what `stock_keys` makes of others
    for path, (_, dtype, _) in _describe(tree).items():
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            said = f"{what}{path} is a {dtype}; store the user's kind of key, {key.dtype}, or {stock}."
            assert dtype in (key.dtype, stock), said


def all_in(space: Space, x: Any, batch: int) -> Array:
    """Whether all members of `x`, with `batch` leading axes, are in `space`."""
    return jnp.all(members(space, x, batch))


def members(space: Space, x: Any, batch: int) -> Array:
    """Which members of `x`, with `batch` leading axes, are in `space`: a boolean array of these axes."""
    contains = space.contains
    for _ in range(batch):
        contains = jax.vmap(contains)
    return contains(x)


# chex's `assert_max_traces` counts all functions of one name wrapped at one place as one, over the whole process: a
# contract called for a hundred environments would fail at the second.
class Counted:
    """A function that counts how often jax traces it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.traces = fn, 0

    def __call__(self, *args: Any) -> Any:
        self.traces += 1
        return self.fn(*args)

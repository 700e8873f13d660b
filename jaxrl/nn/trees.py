"""Gradient-boosted oblivious trees: a fixed budget of them as arrays, fitted to gradients one tree at a time.

Fuhrer, Tessler and Dalal (2025), "Gradient boosting reinforcement learning" (GBRL, arXiv:2407.08250). An oblivious tree
of depth L asks the same question, `x[feature] > threshold`, of all nodes of a level, so it is L questions and a table
of 2^L leaves; a row's answers, the first one highest, are the binary number of its leaf. An ensemble's outputs are the
sum of one leaf of each tree, and a gradient step is a new tree.

A categorical feature is a column for each of its values, one where it has the value (one-hot): the question
`column > 1/2` is GBRL's `feature == value`. Splits and leaf values are those of `gbrl` 1.1.9 on a hundred stored
batches (`tests/nn/test_trees.py`).

    trees = empty(num_trees=1000, depth=4, num_outputs=3)
    tree = fit(x, grads, candidates(x), depth=4)  # grads (B, 3): of the loss of a row with respect to its outputs
    trees = add(trees, jax.tree.map(lambda a: a[None], tree.scaled(-learning_rate)))
    outputs = predict(trees, x)
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.environment import pytree
from jaxrl.math import on_cpu, precise

SCORES = ("cosine", "l2")
"""How the splits of a level are compared."""
CANDIDATES = ("quantile", "uniform")
"""Where the thresholds of a numeric feature are."""
NEVER = 1e30
"""A threshold that no feature is above."""
_ROWS = 64
"""Rows that are predicted together on a CPU: beyond, the leaves that they read leave its cache."""


@pytree
class Tree:
    """One oblivious tree of depth L with D outputs; where a level asks nothing, its threshold is `NEVER`."""

    feature: jax.Array  # (L,) int32
    threshold: jax.Array  # (L,)
    leaves: jax.Array  # (2^L, D)

    def scaled(self, factor: Array | float) -> Tree:
        """The tree with leaf values times `factor`, a number or one for each output (D,)."""
        return self.replace(leaves=self.leaves * factor)


@pytree
class Trees:
    """An ensemble with room for S trees; those that are not there yet add nothing."""

    feature: jax.Array  # (S, L) int32
    threshold: jax.Array  # (S, L)
    leaves: jax.Array  # (S, 2^L, D)
    count: jax.Array  # () int32, trees that are there


class Candidates(NamedTuple):
    """The splits from which a tree's levels are chosen; of equally good ones the first is."""

    feature: np.ndarray  # (J,) int
    threshold: Array  # (J,)


def empty(num_trees: int, depth: int, num_outputs: int) -> Trees:
    """An ensemble without a tree, whose outputs are zero. Raises ValueError for a size below 1."""
    for name, size in (("num_trees", num_trees), ("depth", depth), ("num_outputs", num_outputs)):
        if size < 1:
            raise ValueError(f"{name}={size}: it must be at least 1.")
    dtype = jnp.result_type(float)
    return Trees(
        jnp.zeros((num_trees, depth), jnp.int32),
        jnp.full((num_trees, depth), NEVER, dtype),
        jnp.zeros((num_trees, 2**depth, num_outputs), dtype),
        jnp.int32(0),
    )


def check_names(score: str = SCORES[0], kind: str = CANDIDATES[0]) -> None:
    """Raise ValueError for an unknown score or kind of candidates; it names the nearest one."""
    for name, value, known in (("score", score, SCORES), ("candidates", kind, CANDIDATES)):
        if value not in known:
            near = difflib.get_close_matches(str(value).lower(), known, n=1, cutoff=0)[0]
            raise ValueError(f"{name}={value!r} is unknown; did you mean {near!r}? Known: {', '.join(known)}.")


def candidates(
    x: Float[Array, "B F"], num: int = 250, kind: str = "quantile", binary: np.ndarray | None = None
) -> Candidates:
    """`num` thresholds for each feature of the rows `x`, feature by feature, then 1/2 for each binary one.

    Args:
        num: "quantile": the last values of `num` of `num + 1` parts of the sorted rows, of equal size but for one row;
            no more than B are different. "uniform": `num` equal steps from the lowest value, without the highest.
        binary: (F,) bool, which features are zero or one, as the columns of a categorical feature. None: none.

    Raises ValueError for an unknown `kind`, fewer than one threshold, and `binary` of another length.
    """
    check_names(kind=kind)
    if num < 1:
        raise ValueError(f"num_candidates={num}: it must be at least 1.")
    B, F = x.shape
    binary = np.zeros(F, bool) if binary is None else np.asarray(binary, bool)
    if binary.shape != (F,):
        raise ValueError(f"binary has shape {binary.shape}; rows of {F} features need {(F,)}.")
    numeric, categorical = np.flatnonzero(~binary), np.flatnonzero(binary)
    values = x[:, numeric]
    if not len(numeric):
        thresholds = jnp.zeros((0,), x.dtype)
    elif kind == "quantile":
        size, larger = divmod(B, num + 1)
        last = np.cumsum(size + (np.arange(num + 1) < larger))[: min(num, B)] - 1
        thresholds = jnp.sort(values, 0)[last].T.reshape(-1)
    else:
        low, step = values.min(0), (values.max(0) - values.min(0)) / num
        thresholds = (low[:, None] + jnp.arange(num, dtype=x.dtype) * step[:, None]).reshape(-1)
    feature = np.repeat(numeric, thresholds.shape[0] // max(len(numeric), 1))
    half = jnp.full(len(categorical), 0.5, x.dtype)
    return Candidates(np.concatenate([feature, categorical]), jnp.concatenate([thresholds, half]))


def standardized(grads: Float[Array, "B D"], mask: Bool[Array, " B"] | None = None) -> Float[Array, "B D"]:
    """Gradients less their mean, over their standard deviation, output by output, over the rows of `mask`."""
    weight = jnp.ones(grads.shape[0]) if mask is None else mask.astype(grads.dtype)
    n = jnp.maximum(weight.sum(), 1)
    centred = grads - (weight @ grads) / n
    variance = (weight @ centred**2) / jnp.maximum(n - 1, 1)
    return centred / (jnp.sqrt(variance) + 1e-8)


@precise
def fit(
    x: Float[Array, "B F"],
    grads: Float[Array, "B D"],
    splits: Candidates,
    depth: int,
    score: str = "cosine",
    mask: Bool[Array, " B"] | None = None,
) -> Tree:
    """The tree that groups rows of alike gradients; a leaf's value is the mean gradient of its rows, 0 without one.

    Level by level the split is taken that is best for all nodes together. With n rows of the mean gradient g on either
    side of it in a node, the score "l2" is the sum over the nodes of n_left |g_left|^2 + n_right |g_right|^2, of
    gradients standardised by output. "cosine" sums its roots, of the gradients as they are: that is the cosine between
    the gradients of a node's rows and the means that stand for them, times the norm of the rows' gradients, by which
    gbrl 1.1.9 does not divide. A split is taken once; where none is left, a level asks nothing.

    Args:
        mask: rows that count; None: all. Thresholds are of all.

    Raises ValueError for an unknown `score`.
    """
    check_names(score)
    count = jnp.ones(x.shape[0], grads.dtype) if mask is None else mask.astype(grads.dtype)
    build = standardized(grads, mask) if score == "l2" else grads
    columns = jnp.concatenate([build, jnp.ones_like(build[:, :1])], -1) * count[:, None]
    right = x[:, splits.feature] > splits.threshold  # (B, J)
    sides = right.T.astype(grads.dtype)
    feature, left_over = jnp.asarray(splits.feature, jnp.int32), jnp.ones(len(splits.feature), bool)
    node = jnp.zeros(x.shape[0], jnp.int32)
    features, thresholds = [], []

    def strength(sums: Array) -> Array:  # n |g|^2, from the sum of gradients and n
        return jnp.sum(sums[..., :-1] ** 2, -1) / jnp.maximum(sums[..., -1], 1)

    for level in range(depth):
        # (B, nodes, D + 1): each row's gradient and a one, in the column of the node where it is.
        placed = (node[:, None] == jnp.arange(2**level))[..., None] * columns[:, None]
        on_right = (sides @ placed.reshape(len(node), -1)).reshape(-1, *placed.shape[1:])
        gain = strength(on_right) + strength(placed.sum(0) - on_right)
        gain = jnp.where(left_over, jnp.sum(jnp.sqrt(gain) if score == "cosine" else gain, -1), -jnp.inf)
        best, some = jnp.argmax(gain), left_over.any()
        features.append(jnp.where(some, feature[best], 0))
        thresholds.append(jnp.where(some, splits.threshold[best], NEVER))
        left_over = left_over & ~((feature == features[-1]) & (splits.threshold == thresholds[-1]))
        node = 2 * node + (some & right[:, best])
    inside = (node[:, None] == jnp.arange(2**depth)) * count[:, None]
    leaves = (inside.T @ grads) / jnp.maximum(inside.sum(0), 1)[:, None]
    return Tree(jnp.stack(features), jnp.stack(thresholds), leaves)


def add(trees: Trees, new: Tree) -> Trees:
    """The ensemble with n more trees, leaves (n, ...). Where there is no room for all of them, none is added."""
    n = new.feature.shape[0]
    fits = has_room(trees, n)
    at = jnp.where(fits, trees.count, 0)

    def put(old: Array, new: Array) -> Array:
        kept = jax.lax.dynamic_slice_in_dim(old, at, n)
        return jax.lax.dynamic_update_slice_in_dim(old, jnp.where(fits, new.astype(old.dtype), kept), at, 0)

    return Trees(
        put(trees.feature, new.feature),
        put(trees.threshold, new.threshold),
        put(trees.leaves, new.leaves),
        trees.count + n * fits,
    )


def has_room(trees: Trees, num: int) -> Bool[Array, ""]:
    """Whether `num` more trees fit into the budget."""
    return trees.count + num <= trees.feature.shape[-2]


def predict(trees: Trees | Tree, x: Float[Array, "*batch F"]) -> Float[Array, "*batch D"]:
    """The outputs for rows `x`: the sum of one leaf of each tree, all trees at once."""
    if isinstance(trees, Tree):
        answers = x[..., trees.feature] > trees.threshold
        return trees.leaves[answers @ (2 ** np.arange(answers.shape[-1])[::-1])]
    rows = x.reshape(-1, x.shape[-1])
    outputs = on_cpu(_in_parts, _predict, trees, rows) if rows.shape[0] > _ROWS else _predict(trees, rows)
    return outputs.reshape(*x.shape[:-1], -1)


def _in_parts(trees: Trees, rows: Float[Array, "B F"]) -> Float[Array, "B D"]:
    whole = rows.shape[0] // _ROWS * _ROWS
    parts = jax.lax.map(lambda part: _predict(trees, part), rows[:whole].reshape(-1, _ROWS, rows.shape[-1]))
    parts = parts.reshape(whole, -1)
    return parts if whole == rows.shape[0] else jnp.concatenate([parts, _predict(trees, rows[whole:])])


def _predict(trees: Trees, rows: Float[Array, "B F"]) -> Float[Array, "B D"]:
    (S, L), D = trees.feature.shape, trees.leaves.shape[-1]
    # Features first: a question reads one stretch of memory, and leaf numbers are made without a transposition.
    columns, leaf = rows.T, jnp.zeros((S, rows.shape[0]), jnp.int32)
    for level in range(L):
        leaf = 2 * leaf + (columns[trees.feature[:, level]] > trees.threshold[:, level, None])
    return trees.leaves.reshape(-1, D)[jnp.arange(S)[:, None] * 2**L + leaf].sum(0)

"""Curricula: what decides on which levels a student trains. A level is env params, so any environment can have one.

A `Curriculum` is three pure functions; `attach` puts one around any student whose environments take batched params and
gives an `Algorithm` again: train, fit, resume and sweeps work unchanged.

The buffer and the scores are those of prioritised level replay (Jiang et al. 2021a, arXiv:2010.03934; 2021b,
arXiv:2110.02439) as minimax (Jiang et al. 2023, arXiv:2311.12716) and JaxUED (Coward et al. 2024, arXiv:2403.13091)
have them. Both insert one level after another with a sort of the whole buffer for each; here a batch enters at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxrl.environment import is_concrete


class LevelBatch(NamedTuple):
    """The levels of n slots, leading axis n."""

    params: Any  # levels: env params with leading axis n
    slot: Int[Array, " n"]  # where in the buffer it comes from, -1 for a new one
    learn_mask: Bool[Array, " n"]  # learn from it; robust PLR only looks at new levels
    parent: Int[Array, " n"]  # the slot a mutated level was made from, else -1
    max_return: Float[Array, " n"]  # best return ever seen on it, -inf for a new one
    note: Any = ()  # leading axis n: what the curriculum wants back with the outcomes


class Outcomes(NamedTuple):
    """What a level's episodes showed, (n,) each; without a finished one means are 0, score and max_return -inf."""

    episode_return: Array  # mean over finished episodes
    episode_length: Array  # likewise
    success: Array  # share of finished episodes that succeed
    score: Array  # of the level for training, higher is more useful
    max_return: Array  # best return ever seen, now included
    episodes: Array  # finished episodes, int32


Look = Callable[[Array, Any, int], Outcomes]
"""`look(key, levels, num_steps)`: what the student, as it is now, does in so many steps on levels with leading axis n.
It does not learn from them."""


class Curriculum(NamedTuple):
    """`params` are the level distribution's, handed to the level function. `hyper` are a curriculum's dynamic settings,
    which its state keeps as `hyper`; they reach `init` as the student's do, through `Algorithm.init`.

    A slot keeps its level until an episode has ended on it. So `sample` makes levels for n slots, of which those in
    `wanted` get theirs, and to `update` a level comes once, in the rollout where it is done with; `episodes` is 0 in
    the other rows.
    """

    init: Callable[[Array, Any, Any], Any]  # (key, hyper, params) -> cstate
    sample: Callable[[Array, Any, Array], tuple[LevelBatch, Any]]  # (key, cstate, wanted (n,)) -> (batch, cstate)
    update: Callable[[Array, Any, LevelBatch, Outcomes], Any]  # (key, cstate, batch, outcomes) -> cstate
    name: str = "curriculum"
    settings: Any = ()  # static ones, which tell runs apart
    hyper: Any = None  # the dynamic ones that `init` gets unless others are given; None: it has none
    score: Callable[..., Array] | None = None  # of levels, (rollout, batch, seen, hyper) -> (n,), see `max_mc`
    metrics: Callable[[Any], dict[str, Array]] = lambda cstate: {}  # cstate -> scalars for the log, after `update`
    refresh: Callable[[Array, Any, Look], Any] | None = None  # (key, cstate, look) -> cstate, before each rollout
    whole_batches: bool = False  # all slots get new levels at once, when all are done with theirs


def new_levels(params: PyTree) -> LevelBatch:
    """A batch of levels of which nothing is known, to be learned from."""
    n = jax.tree.leaves(params)[0].shape[0]
    nowhere = jnp.full(n, -1)
    return LevelBatch(params, nowhere, jnp.ones(n, bool), nowhere, jnp.full(n, -jnp.inf))


def digest(tree: PyTree) -> str:
    """A few letters that tell values of a pytree apart from others, for `settings`; empty while they are traced."""
    if not is_concrete(tree):
        return ""
    leaves = [(str(path), np.asarray(x).tobytes()) for path, x in jax.tree_util.tree_leaves_with_path(tree)]
    return hashlib.sha256(repr(leaves).encode()).hexdigest()[:16]


def check_levels(maker: str, levels: PyTree, expected: PyTree, of: str) -> None:
    """Raise ValueError unless `levels`, from `maker`, have the structure, shapes and dtypes of `expected`, which is
    `of`. Arrays or their shapes."""
    found, wanted = (
        {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (levels, expected)
    )
    kinds = type(levels).__qualname__, type(expected).__qualname__
    for name in [*wanted, *found]:
        if name not in found or name not in wanted:
            lacking = "lack" if name in wanted else "have"
            raise ValueError(f"{maker}: its levels ({kinds[0]}) {lacking} {name}, unlike {of} ({kinds[1]}).")
    for name, x in found.items():
        y = wanted[name]
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise ValueError(
                f"{maker}: {name} of its levels is {x.dtype} {x.shape}; that of {of} is {y.dtype} {y.shape}."
            )
    if jax.tree.structure(levels) != jax.tree.structure(expected):
        raise ValueError(f"{maker}: its levels are {kinds[0]}, built otherwise than {of}, {kinds[1]}.")

"""The curriculum protocol: a curriculum chooses the levels on which a student trains.

A level is env params, so any environment can have a curriculum. A `Curriculum` is three pure functions. `attach` puts
one around any student whose environments take batched params, and returns an `Algorithm` again: train, fit, resume and
sweeps work unchanged.
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
    """A level for each of n slots of the student's environments."""

    params: Any  # the levels: env params with leading axis n
    slot: Int[Array, " n"]  # the level's index in the curriculum's buffer, -1 for a new level
    learn_mask: Bool[Array, " n"]  # whether the student learns from it; robust PLR does not learn from new levels
    parent: Int[Array, " n"]  # for a mutated level the buffer index of the original, else -1
    max_return: Float[Array, " n"]  # best return ever seen on the level, -inf for a new one
    note: Any = ()  # leading axis n: data that the curriculum gets back with the outcomes


class Outcomes(NamedTuple):
    """The results of episodes on each of n levels, (n,) each.

    Where no episode has finished, the three means are 0, `score` is -inf, and so is `max_return` of a new level.
    """

    episode_return: Array  # mean over the finished episodes
    episode_length: Array  # likewise
    success: Array  # share of the finished episodes that succeed
    score: Array  # of the level for training, higher is more useful; -inf without a score
    max_return: Array  # best return ever seen on the level, these episodes included
    episodes: Array  # finished episodes, int32


Look = Callable[[Array, Any, int], Outcomes]
"""`look(key, levels, num_steps) -> outcomes` of the current student in `num_steps` steps on each of n levels (leading
axis n), from which it does not learn."""


class Curriculum(NamedTuple):
    """Three pure functions over the curriculum's state, `cstate`, and a description of the curriculum.

    `params` given to `init` are those of the level distribution. `hyper` are the dynamic settings of the curriculum;
    its state keeps them as the field `hyper`, where they can be read and replaced.

    A slot keeps its level until an episode has ended on it. So `sample` returns levels for all n slots, but only slots
    in `wanted` take theirs. `update` gets the outcomes of each level once, after the last rollout on it; rows of other
    levels have `episodes` 0 and must be ignored.
    """

    init: Callable[[Array, Any, Any], Any]  # (key, hyper, params) -> cstate
    sample: Callable[[Array, Any, Array], tuple[LevelBatch, Any]]  # (key, cstate, wanted (n,)) -> (batch, cstate)
    update: Callable[[Array, Any, LevelBatch, Outcomes], Any]  # (key, cstate, batch, outcomes) -> cstate
    name: str = "curriculum"
    settings: Any = ()  # static settings; runs that differ in them are different runs
    hyper: Any = None  # default dynamic settings; None: the curriculum has none
    score: Callable[..., Array] | None = None  # of levels, see `scores`; None: it reads no score, or has `assess`
    metrics: Callable[[Any], dict[str, Array]] = lambda cstate: {}  # cstate -> scalars for the log, after `update`
    refresh: Callable[[Array, Any, Look], Any] | None = None  # (key, cstate, look) -> cstate, before each rollout
    whole_batches: bool = False  # True: slots get new levels only when all are done with theirs
    assess: Callable[..., tuple[Array, Any]] | None = None
    """`(key, cstate, rollout, batch, outcomes, hyper) -> (score, cstate)`, in place of `score` where that needs what
    the curriculum learns from rollouts. `refresh` gets no such scores."""


def new_levels(params: PyTree) -> LevelBatch:
    """A LevelBatch of new levels (leading axis n), all to be learned from."""
    n = jax.tree.leaves(params)[0].shape[0]
    nowhere = jnp.full(n, -1)
    return LevelBatch(params, nowhere, jnp.ones(n, bool), nowhere, jnp.full(n, -jnp.inf))


def digest(tree: PyTree) -> str:
    """A hash of a pytree's values (16 letters) that represents them in `settings`; "" where they are traced."""
    if not is_concrete(tree):
        return ""
    leaves = [(str(path), np.asarray(x).tobytes()) for path, x in jax.tree_util.tree_leaves_with_path(tree)]
    return hashlib.sha256(repr(leaves).encode()).hexdigest()[:16]


def check_levels(maker: str, levels: PyTree, expected: PyTree, of: str) -> None:
    """Raise ValueError unless `levels` have the structure, shapes and dtypes of `expected`. Both are arrays or shapes.

    The message names `maker`, which made the levels, and `of`, where the expected ones come from.
    """
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

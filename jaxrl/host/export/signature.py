"""What goes into an exported function and comes out: flat lists of arrays, and their names."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Leaf(NamedTuple):
    """One array of an argument or a result."""

    argument: str
    name: str  # the argument's, and the path in it
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class Signature:
    """The function on flat lists of arrays, and the names of these."""

    call: Callable[..., list[Array]]
    examples: list[Array]
    inputs: list[Leaf]
    outputs: list[Leaf]


def signature_of(function: Callable[..., Any], examples: tuple[Any, ...], outputs: Sequence[str]) -> Signature:
    """The signature of `function` as an exporter calls it.

    Raises ValueError without examples, for more of them than parameters, and for results that `outputs` does not name.
    """
    parameters = list(inspect.signature(function).parameters)
    if not examples or len(examples) > len(parameters):
        raise ValueError(f"export: {len(examples)} examples for a function of {len(parameters)} parameters.")
    leaves, tree = jax.tree.flatten(jax.tree.map(jnp.asarray, examples))

    def results(*leaves: Any) -> tuple[Any, ...]:
        out = function(*tree.unflatten(leaves))
        out = (out,) if len(outputs) == 1 else tuple(out)
        if len(out) != len(outputs):
            raise ValueError(f"export: the function returns {len(out)} results, outputs names {len(outputs)}.")
        return out

    def named(names: Sequence[str], trees: Any) -> list[Leaf]:
        return [
            Leaf(
                name, name + "".join(f".{jax.tree_util.keystr((key,), simple=True)}" for key in path), x.shape, x.dtype
            )
            for name, tree in zip(names, trees, strict=True)
            for path, x in jax.tree_util.tree_leaves_with_path(tree)
        ]

    shapes = jax.eval_shape(results, *leaves)
    return Signature(
        lambda *leaves: jax.tree.leaves(results(*leaves)),
        leaves,
        named(parameters[: len(examples)], tree.unflatten(leaves)),
        named(outputs, shapes),
    )

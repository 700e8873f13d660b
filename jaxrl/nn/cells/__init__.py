"""Cells: the layers that agents remember with, all behind one interface, chosen by name.

    cell = layer("s5", 64)
    carry = cell.initial_carry(batch_shape)                      # before an episode
    carry, outputs = cell(carry, inputs, start)                  # (T, *batch, features); start (T, *batch)

`start[t]` is True where `inputs[t]` is the first of an episode: nothing before it is seen. A sequence of one step is
the step form; both agree to rounding. A carry is a pytree with leading axes `batch_shape`, of any structure.
"""

from __future__ import annotations

import difflib
from typing import Any

from jaxtyping import PyTree

from jaxrl.nn.cells.frames import FrameStack
from jaxrl.nn.cells.linear_attention import LinearAttention
from jaxrl.nn.cells.lru import LRU
from jaxrl.nn.cells.min_gru import MinGRU
from jaxrl.nn.cells.s5 import S5
from jaxrl.nn.cells.window_attention import WindowAttention
from jaxrl.nn.recurrent import Recurrent

CELLS = ("gru", "lstm", "min_gru", "lru", "s5", "linear_attention", "attention", "frames")
"""The names that `layer` knows."""


def layer(name: str, features: int, *, window: int = 32, forward_mode: bool = False, **flax: Any) -> Any:
    """The cell called `name` with outputs of `features`, a flax module; `flax` may be its name or parent.

    `window`: the steps before the present one that `attention` and `frames` see; others have none.
    """
    check_cell(name)
    if name in ("gru", "lstm"):
        return Recurrent(features, name, forward_mode, **flax)
    if name in ("min_gru", "lru", "s5"):
        return {"min_gru": MinGRU, "lru": LRU, "s5": S5}[name](features, forward_mode, **flax)
    if name == "linear_attention":
        return LinearAttention(features, forward_mode=forward_mode, **flax)
    return {"attention": WindowAttention, "frames": FrameStack}[name](features, window, **flax)


def initial_carry(name: str, features: int, window: int, batch_shape: tuple[int, ...]) -> PyTree:
    """The carry of a cell before an episode, leaves (*batch_shape, ...)."""
    return layer(name, features, window=window, parent=None).initial_carry(batch_shape)


def check_cell(name: str, without: str = "") -> None:
    """Raises ValueError for an unknown cell; `without` is the algorithm without memory, which the message names."""
    if name not in CELLS:
        near = difflib.get_close_matches(name.lower(), CELLS, 1)
        hints = [f"{cell} is near" for cell in near] + [f"without memory: {without}"] * bool(without)
        hint = f" ({', '.join(hints)})" if hints else ""
        raise ValueError(f"rnn={name!r} is unknown; use one of {', '.join(CELLS)}{hint}.")

"""Programs of four kinds of instruction (`Elementwise`, `Product`, `Reduce`, `Join`), as `lower` makes them.

All that only moves numbers about is in the positions that a `Value` has in its buffer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(eq=False)
class Buffer:
    """A flat array: constant `data`, an input, or what one instruction writes."""

    dtype: np.dtype
    size: int
    data: np.ndarray | None = None


@dataclasses.dataclass(eq=False)
class Value:
    """An array whose element i is element `index[i]` of a buffer."""

    buffer: Buffer
    index: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def whole(self) -> bool:
        """Whether it is the buffer, all of it, in order."""
        return self.index.size == self.buffer.size and np.array_equal(self.index.ravel(), np.arange(self.buffer.size))


@dataclasses.dataclass(eq=False)
class Elementwise:
    """out[i] = operation(operands[0][i], ...), a key of `ELEMENTWISE`; operands have one shape."""

    out: Buffer
    operation: str
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Product:
    """out[b, m, n] = sum over k of operands[0][b, m, k] operands[1][b, n, k]."""

    out: Buffer
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Reduce:
    """out[m] = operation over k of operands[0][m, k], a key of `REDUCTIONS`."""

    out: Buffer
    operation: str
    operands: list[Value]


@dataclasses.dataclass(eq=False)
class Join:
    """The operands, flat, one after the other."""

    out: Buffer
    operands: list[Value]


@dataclasses.dataclass
class Program:
    """`outputs` of `inputs`, by `instructions` in order; only those that the outputs need."""

    inputs: list[Value]
    outputs: list[Value]
    instructions: list[Any]

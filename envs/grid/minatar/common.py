"""What the five MinAtar games share: actions, sticky actions, an observation of bit rows, a picture.

Young and Tian (2019), "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning
Experiments", arXiv:1903.03176, and its code, package `minatar` 1.0.15.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, UInt32

from jaxrl.environment import Environment, Hints
from jaxrl.math import fence
from jaxrl.spaces import Box, Discrete

SIZE = 10  # cells a side
FULL = (1 << SIZE) - 1  # a row with every cell set
STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
ACTIONS = ("stay", "left", "up", "right", "down", "fire")
EMPTY = -10  # x of an entity that is not there: neither it nor its trail is ever on the screen
CELL = 16  # pixels a side

Color = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class MinAtar(Environment):
    """Base of the games. With `minimal_actions` only those that do something are offered (the package's v1 ids)."""

    minimal_actions: bool = True

    hints = Hints(noiseless=True)

    minimal: ClassVar[tuple[int, ...]]
    """The actions that do something, among 0 stay, 1 left, 2 up, 3 right, 4 down, 5 fire."""
    channels: ClassVar[dict[str, Color]]
    """Name and colour of each plane of the observation; where several hold a cell, the picture shows the last."""

    def full_action(self, action: Integer[Array, ""]) -> Integer[Array, ""]:
        """The action among all six."""
        action = action.astype(jnp.int32)
        if not self.minimal_actions or len(self.minimal) == 6:
            return action
        full = jnp.zeros_like(action)
        for i, value in enumerate(self.minimal):  # comparisons: under vmap a lookup is a gather
            full = jnp.where(action == i, value, full)
        return full

    def observation_space(self, params: Any) -> Box:
        return Box(0, 1, (SIZE, SIZE, len(self.channels)), jnp.bool_)

    def action_space(self, params: Any) -> Discrete:
        return Discrete(len(self.minimal) if self.minimal_actions else 6)

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        offered = self.minimal if self.minimal_actions else range(6)
        return ("action, " + ", ".join(f"{i} {ACTIONS[value]}" for i, value in enumerate(offered)),)

    def validate(self, params: Any) -> None:
        p = np.asarray(params.sticky_action_prob)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: sticky_action_prob={p} must be from 0 to 1.")

    def check_positive(self, params: Any, *names: str) -> None:
        """Raise ValueError unless these fields of `params` are at least 1."""
        for name in names:
            if not np.all(np.asarray(getattr(params, name)) >= 1):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must be at least 1.")

    def render(self, state: Any, params: Any) -> np.ndarray:
        planes = np.asarray(self.observe(jax.random.key(0), state, params))
        picture = np.full((SIZE, SIZE, 3), (16, 18, 28), np.uint8)
        for plane, color in zip(np.moveaxis(planes, 2, 0), self.channels.values(), strict=True):
            picture[plane] = color
        picture = np.kron(picture, np.ones((CELL, CELL, 1), np.uint8))
        edge = (np.arange(SIZE * CELL) % CELL) == 0
        picture[edge] = picture[edge] * 0.8
        picture[:, edge] = picture[:, edge] * 0.8
        return picture


def happens(bits: UInt32[Array, "..."], probability: Any) -> Bool[Array, "..."]:
    """True with `probability`, decided by the 24 high bits of 32 random ones."""
    return (bits >> 8).astype(jnp.float32) * 2.0**-24 < probability


def bit(x: Integer[Array, "..."]) -> Integer[Array, "..."]:
    """A row with the one cell `x` set; without any, where `x` is off the screen."""
    return jnp.where((x >= 0) & (x < SIZE), 1 << jnp.clip(x, 0, SIZE - 1), 0)


def unpack(rows: Integer[Array, "10 channels"]) -> Bool[Array, "10 10 channels"]:
    """Planes of rows of bits, bit x of `rows[y, c]` at `[y, x, c]`."""
    rows = fence(rows)  # else computed anew for every cell
    return (rows[:, None, :] >> jnp.arange(SIZE)[:, None]) & 1 == 1

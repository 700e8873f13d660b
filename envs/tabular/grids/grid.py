"""Moves on a grid of rows * columns cells, numbered row by row; shared within the family."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Integer


def moved(
    cell: Integer[Array, ""], down: Integer[Array, "*K"], right: Integer[Array, "*K"], rows: int, columns: int
) -> Integer[Array, "*K"]:
    """The cell `down` rows and `right` columns from `cell`, or as far as the border."""
    row = jnp.clip(cell // columns + down, 0, rows - 1)
    column = jnp.clip(cell % columns + right, 0, columns - 1)
    return (row * columns + column).astype(jnp.int32)


def compass(direction: Integer[Array, "*K"]) -> tuple[Integer[Array, "*K"], Integer[Array, "*K"]]:
    """(down, right) of the directions up, right, down, left."""
    one = jnp.int32(1)
    down = jnp.where(direction == 2, one, 0) - jnp.where(direction == 0, one, 0)
    right = jnp.where(direction == 1, one, 0) - jnp.where(direction == 3, one, 0)
    return down, right


def slip(
    direction: Integer[Array, ""], success_rate: Float[Array, ""]
) -> tuple[Integer[Array, "3"], Float[Array, "3"]]:
    """The three ways to go when meaning to go one of four, in a circle, on ice; and how likely each is."""
    side = (1 - success_rate) / 2
    return (direction + jnp.arange(-1, 2, dtype=jnp.int32)) % 4, jnp.stack([side, success_rate, side])

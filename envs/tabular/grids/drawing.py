"""Pictures of grids, shared within the family. Host only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import GREY, INK, ORANGE, PALE, WHITE, Canvas, Color, Point

Disc = tuple[float, float, float, Color]
"""Row, column, radius in cells, colour."""


def draw_grid(
    rows: int,
    columns: int,
    colours: dict[int, Color],
    agent: int,
    caption: str,
    discs: Sequence[Disc] = (),
    walls: Sequence[tuple[Point, Point]] = (),
) -> UInt8[np.ndarray, "height width 3"]:
    """Cells, coloured where `colours` has their number, else pale; discs, walls and the agent on top.

    A wall runs between two corners (row, column), corner (0, 0) being the upper left of cell (0, 0).
    """
    span = max(columns, 3) + 0.4
    width = 60 * max(columns, 3) + 24
    height = round(width * (rows + 1.0) / span)
    canvas = Canvas(width, height, span, center=((columns - 1) / 2, -(rows - 1) / 2 + 0.3), background=WHITE)
    for cell in range(rows * columns):
        row, column = divmod(cell, columns)
        canvas.rectangle((column - 0.48, -row - 0.48), (column + 0.48, -row + 0.48), colours.get(cell, PALE))
    for row, column, radius, colour in discs:
        canvas.circle((float(column), -float(row)), radius, colour)
    for (row, column), (last_row, last_column) in walls:
        canvas.line([(column - 0.5, 0.5 - row), (last_column - 0.5, 0.5 - last_row)], 0.1, INK)
    row, column = divmod(agent, columns)
    here = float(column), -float(row)
    canvas.circle(here, 0.28, ORANGE)
    canvas.circle(here, 0.28, GREY, outline=0.03)
    canvas.caption(caption)
    return canvas.image()

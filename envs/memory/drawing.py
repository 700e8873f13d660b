"""Pictures of the boards of this family. Host only."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt8

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, WHITE, Canvas, Color

RED: Color = (200, 60, 50)
YELLOW: Color = (235, 200, 60)


def board(rows: int, columns: int, caption: str) -> Canvas:
    """An empty board of cells of length 1, whose cell (row, column) has its middle at x = column, y = -row."""
    span = max(columns, 3) + 0.4
    width = int(np.clip(60 * columns, 200, 600))
    height = round(width * (rows + 1.0) / span)
    canvas = Canvas(width, height, span, center=((columns - 1) / 2, -(rows - 1) / 2 + 0.3), background=WHITE)
    for row in range(rows):
        for column in range(columns):
            paint(canvas, row, column, PALE)
    canvas.caption(caption)
    return canvas


def paint(canvas: Canvas, row: int, column: int, color: Color) -> None:
    """One cell in a colour."""
    canvas.rectangle((column - 0.47, -row - 0.47), (column + 0.47, -row + 0.47), color)


def battleship(rows: int, columns: int, state: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Ships grey, hits red, misses blue."""
    ships, tried = np.asarray(state.ships), np.asarray(state.tried)
    canvas = board(rows, columns, f"t = {int(state.time)}: {int((ships & tried).sum())} of {int(ships.sum())} hit")
    for cell in range(rows * columns):
        row, column = divmod(cell, columns)
        if ships[cell]:
            paint(canvas, row, column, GREY)
        if tried[cell]:
            canvas.circle((column, -row), 0.25, RED if ships[cell] else BLUE)
    return canvas.image()


def rock_sample(rows: int, columns: int, rocks: np.ndarray, state: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Good rocks green and bad ones red, a ring around the one just checked, the exits grey."""
    canvas = board(rows, columns, f"t = {int(state.time)}")
    for row in range(rows):
        paint(canvas, row, columns - 1, GREY)
    for (row, column), good, reading in zip(rocks, state.good, state.reading, strict=True):
        canvas.circle((float(column), -float(row)), 0.36, GREEN if good else RED)
        if reading:
            canvas.circle((float(column), -float(row)), 0.44, GREEN if reading > 0 else RED, outline=0.05)
    row, column = (float(x) for x in state.place)
    canvas.circle((column, -row), 0.2, ORANGE)
    return canvas.image()


def compass_world(size: int, state: Any) -> UInt8[np.ndarray, "height width 3"]:
    """The walls in their colours, the agent as an arrow."""
    canvas = board(size, size, "")
    for i in range(size):
        for row, column, color in ((0, i, ORANGE), (i, size - 1, YELLOW), (size - 1, i, RED), (i, 0, BLUE)):
            paint(canvas, row, column, color)
    paint(canvas, 1, 0, GREEN)
    x, y = float(state.column), -float(state.row)
    dx, dy = ((0, 1), (1, 0), (0, -1), (-1, 0))[int(state.heading)]
    canvas.arrow((x - 0.35 * dx, y - 0.35 * dy), (x + 0.4 * dx, y + 0.4 * dy), 0.1, INK)
    return canvas.image()

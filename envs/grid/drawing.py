"""Pictures of grid worlds, 32 pixels a cell: `draw_state` for `GridTask.render`, `contact_sheet` for levels. Host only.

What the agent sees is lit; what it carries is in the corner of its cell.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, UInt8

from jaxrl.canvas import Canvas, Color
from jaxrl.canvas import contact_sheet as sheet

from .tiles import (
    AGENT,
    BALL,
    BOX,
    CLOSED,
    DOOR,
    FLOOR,
    GOAL,
    GREY,
    KEY,
    LAVA,
    NOTHING,
    OPEN,
    RED,
    WALL,
    color_of,
    kind_of,
    state_of,
)
from .views import look, view_table

TILE = 32  # pixels

# red, green, blue, purple, yellow, grey
PALETTE: tuple[Color, ...] = (
    (226, 54, 54),
    (62, 190, 84),
    (58, 110, 235),
    (146, 78, 214),
    (240, 205, 56),
    (126, 131, 140),
)
GROUND: Color = (20, 22, 28)
LINE: Color = (44, 48, 57)
LIGHT: Color = (196, 206, 232)  # what lit cells are tinted with
ORANGE: Color = (242, 118, 38)

Picture = UInt8[np.ndarray, "height width 3"]


def mix(color: Color, other: Color, share: float) -> Color:
    """`color` with a share of `other`."""
    red, green, blue = (round((1 - share) * a + share * b) for a, b in zip(color, other, strict=True))
    return red, green, blue


def _block(canvas: Canvas, color: Color, margin: float, edge: float, inner: Color) -> None:
    """A square frame."""
    low, high = margin, 1 - margin
    canvas.rectangle((low, low), (high, high), color)
    canvas.rectangle((low + edge, low + edge), (high - edge, high - edge), inner)


def draw_wall(canvas: Canvas, color: Color) -> None:
    """Bricks, laid so that cells join."""
    canvas.rectangle((0.0, 0.0), (1.0, 1.0), mix(color, GROUND, 0.45))
    px = 1 / TILE
    for row in range(4):
        low, high = row / 4 + px, (row + 1) / 4
        for left in (0.0, 0.5) if row % 2 else (-0.25, 0.25, 0.75):
            canvas.rectangle((left, low), (left + 0.5 - px, high), color)
            canvas.rectangle((left, high - px), (left + 0.5 - px, high), mix(color, (255, 255, 255), 0.2))


def draw_door(canvas: Canvas, color: Color, state: int) -> None:
    dark = mix(color, GROUND, 0.72)
    if state == OPEN:
        canvas.rectangle(
            (0.0, 0.0), (0.06, 1.0), mix(color, GROUND, 0.35)
        )  # the frame, with the leaf swung to one side
        canvas.rectangle((0.84, 0.0), (1.0, 1.0), color)
        canvas.rectangle((0.88, 0.05), (0.96, 0.95), dark)
    elif state == CLOSED:
        _block(canvas, color, 0.0, 0.06, GROUND)
        _block(canvas, color, 0.11, 0.06, dark)
        canvas.circle((0.72, 0.5), 0.07, color)
    else:
        _block(canvas, color, 0.0, 0.08, mix(color, GROUND, 0.5))
        for y in (0.24, 0.76):
            canvas.rectangle((0.08, y - 0.035), (0.92, y + 0.035), color)
        canvas.circle((0.5, 0.55), 0.1, GROUND)
        canvas.polygon([(0.5, 0.58), (0.58, 0.34), (0.42, 0.34)], GROUND)


def draw_key(canvas: Canvas, color: Color) -> None:
    canvas.rectangle((0.46, 0.14), (0.57, 0.6), color)
    for y in (0.14, 0.29):
        canvas.rectangle((0.57, y), (0.71, y + 0.09), color)
    canvas.circle((0.515, 0.69), 0.19, color)
    canvas.circle((0.515, 0.69), 0.085, GROUND)


def draw_ball(canvas: Canvas, color: Color) -> None:
    canvas.circle((0.5, 0.5), 0.32, color)
    canvas.circle((0.41, 0.6), 0.09, mix(color, (255, 255, 255), 0.55))


def _draw_box(canvas: Canvas, color: Color) -> None:
    _block(canvas, color, 0.14, 0.07, mix(color, GROUND, 0.72))
    canvas.rectangle((0.14, 0.57), (0.86, 0.65), color)
    canvas.rectangle((0.44, 0.5), (0.56, 0.65), color)


def draw_goal(canvas: Canvas, color: Color) -> None:
    canvas.rectangle((0.0, 0.0), (1.0, 1.0), mix(color, GROUND, 0.15))
    _block(canvas, mix(color, (255, 255, 255), 0.35), 0.12, 0.05, color)


def _draw_lava(canvas: Canvas) -> None:
    canvas.rectangle((0.0, 0.0), (1.0, 1.0), ORANGE)
    along = np.linspace(0.0, 1.0, 25)
    for base in (0.24, 0.5, 0.76):
        wave = base + 0.055 * np.sin(4 * np.pi * along)
        canvas.line([(float(x), float(y)) for x, y in zip(along, wave, strict=True)], 0.06, (128, 38, 14))


def draw_agent(canvas: Canvas, color: Color, direction: int) -> None:
    def turned(x: float, y: float) -> tuple[float, float]:
        for _ in range(direction):
            x, y = y, -x
        return x + 0.5, y + 0.5

    white = mix(color, (255, 255, 255), 0.85)
    canvas.polygon([turned(0.42, 0.0), turned(-0.36, 0.37), turned(-0.36, -0.37)], white)
    canvas.polygon([turned(0.34, 0.0), turned(-0.31, 0.3), turned(-0.31, -0.3)], color)


@functools.lru_cache(maxsize=4096)
def _tile(cell: int, direction: int, held: int, lit: bool) -> Picture:
    """A cell, with the agent in it unless `direction` is -1."""
    canvas = Canvas(TILE, TILE, 1.0, (0.5, 0.5), GROUND)
    kind, color = kind_of(cell), PALETTE[min(color_of(cell), GREY)]
    px = 1 / TILE
    if kind == FLOOR:
        canvas.rectangle((0.0, 0.0), (1.0, 1.0), mix(color, GROUND, 0.55))
    canvas.rectangle((0.0, 0.0), (px, 1.0), LINE)
    canvas.rectangle((0.0, 1 - px), (1.0, 1.0), LINE)
    if kind == WALL:
        draw_wall(canvas, color)
    elif kind == DOOR:
        draw_door(canvas, color, state_of(cell))
    elif kind in (KEY, BALL, BOX, GOAL):
        draw = {KEY: draw_key, BALL: draw_ball, BOX: _draw_box, GOAL: draw_goal}[kind]
        draw(canvas, color)
    elif kind == LAVA:
        _draw_lava(canvas)
    elif kind == AGENT:
        draw_agent(canvas, color, state_of(cell))
    if direction >= 0:
        draw_agent(canvas, PALETTE[RED], direction)
    picture = canvas.image().astype(np.float32)
    if held:
        half = TILE // 2
        picture[half:, half:] = _tile(held, -1, 0, False).reshape(half, 2, half, 2, 3).mean((1, 3))
        picture[half:, half] = picture[half, half:] = PALETTE[GREY]
    if lit:
        picture = 0.82 * picture + 0.18 * np.array(LIGHT, np.float32)
    tile = picture.round().astype(np.uint8)
    tile.flags.writeable = False
    return tile


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _seen(state: Any, shape: tuple[int, int], view_size: int, see_through_walls: bool) -> Any:
    return look(state, shape, view_size, see_through_walls) != 0


def field_of_view(
    state: Any, shape: tuple[int, int], view_size: int, see_through_walls: bool
) -> Bool[np.ndarray, "height width"]:
    """Which cells of the grid the agent sees."""
    height, width = shape
    lit = np.zeros(height * width + 1, bool)
    where = view_table(height, width, view_size)[int(state.direction) * height * width + int(state.position)]
    lit[where[np.asarray(_seen(state, shape, view_size, see_through_walls))]] = True
    return lit[:-1].reshape(shape)


def draw_state(
    state: Any, shape: tuple[int, int], view_size: int = 7, see_through_walls: bool = False, full: bool = False
) -> Picture:
    """A state from above, (32 height, 32 width, 3). `full`: the agent sees all, and no cell is lit."""
    height, width = shape
    grid = np.asarray(state.grid)[: height * width].reshape(shape)
    lit = np.zeros(shape, bool) if full else field_of_view(state, shape, view_size, see_through_walls)
    picture = np.empty((height, TILE, width, TILE, 3), np.uint8)
    for row in range(height):
        for column in range(width):
            cell, here = int(grid[row, column]) & 0xFFFFF, row * width + column == int(state.position)
            inside = (int(state.direction), int(state.carrying) & 0xFFFFF) if here else (-1, 0)
            picture[row, :, column] = _tile(cell or NOTHING, *inside, bool(lit[row, column]))
    return picture.reshape(height * TILE, width * TILE, 3)


def contact_sheet(task: Any, levels: Any, columns: int = 4, max_levels: int = 16) -> Picture:
    """At most `max_levels` of a batch of a `GridTask`'s levels as they start, evenly spaced, in rows of `columns`, with
    a margin between them. Raises ValueError for a single level, or none."""
    if np.ndim(levels.position) != 1 or not np.size(levels.position):
        raise ValueError(f"contact_sheet: position has shape {np.shape(levels.position)}; a batch has (levels,).")
    count = len(np.asarray(levels.position))
    chosen = np.unique(np.linspace(0, count - 1, min(count, max_levels)).round().astype(int))
    pictures = []
    for i in chosen:
        level = jax.tree.map(lambda x, i=i: x[i], levels)
        picture = task.render(task.start(level), level)
        pictures.append(np.pad(picture, ((8, 8), (8, 8), (0, 0)), constant_values=255))
    return sheet(pictures, columns, len(pictures))

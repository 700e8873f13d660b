"""Pictures of rule worlds, 32 pixels a cell, in the style of `drawing`. Host only.

What the agent sees is lit; what it carries is in the corner of its cell.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from jaxrl.canvas import Canvas, Color

from .. import tiles
from ..drawing import (
    GROUND,
    LIGHT,
    LINE,
    ORANGE,
    PALETTE,
    TILE,
    Picture,
    draw_agent,
    draw_ball,
    draw_door,
    draw_goal,
    draw_key,
    draw_wall,
    mix,
)
from .rules import BALL, BLACK, CLOSED, EMPTY, FLOOR, GOAL, HEX, KEY, LOCKED, OPEN, PYRAMID, SQUARE, STAR, WALL

COLORS: tuple[Color, ...] = (
    *((96, 98, 104), *PALETTE),  # none, red, green, blue, purple, yellow, grey
    *((58, 60, 68), ORANGE, (242, 242, 242), (150, 96, 48), (255, 138, 196)),  # black, orange, white, brown, pink
)


def _draw_polygon(canvas: Canvas, color: Color, corners: int, inner: float, radius: float, low: float) -> None:
    """A regular polygon or, with an `inner` radius, a star, pointing up around (0.5, low)."""
    steps = np.arange(2 * corners) * math.pi / corners
    radii = np.where(np.arange(2 * corners) % 2, inner, radius)
    points = zip((0.5 + radii * np.sin(steps)).tolist(), (low + radii * np.cos(steps)).tolist(), strict=True)
    canvas.polygon(list(points), color)


@functools.lru_cache(maxsize=4096)
def _tile(code: int, direction: int, held: int, lit: bool) -> Picture:
    """A packed tile, with the agent on it unless `direction` is -1: 0 right, 1 down, 2 left, 3 up."""
    shape, color = code >> 4, COLORS[min(code & 15, len(COLORS) - 1)]
    canvas = Canvas(TILE, TILE, 1.0, (0.5, 0.5), GROUND if shape != EMPTY else (0, 0, 0))
    px = 1 / TILE
    if shape == FLOOR and code & 15 != BLACK:
        canvas.rectangle((0.0, 0.0), (1.0, 1.0), mix(color, GROUND, 0.55))
    canvas.rectangle((0.0, 0.0), (px, 1.0), LINE)
    canvas.rectangle((0.0, 1 - px), (1.0, 1.0), LINE)
    light = mix(color, (255, 255, 255), 0.3)
    if shape in (WALL, BALL, KEY, GOAL):
        {WALL: draw_wall, BALL: draw_ball, KEY: draw_key, GOAL: draw_goal}[shape](canvas, color)
    elif shape in (LOCKED, CLOSED, OPEN):
        draw_door(canvas, color, {OPEN: tiles.OPEN, CLOSED: tiles.CLOSED, LOCKED: tiles.LOCKED}[shape])
    elif shape == SQUARE:
        canvas.rectangle((0.2, 0.2), (0.8, 0.8), color)
        canvas.rectangle((0.27, 0.66), (0.73, 0.73), light)
    elif shape == PYRAMID:
        canvas.polygon([(0.5, 0.86), (0.88, 0.18), (0.12, 0.18)], color)
        canvas.polygon([(0.5, 0.86), (0.5, 0.18), (0.12, 0.18)], light)
    elif shape == HEX:
        _draw_polygon(canvas, color, 6, 0.39 * math.cos(math.pi / 6), 0.39, 0.5)
        _draw_polygon(canvas, light, 6, 0.2 * math.cos(math.pi / 6), 0.2, 0.5)
    elif shape == STAR:
        _draw_polygon(canvas, color, 5, 0.17, 0.43, 0.47)
    if direction >= 0:
        draw_agent(canvas, PALETTE[tiles.RED], direction)
    picture = canvas.image().astype(np.float32)
    if held:
        half = TILE // 2
        picture[half:, half:] = _tile(held, -1, 0, False).reshape(half, 2, half, 2, 3).mean((1, 3))
        picture[half:, half] = picture[half, half:] = PALETTE[tiles.GREY]
    if lit:
        picture = 0.82 * picture + 0.18 * np.array(LIGHT, np.float32)
    tile = picture.round().astype(np.uint8)
    tile.flags.writeable = False
    return tile


def draw_state(state: Any, size: int, seen: np.ndarray) -> Picture:
    """A state from above, (32 size, 32 size, 3); `seen` are the cells in the agent's view, size^2 being the outside."""
    lit = np.zeros(size * size + 1, bool)
    lit[seen] = True
    picture = np.empty((size, TILE, size, TILE, 3), np.uint8)
    for cell, code in enumerate(np.asarray(state.grid)[:-1].tolist()):
        here = cell == int(state.position)
        agent = ((int(state.direction) + 3) % 4, int(state.pocket)) if here else (-1, 0)
        picture[cell // size, :, cell % size] = _tile(code, *agent, bool(lit[cell]))
    return picture.reshape(size * TILE, size * TILE, 3)

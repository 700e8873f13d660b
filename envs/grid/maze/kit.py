"""A maze as a level, for `maze` and its kin: shortest ways and optimal values, checks, text and pictures.

A search runs on bits, 32 cells of a row at a time, backwards from the goal.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Integer, UInt8, UInt32

from jaxrl.canvas import contact_sheet
from jaxrl.environment import pytree

from ..drawing import TILE, draw_state
from ..engine import success_reward
from ..tiles import GREEN_GOAL, GREY_WALL, NOTHING
from ..tiles import State as GridState

UNREACHABLE = np.iinfo(np.int32).max
"""In `distances`: no way leads to the goal."""

WallMap = Bool[Array, "height width"]
Rows = UInt32[Array, "height words"]  # a bit a cell
Headings = tuple[Rows, Rows, Rows, Rows]  # of an agent facing right, down, left, up
Picture = UInt8[np.ndarray, "pixels_y pixels_x 3"]


@pytree
class Level:
    """A maze, as params."""

    wall_map: jax.Array  # (height, width) bool
    agent_pos: jax.Array  # (2,) int32: x, y
    agent_dir: jax.Array  # int32, 0 right, 1 down, 2 left, 3 up
    goal_pos: jax.Array  # (2,) int32: x, y
    max_steps: jax.Array


# ---- ways to the goal


def packed(mask: WallMap) -> Rows:
    """A mask as bits: cell x of a row is bit x % 32 of its word x // 32."""
    words = -(-mask.shape[1] // 32)
    bits = jnp.pad(mask, ((0, 0), (0, 32 * words - mask.shape[1]))).reshape(-1, words, 32)
    return jnp.sum(bits.astype(jnp.uint32) << np.arange(32, dtype=np.uint32), -1, dtype=jnp.uint32)


def unpacked(rows: Rows, width: int) -> WallMap:
    """The mask of which `packed` makes `rows`."""
    bits = rows[..., None] >> np.arange(32, dtype=np.uint32) & 1
    return bits.reshape(rows.shape[0], -1)[:, :width].astype(bool)


def neighbours(rows: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """What each cell finds to the right of it, below, to the left and above; nothing outside."""
    right, left = rows >> 1, rows << 1
    if rows.shape[1] > 1:
        right |= jnp.pad(rows[:, 1:], ((0, 0), (0, 1))) << 31
        left |= jnp.pad(rows[:, :-1], ((0, 0), (1, 0))) >> 31
    below, above = jnp.pad(rows[1:], ((0, 1), (0, 0))), jnp.pad(rows[:-1], ((1, 0), (0, 0)))
    return right, below, left, above


def one_back(reached: Headings, free: Rows) -> Headings:
    """From where one more action leads to what is `reached`, or none: the backward search, all cells of a row at once.

    `reached` has rows for an agent facing right, down, left and up.
    """
    ahead = tuple(neighbours(rows)[direction] for direction, rows in enumerate(reached))
    right, down, left, up = reached
    turned = (down | up, right | left, down | up, right | left)
    return tuple((rows | a | t) & free for rows, a, t in zip(reached, ahead, turned, strict=True))  # pyright: ignore


def cell_mask(position: Int32[Array, "2"], shape: tuple[int, ...]) -> WallMap:
    """Where `position`, x and y, is."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    return (x == position[0]) & (y == position[1])


def grown(new: Headings, old: Headings) -> Bool[Array, ""]:
    """Whether the search came any further."""
    return functools.reduce(jnp.logical_or, [jnp.any(a != b) for a, b in zip(new, old, strict=True)])


def distances(level: Level) -> Int32[Array, "4 height width"]:
    """Actions, turns among them, from each direction, y and x until the goal is entered; 0 on the goal itself and
    `UNREACHABLE` on walls and where there is no way."""
    shape = level.wall_map.shape
    free = packed(~level.wall_map)

    def masks(reached):
        return jnp.stack([unpacked(rows, shape[1]) for rows in reached])

    def search(carry):
        reached, steps, _ = carry
        new = one_back(reached, free)
        return new, steps + ~masks(reached), grown(new, reached)

    goal = (packed(cell_mask(level.goal_pos, shape)) & free,) * 4
    start: Any = goal, jnp.zeros((4, *shape), jnp.int32), jnp.bool_(True)
    reached, steps, _ = jax.lax.while_loop(lambda carry: carry[2], search, start)
    return jnp.where(masks(reached), steps, UNREACHABLE)


def shortest(level: Level) -> Int32[Array, ""]:
    """Fewest actions that enter the goal from the start; `UNREACHABLE` where none do."""
    shape = level.wall_map.shape
    free, agent = packed(~level.wall_map), packed(cell_mask(level.agent_pos, shape))
    agents = tuple(jnp.where(level.agent_dir == direction, agent, 0) for direction in range(4))

    def arrived(reached):
        return functools.reduce(jnp.logical_or, [jnp.any(a & b) for a, b in zip(reached, agents, strict=True)])

    def search(carry):
        reached, steps, _, _ = carry
        new = one_back(reached, free)
        return new, steps + 1, arrived(new), grown(new, reached)

    goal = (packed(cell_mask(level.goal_pos, shape)) & free,) * 4
    start: Any = goal, jnp.int32(0), arrived(goal), jnp.bool_(True)
    _, steps, found, _ = jax.lax.while_loop(lambda carry: ~carry[2] & carry[3], search, start)
    return jnp.where(found, steps, UNREACHABLE)


def is_solvable(level: Level) -> Bool[Array, ""]:
    """Whether a way leads to the goal, however long."""
    shape = level.wall_map.shape
    free, agent = packed(~level.wall_map), packed(cell_mask(level.agent_pos, shape))

    def search(carry):
        reached, _, _ = carry
        new = functools.reduce(jnp.bitwise_or, neighbours(reached), reached) & free
        return new, jnp.any(new & agent), jnp.any(new != reached)

    goal = packed(cell_mask(level.goal_pos, shape)) & free
    start: Any = goal, jnp.any(goal & agent), jnp.bool_(True)
    return jax.lax.while_loop(lambda carry: ~carry[1] & carry[2], search, start)[1]


def optimal_value(level: Level, discount: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
    """The best discounted return of an episode: discount^(n-1) (1 - 0.9 n / max_steps) with n the fewest actions, 0
    where the goal cannot be entered in time.

    JaxUED's `MazeSolved` counts one action more, discount^n (1 - 0.9 (n + 1) / max_steps), which no play can attain.
    """
    steps = shortest(level)
    in_time = steps <= level.max_steps
    before = jnp.where(in_time, steps - 1, 0)
    return jnp.where(in_time, discount**before * success_reward(before, level.max_steps), 0)


# ---- checks


def validate(level: Level, solvable: bool = False) -> None:
    """Raise ValueError for a level that cannot be played or, with `solvable`, not be solved. Host only; leaves may be
    batched."""
    walls = np.asarray(level.wall_map)
    if walls.ndim < 2 or walls.dtype != np.bool_:
        raise ValueError(f"maze level: wall_map is {walls.dtype} {walls.shape}; it is boolean (height, width).")
    (*batch, height, width), flat = walls.shape, {"wall_map": walls.reshape(-1, *walls.shape[-2:])}
    for name, shape in (("agent_pos", (2,)), ("agent_dir", ()), ("goal_pos", (2,))):
        leaf = np.asarray(getattr(level, name))
        if leaf.shape != (*batch, *shape):
            raise ValueError(f"maze level: {name} has shape {leaf.shape}; for this wall_map it is {(*batch, *shape)}.")
        flat[name] = leaf.reshape(-1, *shape)
    if np.any(np.asarray(level.max_steps) < 1):
        raise ValueError(f"maze level: max_steps={level.max_steps} must be at least 1.")
    for direction in flat["agent_dir"][(flat["agent_dir"] < 0) | (flat["agent_dir"] > 3)]:
        raise ValueError(f"maze level: agent_dir={direction} must be from 0 to 3.")
    for name in ("agent_pos", "goal_pos"):
        x, y = flat[name].T
        outside = (x < 0) | (x >= width) | (y < 0) | (y >= height)
        for wrong in flat[name][outside]:
            raise ValueError(f"maze level: {name}={wrong} is outside; x is below {width}, y below {height}.")
        for wrong in flat[name][flat["wall_map"][np.arange(len(x)), y, x]]:
            raise ValueError(f"maze level: {name}={wrong} is a wall.")
    for both in flat["goal_pos"][np.all(flat["agent_pos"] == flat["goal_pos"], -1)]:
        raise ValueError(f"maze level: the agent starts on the goal, {both}.")
    if solvable:
        leaves: Any = {**flat, "max_steps": np.zeros(len(flat["agent_dir"]), np.int32)}  # the latter is not looked at
        with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
            found = np.asarray(jax.vmap(is_solvable)(Level(**leaves)))
        if not np.all(found):
            raise ValueError(f"maze level: no way leads to the goal in {int(np.sum(~found))} of {found.size}.")


# ---- levels as text and as pictures

TILES = ".#G>v<^"
"""Free, wall, goal, and the agent facing right, down, left, up."""
_CELLS = np.array([NOTHING, GREY_WALL, GREEN_GOAL, *[NOTHING] * 4], np.int32)


def to_tiles(level: Level) -> Integer[np.ndarray, "height width"]:
    """What is where in one level, as indices of `TILES`."""
    tiles = np.asarray(level.wall_map).astype(np.int32)
    tiles[tuple(np.asarray(level.goal_pos)[::-1])] = TILES.index("G")
    tiles[tuple(np.asarray(level.agent_pos)[::-1])] = TILES.index(">") + int(level.agent_dir)
    return tiles


def from_tiles(tiles: Integer[np.ndarray, "height width"], max_steps: int = 250) -> Level:
    """The level of which `to_tiles` gives this. Raises ValueError unless there are one agent and one goal."""
    agents, goals = np.argwhere(tiles >= TILES.index(">")), np.argwhere(tiles == TILES.index("G"))
    for name, found in (("agent", agents), ("goal", goals)):
        if len(found) != 1:
            places = f", at (x, y) {[(int(x), int(y)) for y, x in found]}" if len(found) else ""
            raise ValueError(f"maze level: there is one {name}, not {len(found)}{places}.")
    direction = int(tiles[tuple(agents[0])]) - TILES.index(">")
    wall_map = jnp.asarray(tiles == TILES.index("#"))
    numbers = (agents[0][::-1], direction, goals[0][::-1], max_steps)
    return Level(wall_map, *(jnp.asarray(n, jnp.int32) for n in numbers))


def to_ascii(level: Level) -> str:
    """One level as lines of one character a cell: `.` free, `#` wall, `G` goal, `>` `v` `<` `^` the agent."""
    return "\n".join("".join(TILES[t] for t in row) for row in to_tiles(level))


def from_ascii(text: str, max_steps: int = 250) -> Level:
    """The level that `to_ascii` writes so. Raises ValueError, saying where, for an unknown tile, lines of unequal
    length, or not exactly one agent and one goal."""
    lines = [line.strip() for line in text.strip().splitlines()]
    for y, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise ValueError(f"maze level: line {y} has {len(line)} characters, the first has {len(lines[0])}.")
        for x, tile in enumerate(line):
            if tile not in TILES:
                raise ValueError(f"maze level: unknown tile {tile!r} at x={x}, y={y}; a tile is one of {TILES}")
    return from_tiles(np.array([[TILES.index(tile) for tile in line] for line in lines], np.int32, ndmin=2), max_steps)


def paint(tiles: Integer[np.ndarray, "height width"], view_size: int = 0) -> Picture:
    """Tiles as a picture, with the outer wall around them; what the agent sees is lit where it has a `view_size`."""
    tiles = np.pad(tiles, 1, constant_values=TILES.index("#"))
    position = int(np.argmax(tiles >= TILES.index(">")))
    direction = max(int(tiles.flat[position]) - TILES.index(">"), 0)
    cells = np.append(_CELLS[tiles], GREY_WALL)
    numbers = (0, cells, position if tiles.max() >= TILES.index(">") else -1, direction, 0, (), ())
    state = GridState(*(jnp.asarray(n, jnp.int32) for n in numbers))
    return draw_state(state, tiles.shape, view_size or 3, see_through_walls=True, full=not view_size)


def draw(level: Level) -> Picture:
    """A picture of one level, 32 pixels a cell. `from_picture` reads it back."""
    return paint(to_tiles(level))


def draw_levels(levels: Level, columns: int = 8, pixels: int = 16) -> Picture:
    """A contact sheet of a batch of levels, `pixels` (a divisor of 32) a cell."""

    def small(picture):
        by = TILE // pixels
        rows, width = picture.shape[0] // by, picture.shape[1] // by
        picture = picture.reshape(rows, by, width, by, 3).mean((1, 3)).round().astype(np.uint8)
        return np.pad(picture, ((4, 4), (4, 4), (0, 0)), constant_values=255)

    levels = jax.device_get(levels)
    count = len(levels.agent_dir)
    return contact_sheet([small(draw(jax.tree.map(lambda x, i=i: x[i], levels))) for i in range(count)], columns, count)


@functools.cache
def tile_pictures() -> UInt8[np.ndarray, "tiles size size 3"]:
    """What each of `TILES` looks like."""
    return np.stack([paint(np.array([[tile]]))[TILE:-TILE, TILE:-TILE] for tile in range(len(TILES))])


def from_picture(picture: UInt8[np.ndarray, "pixels_y pixels_x 3"], max_steps: int = 250) -> Level:
    """The level of which `draw` gives this, the pixels of a PNG. Raises ValueError, saying where, for a tile that is
    none of ours."""
    if any(n % TILE for n in picture.shape[:2]):
        raise ValueError(f"maze level: a picture of {picture.shape[:2]} pixels; tiles are {TILE} x {TILE}.")
    rows, columns = picture.shape[0] // TILE, picture.shape[1] // TILE
    cells = picture.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2)[1:-1, 1:-1]
    same = np.all(cells[:, :, None] == tile_pictures(), (-1, -2, -3))
    for y, x in np.argwhere(~same.any(-1)):
        raise ValueError(f"maze level: the tile at x={x}, y={y} of the picture is none of {TILES}")
    return from_tiles(same.argmax(-1), max_steps)

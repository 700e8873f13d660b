"""A lattice of equal rooms with doors between them, being furnished: what the RoomGrid tasks make their levels from.

After `RoomGrid` of `minigrid` 3.2.0. Rooms share walls; `room = row * columns + column`; the sides of a room are 0
right, 1 down, 2 left, 3 up. Everything is drawn as there, but by one choice among what is allowed instead of trying
until it is. Where the reference gives a level up and draws a new one (nowhere to put an object, say), `valid` becomes
False: see `engine.until_valid`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Integer, UInt32

from jaxrl.environment import pytree
from jaxrl.math import below, choose

from .engine import permutation, put, random_color, reachable
from .tiles import (
    BALL,
    BOX,
    CLOSED,
    COLORS,
    DOOR,
    GREY_WALL,
    KEY,
    LOCKED,
    NOTHING,
    OPEN,
    WALL,
    Index,
    Level,
    color_of,
    kind_of,
    pack,
)

LOOSE = (KEY, BALL, BOX)  # kinds of objects that lie about
MOST_CELLS = 4096  # of a house: a table of its square has 45 MB

Room = Integer[Array, ""]


@pytree(static=("rows", "columns", "size"))
class House:
    """Rooms so far."""

    rows: int
    columns: int
    size: int  # of a room with its walls
    grid: jax.Array  # (cells,) int32, flat
    doorways: jax.Array  # (rooms, 4) int32, the cell where a door of that side would be; -1 at the outer wall
    open_to: jax.Array  # (rooms, 4) bool, there is a door or no wall
    locked: jax.Array  # (rooms,) bool, a locked door was put to it (not to its neighbour)
    position: jax.Array  # int32, the agent; in the middle until it is placed
    direction: jax.Array  # int32
    seen: jax.Array  # (3, 6) bool, which kinds and colours of loose objects there are
    valid: jax.Array  # bool, all that was asked for found a place

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the grid."""
        return shape_of(self.rows, self.columns, self.size)

    @property
    def num_rooms(self) -> int:
        """How many."""
        return self.rows * self.columns


def shape_of(rows: int, columns: int, size: int) -> tuple[int, int]:
    """(height, width) of the grid of so many rooms."""
    return rows * (size - 1) + 1, columns * (size - 1) + 1


def check_cells(id: str, size: int, rows: int, columns: int) -> None:
    """Raise ValueError for rooms of too many cells: placing objects compares each cell with every other."""
    height, width = shape_of(rows, columns, size)
    if height * width > MOST_CELLS:
        raise ValueError(
            f"{id}: room_size={size} and {rows} x {columns} rooms (num_rows x num_cols) are {height * width} cells; "
            f"there must be at most {MOST_CELLS}."
        )


def num_doorways(rows: int, columns: int) -> int:
    """How many walls lie between two rooms: the random words that `build` needs."""
    return rows * (columns - 1) + columns * (rows - 1)


def build(bits: UInt32[Array, " doorways"], rows: int, columns: int, size: int) -> House:
    """Empty rooms, a random place for a door in each wall between two, the agent in the middle facing right."""
    height, width = shape_of(rows, columns, size)
    y, x = np.divmod(np.arange(height * width), width)
    grid = np.where((y % (size - 1) == 0) | (x % (size - 1) == 0), GREY_WALL, NOTHING).astype(np.int32)
    which, first, stride = _doorways(rows, columns, size)
    doorways = jnp.where(which >= 0, first + (1 + below(bits, size - 2))[which] * stride, -1) if len(bits) else which
    middle = (rows // 2 * (size - 1) + size // 2) * width + columns // 2 * (size - 1) + size // 2
    return House(
        rows=rows,
        columns=columns,
        size=size,
        grid=jnp.asarray(grid),
        doorways=jnp.asarray(doorways, jnp.int32),
        open_to=jnp.zeros((rows * columns, 4), bool),
        locked=jnp.zeros(rows * columns, bool),
        position=jnp.int32(middle),
        direction=jnp.int32(0),
        seen=jnp.zeros((len(LOOSE), len(COLORS)), bool),
        valid=jnp.bool_(True),
    )


def _inner_walls(rows: int, columns: int) -> list[tuple[int, int]]:
    """(room, side) of each wall between two rooms, from its upper or left room."""
    upright = [(r * columns + c, 0) for r in range(rows) for c in range(columns - 1)]
    return upright + [(r * columns + c, 1) for r in range(rows - 1) for c in range(columns)]


@functools.cache
def _doorways(rows: int, columns: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rooms, 4) each: which of the inner walls a side is, -1 for none; its first cell and the way to the next."""
    width = shape_of(rows, columns, size)[1]
    which, first, stride = np.full((3, rows * columns, 4), -1, np.int32)
    for k, (room, side) in enumerate(_inner_walls(rows, columns)):
        row, column = divmod(room, columns)
        top, left = row * (size - 1), column * (size - 1)
        start = (top * width + left + size - 1, width) if side == 0 else ((top + size - 1) * width + left, 1)
        for place in ((room, side), (room + (1, columns)[side], side + 2)):
            which[place], (first[place], stride[place]) = k, start
    return which, first, stride


def inside(house: House, room: Any) -> Bool[Array, " cells"] | Bool[np.ndarray, " cells"]:
    """The cells of a room and of the walls around it."""
    height, width = house.shape
    y, x = np.divmod(np.arange(height * width), width)
    row, column = room // house.columns, room % house.columns
    y, x = y - row * (house.size - 1), x - column * (house.size - 1)
    return (y >= 0) & (y < house.size) & (x >= 0) & (x < house.size)


def neighbor(house: House, room: Any, side: Any) -> Any:
    """The room behind a side; there must be one."""
    return room + jnp.asarray([1, house.columns, -1, -house.columns])[side]


def _connect(house: House, room: Any, side: Any) -> House:
    there = neighbor(house, room, side)
    rooms, sides = np.arange(house.num_rooms)[:, None], np.arange(4)
    here = (rooms == room) & (sides == side) | (rooms == there) & (sides == (side + 2) % 4)
    return house.replace(open_to=house.open_to | here)


def add_door(house: House, room: Any, side: Any, color: Any, state: Any = CLOSED) -> House:
    """A door of that colour and state (closed or locked) in a wall; there must be a neighbour and no door yet."""
    house = _connect(house, room, side)
    grid = put(house.grid, house.doorways[room, side], pack(DOOR, color, state))
    # As there: the last door put to a room says whether it counts as locked.
    locked = jnp.where(np.arange(house.num_rooms) == room, jnp.asarray(state) == LOCKED, house.locked)
    return house.replace(grid=grid, locked=locked)


def free_side(bits: UInt32[Array, ""], house: House, room: Any) -> Integer[Array, ""]:
    """A random side of a room with a neighbour and without a door; 4 where there is none."""
    return choose(bits, (house.doorways[room] >= 0) & ~house.open_to[room])


def remove_wall(house: House, room: Any, side: Any) -> House:
    """Rooms that share a side become one; the corners of the wall stay."""
    height, width = house.shape
    y, x = np.divmod(np.arange(height * width), width)
    both = inside(house, room) & inside(house, neighbor(house, room, side))
    along = jnp.where(jnp.asarray(side) % 2 == 0, y % (house.size - 1) != 0, x % (house.size - 1) != 0)
    return _connect(house, room, side).replace(grid=jnp.where(both & along, NOTHING, house.grid))


def add_object(bits: UInt32[Array, ""], house: House, room: Any, cell: Any) -> tuple[House, Index]:
    """Put an object into a room, not on or next to the agent: `(house, where)`."""
    height, width = house.shape
    y, x = np.divmod(np.arange(height * width), width)
    apart = jnp.abs(y - house.position // width) + jnp.abs(x - house.position % width) >= 2
    index = choose(bits, (house.grid == NOTHING) & inside(house, room) & apart)
    kinds, colors = np.array(LOOSE)[:, None], np.arange(len(COLORS))
    return house.replace(
        grid=put(house.grid, index, cell),
        seen=house.seen | (kinds == kind_of(cell)) & (colors == color_of(cell)),
        valid=house.valid & (index < height * width),
    ), index


def random_object(bits: UInt32[Array, "2"]) -> Int32[Array, ""]:
    """A key, ball or box of any colour."""
    return pack(jnp.asarray(LOOSE, jnp.int32)[below(bits[0], len(LOOSE))], random_color(bits[1]))


def add_distractors(
    bits: UInt32[Array, "n 4"], house: House, room: Any = None, unique: bool = True
) -> tuple[House, Int32[Array, " n"], Int32[Array, " n"]]:
    """`n` random objects in a room, each in its own, or each in any: `(house, cells, where)`. `unique`: of no kind and
    colour that is there already."""
    every = pack(np.repeat(LOOSE, len(COLORS)), np.tile(np.arange(len(COLORS)), len(LOOSE)))

    def add(house: House, drawn: tuple[Array, Array]) -> tuple[House, tuple[Array, Array]]:
        bits, room = drawn
        which = choose(bits[0], ~house.seen.reshape(-1)) if unique else below(bits[0], len(every))
        cell = jnp.asarray(every, jnp.int32)[which]
        house, index = add_object(bits[3], house, room, cell)
        return house, (cell, index)

    anywhere = below(bits[:, 1], house.columns) + house.columns * below(bits[:, 2], house.rows)
    which_room = anywhere if room is None else jnp.broadcast_to(jnp.asarray(room, jnp.int32), len(bits))
    house, (cells, where) = jax.lax.scan(add, house, (bits, which_room))
    return house, cells, where


def place_agent(bits: UInt32[Array, "3"], house: House, room: Any = None) -> House:
    """The agent on a random empty cell of a room, or of any, turned at random but not towards an object or door."""
    height, width = house.shape
    if room is None:
        room = below(bits[0], house.columns) + house.columns * below(bits[1], house.rows)
    y, x = np.divmod(np.arange(height * width), width)
    free = []
    for direction in range(4):
        v, u = y + (0, 1, 0, -1)[direction], x + (1, 0, -1, 0)[direction]
        index = np.where((v >= 0) & (v < height) & (u >= 0) & (u < width), v * width + u, 0)  # 0 is a wall
        faced = house.grid[index]
        free.append((faced == NOTHING) | (kind_of(faced) == WALL))
    stands = (house.grid == NOTHING) & inside(house, room)
    chosen = choose(bits[2], (stands & jnp.stack(free)).reshape(-1))
    return house.replace(
        position=chosen % (height * width),
        direction=jnp.minimum(chosen // (height * width), 3),
        valid=house.valid & (chosen < 4 * height * width),
    )


def connect_all(bits: UInt32[Array, " doorways 2"], house: House, colors: Any = None) -> House:
    """Add doors in random order until all rooms can be reached from the agent's, never to a locked one.

    `colors`: (6,) bool, which colours they may have. The reference draws walls until the rooms are connected; drawn
    again, a wall changes nothing, so that is a random order. A level that cannot be connected is not `valid`.
    """
    if house.num_rooms == 1:
        return house
    walls = np.array(_inner_walls(house.rows, house.columns))
    here, side = walls.T
    there = here + np.where(side == 0, 1, house.columns)
    joined = house.open_to[here, side]
    permitted = ~joined & ~house.locked[here] & ~house.locked[there]

    def add(label: Array, drawn: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        wall, joined, may = drawn
        wanted = joined | may & jnp.any(label != label[0])
        a, b = label[jnp.asarray(here)[wall]], label[jnp.asarray(there)[wall]]
        return jnp.where(wanted & (label == b), a, label), wanted

    order = permutation(bits[:, 0])
    no, n = jnp.zeros(len(walls), bool), len(walls)
    # First what is joined already.
    turns = (jnp.append(jnp.arange(n), order), jnp.append(joined, no), jnp.append(no, permitted[order]))
    label, wanted = jax.lax.scan(add, jnp.arange(house.num_rooms), turns)
    wanted = wanted[n:]
    allowed = jnp.ones(len(COLORS), bool) if colors is None else colors
    color = jax.vmap(choose, (0, None))(bits[:, 1], allowed)
    doorways = jnp.where(wanted, house.doorways[here, side][order], house.grid.size)
    opened = jnp.zeros(len(walls), bool).at[order].set(wanted)
    return house.replace(
        grid=house.grid.at[doorways].set(pack(DOOR, color, CLOSED), mode="drop"),
        open_to=house.open_to.at[here, side].max(opened).at[there, (side + 2) % 4].max(opened),
        valid=house.valid & jnp.all(label == label[0]),
    )


def objects_reachable(house: House) -> Bool[Array, ""]:
    """Whether the agent could walk up to every object and door, with no object moved and all doors open."""
    passable = ((house.grid == NOTHING) | (kind_of(house.grid) == DOOR)).reshape(house.shape)
    walk = reachable if house.shape[1] > 31 else _reachable_by_rows
    reached = walk(passable, house.position).reshape(-1)
    return jnp.all(reached | (house.grid == NOTHING) | (kind_of(house.grid) == WALL))


def _reachable_by_rows(passable: Bool[Array, "height width"], start: Index) -> Bool[Array, "height width"]:
    """`engine.reachable` from a passable cell, several times faster: a row is one integer, a bit a cell, flooded at
    once as in `views.visible`."""
    height, width = passable.shape
    column = jnp.arange(width, dtype=jnp.uint32)
    rows = jnp.sum(passable.astype(jnp.uint32) << column, 1, dtype=jnp.uint32)
    start_bit = jnp.uint32(1) << (start % width).astype(jnp.uint32)
    here = jnp.where(np.arange(height) == start // width, start_bit, jnp.uint32(0))

    def beside(lit: Array) -> Array:
        return jnp.pad(lit[1:], (0, 1)) | jnp.pad(lit[:-1], (1, 0))

    def spread(carry):
        lit, _ = carry
        seed = (lit | beside(lit)) & rows
        flood = (((seed + rows) ^ rows) | seed) & rows
        run, shift = rows, 1
        while shift < width:
            flood |= run & (flood >> shift)
            run &= run >> shift
            shift *= 2
        return flood | here, jnp.any(flood | here != lit)

    lit, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (here, jnp.bool_(True)))
    return ((lit | beside(lit) | lit << 1 | lit >> 1)[:, None] >> column & 1).astype(bool)


def open_all_doors(house: House) -> House:
    """Every door is open."""
    return house.replace(grid=jnp.where(kind_of(house.grid) == DOOR, house.grid & 0xFFFF | OPEN << 16, house.grid))


def as_level(house: House, max_steps: Array, mission: Any, target: Any = ()) -> Level:
    """The finished level."""
    return Level(
        max_steps=max_steps,
        grid=house.grid.reshape(house.shape),
        position=house.position,
        direction=house.direction,
        mission=jnp.stack([jnp.asarray(x, jnp.int32) for x in mission]),
        target=jnp.asarray(target, jnp.int32).reshape(-1),
    )

"""Rooms of Sokoban: what one is, how one is made, changed, checked, read and written.

A level is made backwards: the floor is a random walk's, targets with a box on each, then random pulls, each of a box
that the player can walk to. Positions on the way with every box off the targets score the number of box changes times
the distances of the boxes from their targets. The most promising of some rooms is played on with `pulls` more, and the
best position is the level. What pulls did, pushes undo. gym-sokoban scores positions so too, but searches for the best
exhaustively, on the host.
"""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, UInt32

from jaxrl.environment import pytree, strongly_typed
from jaxrl.math import below, choose

from ..sampling import distinct
from . import xsb

Cells = Bool[Array, "rows columns"]
Words = UInt32[Array, " words"]  # a map as bits: cell i is bit i % 32 of word i // 32

ROW, COLUMN = np.array([-1, 0, 1, 0]), np.array([0, 1, 0, -1])  # up, right, down, left
# What is dug around each cell of the walk: bars, corners, a square and a step, as (row, column) of 3 x 3.
PATTERNS = np.array(
    [
        [[0, 0, 0], [1, 1, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 1, 0], [0, 1, 0]],
        [[0, 0, 0], [1, 1, 0], [0, 1, 0]],
        [[0, 0, 0], [1, 1, 0], [1, 1, 0]],
        [[0, 0, 0], [0, 1, 1], [0, 1, 0]],
    ],
    bool,
)
CANDIDATES, TRIES = 8, 20
"""Rooms tried at once, and how often. At 10 x 10, one room in three lets all of four boxes off their targets."""


@pytree
class Params:
    max_steps: jax.Array = 120
    step_reward: jax.Array = -0.1
    box_reward: jax.Array = 1.0
    solved_reward: jax.Array = 10.0
    turn_probability: jax.Array = 0.35  # of a new direction, each step of the walk that digs the room


@pytree
class Level:
    """One room as params."""

    max_steps: jax.Array
    step_reward: jax.Array
    box_reward: jax.Array
    solved_reward: jax.Array
    walls: jax.Array  # (rows, columns) bool
    targets: jax.Array  # (rows, columns) bool
    boxes: jax.Array  # (rows, columns) bool
    player: jax.Array  # int32, row * columns + column


def dig(bits: UInt32[Array, "steps 4"], turn_probability: Array, rows: int, columns: int) -> Cells:
    """The floor that a random walk of `steps` digs, one of five patterns around each of its cells; the border stays."""
    first = bits[0]
    start = 1 + below(first[0], rows - 1), 1 + below(first[1], columns - 1), below(first[2], 4)

    def walk(carry, bits):
        row, column, direction = carry
        u = (bits[0] >> 8).astype(turn_probability.dtype) * 2.0**-24
        direction = jnp.where(u < turn_probability, below(bits[1], 4), direction)
        row = jnp.clip(row + (direction == 2) - (direction == 0), 1, rows - 2)
        column = jnp.clip(column + (direction == 1) - (direction == 3), 1, columns - 2)
        return (row, column, direction), (row, column, below(bits[2], len(PATTERNS)))

    _, (row, column, pattern) = jax.lax.scan(walk, start, bits[1:])
    shapes = jnp.asarray(PATTERNS)[pattern]  # (steps, 3, 3)
    around = jnp.arange(-1, 2)
    at_row = (row[:, None] + around)[..., None] == jnp.arange(rows)  # (steps, 3, rows)
    at_column = (column[:, None] + around)[..., None] == jnp.arange(columns)
    dug = jnp.any(shapes[:, :, :, None] & at_column[:, None], 2)  # (steps, 3, columns)
    dug = jnp.any(at_row[..., None] & dug[:, :, None], (0, 1))
    row, column = jnp.mgrid[:rows, :columns]
    return dug & (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)


def shifted(words: Words, n: int) -> Words:
    """All bits `n` cells further (or back)."""
    whole, part = divmod(abs(n), 32)
    count = words.shape[0]
    if n > 0:
        near, far = (jnp.pad(words, (k, 0))[:count] for k in (whole, whole + 1))
        return near << part | (far >> (32 - part) if part else 0)
    near, far = (jnp.pad(words, (0, k))[k:] for k in (whole, whole + 1))
    return near >> part | (far << (32 - part) if part else 0)


def reachable(player: Integer[Array, ""], free: Words, columns: int) -> Words:
    """Where the player can walk to over `free` cells, none of them in the border. A player of -1 may be anywhere."""

    def spread(carry: tuple[Words, Array]) -> tuple[Words, Array]:
        filled, _ = carry
        new = filled
        for n in (1, -1, columns, -columns):
            new = new | shifted(filled, n)
        new = new & free
        return new, jnp.any(new != filled)

    here = jnp.where(player < 0, free, bits_at(player[None], free.shape[0]))
    return jax.lax.while_loop(lambda carry: carry[1], spread, (here, jnp.bool_(True)))[0]


def pull(
    bits: UInt32[Array, ""],
    free: Words,
    boxes: Integer[Array, " B"],
    player: Integer[Array, ""],
    columns: int,
    first: Bool[Array, " B"],
) -> tuple[Integer[Array, " B"], Integer[Array, ""], Integer[Array, ""]]:
    """A random one of all pulls that the player can walk to: boxes, player, and which box (B where there is none).

    Half the time it is one of the `first` boxes, if they can be pulled. `free` of walls and boxes is no border cell.
    """
    count = boxes.shape[0]
    walkable = reachable(player, free, columns)
    steps = jnp.asarray(ROW * columns + COLUMN, jnp.int32)
    near, far = boxes[:, None] + steps, boxes[:, None] + 2 * steps  # (B, 4)
    possible = contains(walkable, near) & contains(free, far)
    preferred = possible & first[:, None]
    prefers = (bits & 1 == 1) & jnp.any(preferred)
    chosen = choose(bits, jnp.where(prefers, preferred, possible).reshape(-1))
    box, which = chosen // 4, jnp.arange(4) == chosen % 4
    moved = jnp.arange(count) == box
    step = jnp.sum(jnp.where(which, steps, 0), dtype=jnp.int32)
    boxes = boxes + jnp.where(moved, step, 0)
    player = jnp.where(box < count, jnp.sum(jnp.where(moved, boxes, 0), dtype=jnp.int32) + step, player)
    return boxes, player, box


def packed(cells: Cells) -> Words:
    """A map as bits, cell i in bit i % 32 of word i // 32; the bits past its end are set."""
    words = -(-cells.size // 32)
    flat = jnp.pad(cells.reshape(-1), (0, 32 * words - cells.size), constant_values=True).reshape(words, 32)
    return jnp.sum(jnp.where(flat, jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32), 0), axis=1, dtype=jnp.uint32)


def bits_at(cells: Integer[Array, " n"], words: int) -> Words:
    """Some different cells as bits."""
    bit = jnp.uint32(1) << (cells[:, None] % 32).astype(jnp.uint32)
    return jnp.sum(jnp.where(cells[:, None] // 32 == jnp.arange(words), bit, 0), axis=0, dtype=jnp.uint32)


def contains(words: Words, cells: Integer[Array, "*n"]) -> Bool[Array, "*n"]:
    """Whether the bits of `cells` are set; none beyond the map is."""
    mine = cells[..., None] // 32 == jnp.arange(words.shape[0])
    word = jnp.sum(jnp.where(mine, words, 0), axis=-1, dtype=jnp.uint32)
    return word >> (cells % 32).astype(jnp.uint32) & 1 == 1


def pullable(floor: Cells) -> Cells:
    """Cells with two floor cells in a row next to them: where a box could be pulled, were it alone."""
    rows, columns = floor.shape
    padded = jnp.pad(floor, 2)

    def ahead(n: int, direction: int) -> Cells:
        down, right = 2 + n * int(ROW[direction]), 2 + n * int(COLUMN[direction])
        return padded[down : down + rows, right : right + columns]

    return floor & functools.reduce(jnp.logical_or, [ahead(1, d) & ahead(2, d) for d in range(4)])


def plane(cells: Integer[Array, " B"], rows: int, columns: int) -> Cells:
    """A map of some cells."""
    return jnp.any(jnp.arange(rows * columns) == cells[:, None], 0).reshape(rows, columns)


@pytree
class Backwards:
    """Reverse play: where it is, and the best position that it has seen."""

    walls: jax.Array  # bits
    targets: jax.Array  # (B,) cells
    boxes: jax.Array  # (B,) cells, each from the target of the same number
    player: jax.Array  # cell, -1 for anywhere
    last: jax.Array  # the box that was pulled last
    changes: jax.Array  # pulls of another box than the one before
    score: jax.Array  # of the best position, 0 while there is none with all boxes off all targets
    best_boxes: jax.Array  # (B,) cells
    best_player: jax.Array  # cell


def one_pull(play: Backwards, bits: UInt32[Array, ""], columns: int) -> Backwards:
    """A random pull, preferring boxes on targets, and the score of where it leads."""
    on_target = jnp.any(play.boxes[:, None] == play.targets, 1)
    free = ~(play.walls | bits_at(play.boxes, play.walls.shape[0]))
    boxes, player, box = pull(bits, free, play.boxes, play.player, columns, on_target)
    pulled = box < boxes.shape[0]
    changes = play.changes + (pulled & (box != play.last))
    apart = jnp.abs(boxes // columns - play.targets // columns) + jnp.abs(boxes % columns - play.targets % columns)
    off = ~jnp.any(boxes[:, None] == play.targets)
    score = jnp.where(off, changes * jnp.sum(apart, dtype=jnp.int32), 0)
    better = score > play.score
    return play.replace(
        boxes=boxes,
        player=player,
        last=jnp.where(pulled, box, play.last),
        changes=changes,
        score=jnp.maximum(score, play.score),
        best_boxes=jnp.where(better, boxes, play.best_boxes),
        best_player=jnp.where(better, player, play.best_player),
    )


def generate(
    key: Array, params: Params, rows: int = 10, columns: int = 10, num_boxes: int = 4, pulls: int = 80
) -> Level:
    """A solvable room; all boxes off their targets unless `TRIES` times no candidate had such a position."""
    steps = int(1.7 * (rows + columns))
    none = jnp.int32(0)

    def play_on(play: Backwards, key: Array, count: int) -> Backwards:
        bits = jax.random.bits(key, (count,), jnp.uint32)
        return jax.lax.scan(lambda play, bits: (one_pull(play, bits, columns), None), play, bits)[0]

    def candidate(key: Array) -> Backwards:
        room_key, pull_key = jax.random.split(key)
        bits = jax.random.bits(room_key, ((steps + 1) * 4 + num_boxes,), jnp.uint32)
        floor = dig(bits[num_boxes:].reshape(steps + 1, 4), params.turn_probability, rows, columns)
        targets = distinct(bits[:num_boxes], pullable(floor).reshape(-1))
        play = Backwards(packed(~floor), targets, targets, none - 1, none + num_boxes, none, none, targets, none - 1)
        play = play_on(play, pull_key, 4 * num_boxes)
        fits = targets[-1] < rows * columns  # there is floor for all
        return play.replace(score=jnp.where(fits, play.score, 0))

    def attempt(carry: tuple) -> tuple:
        key, _, tries = carry
        key, candidates_key = jax.random.split(key)
        plays = jax.vmap(candidate)(jax.random.split(candidates_key, CANDIDATES))
        best = jnp.argmax(plays.score)
        return key, jax.tree.map(lambda x: x[best], plays), tries + 1

    def again(carry: tuple) -> Array:
        return (carry[1].score == 0) & (carry[2] < TRIES)

    key, pull_key = jax.random.split(key)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(candidate, key))
    _, play, _ = jax.lax.while_loop(again, attempt, (key, nothing, none))
    play = play_on(play, pull_key, pulls)
    cells = jnp.arange(rows * columns).reshape(rows, columns)
    return Level(
        params.max_steps, params.step_reward, params.box_reward, params.solved_reward,
        contains(play.walls, cells), plane(play.targets, rows, columns), plane(play.best_boxes, rows, columns),
        play.best_player,
    )  # fmt: skip


def mutate(key: Array, level: Level) -> Level:
    """A neighbour of `level`, solvable if it is: at equal chance one box pulled, or one inner wall taken away.

    A pull that would solve it is not done.
    """
    what, which = jax.random.bits(key, (2,), jnp.uint32)
    rows, columns = level.walls.shape
    row, column = jnp.mgrid[:rows, :columns]
    inner = (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
    cells = jnp.arange(rows * columns).reshape(rows, columns)
    opened = level.walls & ~(cells == choose(which, (level.walls & inner).reshape(-1)))
    # Every cell as a box that may not be there: those are all in the corner, from where nothing can be pulled.
    boxes = jnp.where(level.boxes, cells, 0).reshape(-1)
    free = ~packed(level.walls | level.boxes | ~inner)
    moved, player, _ = pull(which, free, boxes, level.player, columns, jnp.zeros(boxes.shape, bool))
    pulled = jnp.where(cells == 0, level.boxes, plane(moved, rows, columns))
    pulls = (what >> 31 == 0) & jnp.any(pulled & ~level.targets)
    return level.replace(
        walls=jnp.where(what >> 31 == 1, opened, level.walls),
        boxes=jnp.where(pulls, pulled, level.boxes),
        player=jnp.where(pulls, player, level.player),
    )


def validate(level: Level) -> None:
    """Raise ValueError for a room that cannot be played. Whether it can be solved is not looked at. Host only."""
    walls, targets, boxes = (np.asarray(getattr(level, name)) for name in ("walls", "targets", "boxes"))
    if not walls.shape[-2:] == targets.shape[-2:] == boxes.shape[-2:]:
        raise ValueError(f"sokoban level: walls {walls.shape}, targets {targets.shape}, boxes {boxes.shape} differ.")
    for name, cells in (("targets", targets), ("boxes", boxes)):
        if np.any(cells & walls):
            raise ValueError(f"sokoban level: there are {name} in walls.")
    count, goals = boxes.sum((-2, -1)), targets.sum((-2, -1))
    if np.any(count != goals) or np.any(count == 0):
        raise ValueError(f"sokoban level: {count} boxes for {goals} targets; there must be as many, and at least one.")
    if np.any((boxes == targets).all((-2, -1))):
        raise ValueError("sokoban level: all boxes are on targets already.")
    player, size = np.asarray(level.player), walls.shape[-2] * walls.shape[-1]
    if np.any((player < 0) | (player >= size)):
        raise ValueError(f"sokoban level: player={player} must be a cell of 0 .. {size - 1}.")
    taken = (walls | boxes).reshape(*np.broadcast_shapes(walls.shape, boxes.shape)[:-2], size)
    if np.any(np.take_along_axis(np.broadcast_to(taken, (*player.shape, size)), player[..., None], -1)):
        raise ValueError(f"sokoban level: player={player} stands in a wall or a box.")


def parse(text: str, params: Params | None = None) -> Level:
    """Levels from text, as files of Sokoban's level sets (XSB) and Boxoban's have it; leaves have a leading axis.

    A level is some lines of `#` wall, `@` player, `$` box, `.` target, `*` box and `+` player on a target, and blank,
    `-` or `_` for floor; titles, comments and run-length encoding are as `xsb` says. Floor before the first wall of a
    row, shorter rows and smaller levels are filled up with walls. `params` gives rewards and the time limit.

    Raises ValueError for an unknown symbol, for other than one player, and for what `validate` refuses.
    """
    rooms = xsb.rooms(text)
    if not rooms:
        raise ValueError("sokoban levels: the text has none.")
    rows, columns = max(map(len, rooms)), max(len(line) for room in rooms for _, line in room)
    planes = {name: np.zeros((len(rooms), rows, columns), bool) for name in ("wall", "target", "box", "player")}
    planes["wall"][:] = True
    for i, room in enumerate(rooms):
        for row, (number, line) in enumerate(room):
            before = re.match(r"[ \-_]*(?=#)", line)
            outside = before.end() if before else 0
            for column, symbol in enumerate(line):
                if column < outside:
                    continue
                if symbol not in xsb.SYMBOLS:
                    known = " ".join(repr(s) for s in xsb.SYMBOLS)
                    raise ValueError(f"sokoban levels, line {number}: unknown symbol {symbol!r}; there are {known}.")
                planes["wall"][i, row, column] = False
                for name in xsb.SYMBOLS[symbol].split():
                    planes[name][i, row, column] = True
        players = int(planes["player"][i].sum())
        if players != 1:
            raise ValueError(f"sokoban levels, line {room[0][0]}: the level has {players} players, not one.")
    params = strongly_typed(Params() if params is None else params)
    rules = ("max_steps", "step_reward", "box_reward", "solved_reward")
    level = Level(
        **{name: jnp.broadcast_to(getattr(params, name), (len(rooms),)) for name in rules},
        walls=jnp.asarray(planes["wall"]),
        targets=jnp.asarray(planes["target"]),
        boxes=jnp.asarray(planes["box"]),
        player=jnp.asarray(planes["player"].reshape(len(rooms), -1).argmax(1), jnp.int32),
    )
    validate(level)
    return level


def to_text(level: Level) -> str:
    """One level as `parse` reads it."""
    walls, targets, boxes = (np.asarray(getattr(level, name)) for name in ("walls", "targets", "boxes"))
    player = np.arange(walls.size).reshape(walls.shape) == int(level.player)
    symbols = np.where(walls, "#", np.where(boxes, np.where(targets, "*", "$"), np.where(targets, ".", " ")))
    symbols = np.where(player, np.where(targets, "+", "@"), symbols)
    return "\n".join("".join(row) for row in symbols)


def default_level(rows: int, columns: int) -> Level:
    """The draw of key 0."""
    # The float type is in the cache's key, for who turns float64 on.
    return strongly_typed(_default_level(rows, columns, jnp.result_type(float)))


@functools.cache
def _default_level(rows: int, columns: int, dtype: np.dtype) -> Level:
    boxes = min(4, max(1, (rows - 2) * (columns - 2) // 16))
    with jax.ensure_compile_time_eval():  # it may be asked for while something is traced
        make = jax.jit(functools.partial(generate, rows=rows, columns=columns, num_boxes=boxes))
        return jax.tree.map(np.asarray, make(jax.random.key(0), strongly_typed(Params())))

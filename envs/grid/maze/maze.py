"""Maze-v0: find the goal of a maze, seeing only what is ahead. The level is the params: the task of curricula.

Dennis et al. (2020), "Emergent Complexity and Zero-shot Transfer via Unsupervised Environment Design" (PAIRED),
arXiv:2012.02096, in the form of minimax (Jiang et al. 2023, arXiv:2311.12716) and JaxUED (Coward et al. 2024,
arXiv:2403.13091); steps and observations are those of the latter's `Maze`.

The outer wall is not part of a level: 13 x 13 cells are MiniGrid's 15 x 15. `x` goes right, `y` down.

| action | |
|---|---|
| 0, 1 | turn left, right |
| 2 | forward, unless into a wall |
| 3, 4, 5, 6 | nothing (MiniGrid's pick up, drop, toggle, done) |

| observation | | |
|---|---|---|
| `image` | (n, n, 3) uint8, n = `view_size` | MiniGrid's kind, colour and state of the cells before the agent, who is |
| | | in the middle of the last row and not drawn; `image[i, j]`: i-th from the left, j-th from afar; |
| | | walls hide nothing |
| `direction` | int32 | 0 right, 1 down, 2 left, 3 up |

That is MiniGrid's order of axes, and JaxUED's; minimax has `image[j, i]`. Kinds are 1 empty, 2 wall, 8 goal.
`view="full"` shows the whole level from above instead, `image[x, y]`, the agent being (10, 0, direction).

Reward: 1 - 0.9 t / max_steps for entering the goal with step t, which ends the episode (the agent is then left where it
was, as in both references), else 0. `max_steps` 250.

Levels: `Maze` draws a new one for each episode; `Maze().as_levels()` is the same task whose params are a `Level`. Their
shortest ways, checks, text and pictures are in `kit.py`, those to be tested on in `levels.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Integer, UInt8, UInt32

from jaxrl import registry
from jaxrl.environment import Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.math import below, choose, fence, nth_bit, on_cpu
from jaxrl.spaces import Box, Dict, Discrete

from ..engine import success_reward, until_valid
from ..tiles import AGENT, EMPTY, FORWARD, GOAL, GREEN_GOAL, GREY_WALL, LEFT, RIGHT, WALL, color_of
from ..tiles import Params as TimeLimit
from .kit import TILES, Level, Rows, from_ascii, is_solvable, packed, paint, unpacked, validate

BLOCK = 32  # walls drawn at a time
MOST_AT_ONCE = 1024  # cells of a level whose walls are all drawn at once where loops are dear


@pytree
class Params:
    """Of the distribution that `Maze` draws from."""

    max_steps: jax.Array = 250
    walls: jax.Array = 25  # cells drawn, with replacement, to be walls; 60 in minimax's experiments
    sample_n_walls: jax.Array = False  # draw their number, too, from 0 .. walls


@pytree
class State:
    time: jax.Array  # steps since reset
    free: jax.Array  # (height, words) uint32: the cells that are no walls, as `kit.packed` has them
    goal_x: jax.Array  # int32
    goal_y: jax.Array
    x: jax.Array  # int32, where the agent is
    y: jax.Array
    direction: jax.Array  # int32


# ---- dynamics


def heading(direction: Integer[Array, ""]) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """The step (dx, dy) to the cell ahead."""
    dx = jnp.int32(direction == 0) - jnp.int32(direction == 2)
    dy = jnp.int32(direction == 1) - jnp.int32(direction == 3)
    return dx, dy


def as_state(level: Level) -> State:
    """The first state on a level."""
    goal_x, goal_y, x, y = *level.goal_pos, *level.agent_pos
    return State(jnp.int32(0), packed(~level.wall_map), goal_x, goal_y, x, y, level.agent_dir)


def as_level(state: State, width: int, max_steps: Array) -> Level:
    """The level that starts so."""
    agent, goal = jnp.stack([state.x, state.y]), jnp.stack([state.goal_x, state.goal_y])
    return Level(~unpacked(state.free, width), agent, state.direction, goal, max_steps)


def bits_from(free: Rows, rows: Integer[Array, " k"], first: Integer[Array, ""]) -> UInt32[Array, " k"]:
    """32 cells from column `first` on of each of the `rows`, the first being the lowest bit; 0 outside the grid."""
    height, words = free.shape

    def gathered(free, rows):
        return free.at[jnp.where(rows < 0, height, rows)].get(mode="fill", fill_value=0)

    def summed(free, rows):
        which = (np.arange(height) == rows[:, None])[..., None]
        return jnp.sum(jnp.where(which, free, 0), 1, dtype=jnp.uint32)

    mine = on_cpu(gathered, summed, free, rows)
    word, shift = first >> 5, (first & 31).astype(jnp.uint32)
    low, high = (jnp.sum(jnp.where(np.arange(words) == w, mine, 0), 1, dtype=jnp.uint32) for w in (word, word + 1))
    return low >> shift | high << 1 << 31 - shift


def move(state: State, action: Integer[Array, ""]) -> tuple[State, Bool[Array, ""]]:
    """One action: the state after it, and whether the goal was entered."""
    action = action.astype(jnp.int32)
    dx, dy = heading(state.direction)
    x, y = state.x + dx, state.y + dy
    goal = (x == state.goal_x) & (y == state.goal_y)
    walks = (action == FORWARD) & (bits_from(state.free, y[None], x)[0] & 1 == 1) & ~goal
    turn = jnp.int32(action == RIGHT) - jnp.int32(action == LEFT)
    after = state.replace(
        x=jnp.where(walks, x, state.x), y=jnp.where(walks, y, state.y), direction=state.direction + turn & 3
    )
    return after, (action == FORWARD) & goal


def in_view(state: State, size: int) -> UInt8[Array, " cells"]:
    """The kinds of the cells that an agent sees, flat in the order of `image`."""
    half, k, direction = size // 2, np.arange(size), state.direction
    dx, dy = heading(direction)
    # The square that is seen as rows of bits: for an agent facing right or left from its left on, else from afar.
    rows = jnp.where((direction == 1) | (direction == 2), size - 1 - k, k)
    bits = bits_from(state.free, state.y + half * (dy - 1) + rows, state.x + half * (dx - 1)) & ((1 << size) - 1)
    fit = 32 // size  # rows in one word
    packs = [bits[i : i + fit] << size * np.arange(min(fit, size - i), dtype=np.uint32) for i in range(0, size, fit)]
    # The cell i-th from the left and j-th from afar is bit `first` + i `by_left` + j `by_far`.
    level, along = direction % 2 == 0, jnp.where(direction < 2, -1, 1)
    first = jnp.where(direction < 2, size - 1, 0)
    by_left, by_far = jnp.where(level, size, along), jnp.where(level, along, size)
    u, v = state.goal_x - state.x, state.goal_y - state.y
    to_right, forward = v * dx - u * dy + half, u * dx + v * dy
    in_sight = (to_right >= 0) & (to_right < size) & (forward >= 0) & (forward < size)
    goal = jnp.where(in_sight, to_right * size + size - 1 - forward, -1)
    words = [jnp.sum(pack, dtype=jnp.uint32) for pack in packs]
    words, first, by_left, by_far, goal = fence((words, first, by_left, by_far, goal))
    i, j = np.divmod(np.arange(size * size), size)
    bit = (first + i * by_left + j * by_far).astype(jnp.uint32)
    free = words[0] >> bit
    for n in range(1, len(words)):
        before = np.uint32(n * fit * size)
        free = jnp.where(bit >= before, words[n] >> bit - before, free)
    free = free & 1 == 1
    return jnp.where(np.arange(size * size) == goal, GOAL, jnp.where(free, EMPTY, WALL)).astype(jnp.uint8)


def symbols(kinds: UInt8[Array, "..."], state: Integer[Array, "..."] | int = 0) -> UInt8[Array, "... 3"]:
    """Kind, colour and state of cells: walls are grey, the goal is green, the agent is red."""
    channel = np.arange(3)
    kind = kinds[..., None]
    color = jnp.where(kind == WALL, color_of(GREY_WALL), jnp.where(kind == GOAL, color_of(GREEN_GOAL), 0))
    rest = jnp.where(channel == 1, color, jnp.asarray(state)[..., None])
    return jnp.where(channel == 0, kind, rest).astype(jnp.uint8)


# ---- level kit


def random_walls(key: Array, number: Array, most: Array, height: int, width: int) -> Rows:
    """What is free after `number` cells, drawn with replacement, became walls, `number` being at most `most`, which is
    at most all cells but two."""
    cells = height * width

    def draws(block):
        bits = jax.random.bits(jax.random.fold_in(key, block), (BLOCK,), jnp.uint32)
        return jnp.where(block * BLOCK + np.arange(BLOCK) < number, below(bits, cells), cells)

    def by_blocks(number, most):
        """The work depends on `most` alone."""

        def draw(block, walls):
            return walls.at[draws(block)].set(True, mode="drop")

        walls = jax.lax.fori_loop(0, (most + BLOCK - 1) // BLOCK, draw, jnp.zeros(cells, bool))
        return packed(~walls.reshape(height, width))

    def at_once(number, most):
        """As many as there can be, so that nobody waits for the end of a loop."""
        cell = jax.vmap(draws)(np.arange(-(-(cells - 2) // BLOCK))).reshape(-1)
        y = jax.lax.div(cell, jnp.int32(width))  # none is not in a row
        x = cell - y * width
        word, bit = x >> 5, jnp.uint32(1) << (x & 31).astype(jnp.uint32)

        def without_walls(row, first):
            walls = jnp.where((y == row) & (word == first // 32), bit, 0) if width > 32 else jnp.where(y == row, bit, 0)
            walls = jax.lax.reduce(walls, jnp.uint32(0), jax.lax.bitwise_or, (0,))
            return np.uint32((1 << min(width - first, 32)) - 1) & ~walls

        return jnp.stack([jnp.stack([without_walls(row, x) for x in range(0, width, 32)]) for row in range(height)])

    return on_cpu(by_blocks, at_once if cells <= MOST_AT_ONCE else by_blocks, number, most)


def furnished(bits: UInt32[Array, "3"], free: Rows) -> State:
    """The first state with agent and goal on two of the free cells, the agent facing anywhere, all equally likely."""
    number = jnp.sum(jax.lax.population_count(free).astype(jnp.int32), dtype=jnp.int32)
    agent, goal = below(bits[0], number), below(bits[1], number - 1)
    width = 32 * free.shape[1]
    agent, goal = (nth_bit(free.reshape(-1), 32, rank) for rank in (agent, goal + (goal >= agent)))
    y, x = zip(
        *((jax.lax.div(cell, jnp.int32(width)), jax.lax.rem(cell, jnp.int32(width))) for cell in (agent, goal)),
        strict=True,
    )
    return State(jnp.int32(0), free, x[1], y[1], x[0], y[0], below(bits[2], 4))


def draw(key: Array, params: Params, height: int = 13, width: int = 13, solvable: bool = False) -> State:
    """The first state on a maze of cells that are walls at random; see `generate`."""

    def any_maze(key):
        wall_key, key = jax.random.split(key)
        bits = jax.random.bits(key, (4,), jnp.uint32)
        most = jnp.clip(params.walls, 0, height * width - 2)
        number = jnp.where(params.sample_n_walls, below(bits[3], most + 1), most)
        return furnished(bits[:3], random_walls(wall_key, number, most, height, width))

    def draw_and_check(key):
        state = any_maze(key)
        return state, is_solvable(as_level(state, width, params.max_steps))

    return until_valid(key, draw_and_check) if solvable else any_maze(key)


def generate(key: Array, params: Params, height: int = 13, width: int = 13, solvable: bool = False) -> Level:
    """A maze of cells that are walls at random, as minimax and JaxUED draw it. Of 13 x 13 cells with 25 walls one in
    200 cannot be solved, with 60 walls one in 7; with `solvable`, others are drawn in their place."""
    return as_level(draw(key, params, height, width, solvable), width, params.max_steps)


def mutate(key: Array, level: Level, num_edits: int = 1) -> Level:
    """A neighbour of `level` after ACCEL (Parker-Holder et al. 2022, arXiv:2203.01302) as minimax has it: edits, each
    with equal chance nothing, a cell without agent and goal opened or walled up, or the goal moved to a free cell.
    minimax makes 20. Whether the maze can still be solved is not looked at."""
    height, width = level.wall_map.shape
    cells = np.arange(height * width)
    agent = level.agent_pos[1] * width + level.agent_pos[0]

    def edit(carry, bits):
        walls, goal = carry
        what = below(bits[0], 3)
        flipped = choose(bits[1], (cells != agent) & (cells != goal))
        moved = choose(bits[1], ~walls & (cells != agent) & (cells != goal))
        walls = walls ^ ((what == 1) & (cells == flipped))
        return (walls, jnp.where((what == 2) & (moved < cells.size), moved, goal)), None

    goal = level.goal_pos[1] * width + level.goal_pos[0]
    bits = jax.random.bits(key, (num_edits, 2), jnp.uint32)
    (walls, goal), _ = jax.lax.scan(edit, (level.wall_map.reshape(-1), goal), bits)
    goal_pos = jnp.stack([goal % width, goal // width]).astype(level.goal_pos.dtype)
    return level.replace(wall_map=walls.reshape(height, width), goal_pos=goal_pos)


# ---- the task


@dataclasses.dataclass(frozen=True)
class MazeTask(Environment):
    """What mazes share: a subclass says `shape`, `time_limit` and how to `generate` a level."""

    view: str = dataclasses.field(default="partial", kw_only=True)
    view_size: int = dataclasses.field(default=5, kw_only=True)
    params_are_level: bool = dataclasses.field(default=False, kw_only=True)  # params are a Level

    hints = Hints(deterministic=True, fenced=False, reset_share=1 / 64)
    action_names = ("action, 0 turn left, 1 turn right, 2 forward, 3 nothing, 4 nothing, 5 nothing, 6 nothing",)
    static_ranges = {"view_size": (3, 29)}

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the level, without the outer wall."""
        raise NotImplementedError

    @property
    def time_limit(self) -> int:
        """The default `max_steps`."""
        return 250

    @property
    def distribution(self) -> Any:
        """What `generate` draws from, with its defaults."""
        return TimeLimit(jnp.int32(self.time_limit))

    @property
    def must_be_solvable(self) -> bool:
        """Whether `validate` refuses levels without a way."""
        return False

    def generate(self, key: Array, params: Any) -> Level:
        """Draw a level, with the time limit of `params`."""
        raise NotImplementedError

    # ---- what all have

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.view not in ("partial", "full"):
            raise ValueError(f"{self.id}: view={self.view!r}; it is 'partial' or 'full'.")
        if self.view_size % 2 == 0:
            raise ValueError(f"{self.id}: view_size={self.view_size} must be odd.")
        if self.shape[0] * self.shape[1] < 2:
            raise ValueError(
                f"{self.id}: {self.shape[0]} x {self.shape[1]} cells; there must be two, for agent and goal."
            )

    @property
    def Params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`Level` with `levels`, else that of the distribution."""
        return Level if self.params_are_level else type(self.distribution)

    @property
    def default_params(self) -> Any:
        params = strongly_typed(self.distribution)
        return self.generate(jax.random.key(0), params) if self.params_are_level else params

    def as_levels(self) -> Self:
        """The same task whose params are the `Level`. The default level is one draw of the generator."""
        return dataclasses.replace(self, params_are_level=True)

    def mutate(self, key: Array, level: Level, num_edits: int = 1) -> Level:
        """A neighbour of `level`; see `mutate`."""
        return mutate(key, level, num_edits)

    def level(self, text: str, max_steps: int | None = None) -> Level:
        """The level that `to_ascii` would write so. Raises ValueError for one that does not fit this task."""
        level = from_ascii(text, self.time_limit if max_steps is None else max_steps)
        self.as_levels().validate(level)
        return level

    def draw(self, key: Array, params: Any) -> State:
        """The first state on a level drawn so."""
        return as_state(self.generate(key, params))

    def initial(self, key: Array, params: Any) -> State:
        return as_state(params) if isinstance(params, Level) else self.draw(key, params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Any) -> Transition:
        after, success = move(state, action)
        reward = jnp.where(success, success_reward(state.time, params.max_steps), 0)
        return Transition(after, reward, success, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Any) -> dict[str, Array]:
        if self.view == "full":
            height, width = self.shape
            x, y = np.divmod(np.arange(width * height), height)
            here, goal = (x == state.x) & (y == state.y), (x == state.goal_x) & (y == state.goal_y)
            kinds = jnp.where(goal, GOAL, jnp.where(unpacked(state.free, width).T.reshape(-1), EMPTY, WALL))
            kinds = jnp.where(here, AGENT, fence(kinds.astype(jnp.uint8))).astype(jnp.uint8)
            image = symbols(kinds, jnp.where(here, state.direction, 0)).reshape(width, height, 3)
        else:
            size = self.view_size
            image = symbols(fence(in_view(state, size))).reshape(size, size, 3)
        return {"image": image, "direction": state.direction}

    def observation_space(self, params: Any) -> Dict:
        side = self.shape[::-1] if self.view == "full" else (self.view_size, self.view_size)
        return Dict({"image": Box(0, AGENT, (*side, 3), jnp.uint8), "direction": Discrete(4)})

    def action_space(self, params: Any) -> Discrete:
        return Discrete(7)

    def validate(self, params: Any) -> None:
        if np.any(np.asarray(params.max_steps) < 1):
            raise ValueError(f"{self.id}: max_steps={params.max_steps} must be at least 1.")
        if isinstance(params, Level):
            if np.shape(params.wall_map)[-2:] != self.shape:
                found = np.shape(params.wall_map)[-2:]
                raise ValueError(f"{self.id}: the level's wall_map is {found}, the task's {self.shape}.")
            validate(params, self.must_be_solvable)

    def describe(self, params: Any) -> dict[str, Array]:
        """How many `walls` a maze has."""
        return {"walls": params.wall_map.sum(dtype=jnp.int32)} if isinstance(params, Level) else {}

    def render(self, state: State, params: Any) -> np.ndarray:
        tiles = np.where(unpacked(state.free, self.shape[1]), 0, TILES.index("#"))
        tiles[int(state.goal_y), int(state.goal_x)] = TILES.index("G")
        tiles[int(state.y), int(state.x)] = TILES.index(">") + int(state.direction)
        return paint(tiles, self.view_size if self.view == "partial" else 0)


@dataclasses.dataclass(frozen=True)
class Maze(MazeTask):
    id: str = dataclasses.field(default="Maze-v0", kw_only=True)
    height: int = 13
    width: int = 13
    solvable: bool = False  # draw only levels that can be solved, and accept no others
    static_ranges = {"height": (1, 1000), "width": (1, 1000)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def distribution(self) -> Params:
        return Params()

    @property
    def must_be_solvable(self) -> bool:
        return self.solvable

    def generate(self, key: Array, params: Params) -> Level:
        return generate(key, params, self.height, self.width, self.solvable)

    def draw(self, key: Array, params: Params) -> State:
        return draw(key, params, self.height, self.width, self.solvable)

    def editor(self) -> tuple[Environment, Callable[[Any], Level]]:
        """`(environment, level of its last state)`: where a designer builds mazes of this size."""
        walls = min(60, self.height * self.width - 2)
        env, _ = registry.make("MazeEditor-v0", height=self.height, width=self.width, num_walls=walls)
        return env, env.level

    def validate(self, params: Params | Level) -> None:
        super().validate(params)
        if isinstance(params, Params):
            most = self.height * self.width - 2
            if np.any((np.asarray(params.walls) < 0) | (np.asarray(params.walls) > most)):
                raise ValueError(f"{self.id}: walls={params.walls} must be from 0 to {most}: all cells but two.")

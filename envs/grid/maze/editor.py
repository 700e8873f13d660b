"""MazeEditor-v0: build a maze, cell by cell. An episode makes one `Level` of Maze-v0; what it is worth others must say.

The environment of PAIRED's designer: Dennis et al. (2020), "Emergent Complexity and Zero-shot Transfer via Unsupervised
Environment Design", arXiv:2012.02096, with the sizes and the order of minimax (Jiang et al. 2023, arXiv:2311.12716).
Use with `algos/curricula/paired.py`, or on its own:

    level = editor.level(state)        # of the state after the last step, before any reset

An action is a cell, `x + width y`. There are `num_walls` + 2 steps, of which each places one thing there:

| | |
|---|---|
| the first `num_walls` | a wall, unless the goal or the agent is there |
| the next | the goal, in place of a wall |
| the last | the agent, in place of a wall, facing a direction drawn at reset; on the goal: on an empty cell at random |

With `goal_first`, goal and agent come before the walls, as in Dennis et al., whose designers had 50 walls.

| observation | | |
|---|---|---|
| `image` | (width + 2, height + 2, 3) uint8 | the level so far with the outer wall around it, `image[x, y]` the kind, |
| | | colour and state of a cell, as by `Maze(view="full")` |
| `time` | int32 | steps since reset |
| `noise` | (`noise_dim`,) float32 | uniform in [0, 1], drawn at reset: so that one designer makes many levels |

Reward: 0. The episode terminates after the last step.

Deviations from both: noise is drawn once an episode and not anew at every step; where the agent goes that was put on
the goal is drawn at reset, so that steps are deterministic. JaxUED's `MazeEditor`, with another order (goal, direction,
agent, then walls that a second visit removes), hands out noise of zeros unless `zero_out_random_z`, and computes a mask
of actions that nobody applies.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, UInt32

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.math import below, choose
from jaxrl.spaces import Box, Dict, Discrete

from ..tiles import AGENT, EMPTY, GOAL, WALL
from .kit import TILES, Level, cell_mask, paint
from .maze import symbols

NOWHERE = -1
"""The coordinates of an agent or a goal that is not placed yet."""


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT  # of an episode here, which ends by itself
    level_max_steps: jax.Array = 250  # of the mazes that are made


@pytree
class State:
    time: jax.Array  # int32, steps since reset
    level: Level  # so far
    noise: jax.Array  # (noise_dim,)
    spare: jax.Array  # uint32, bits by which an agent that cannot stay on the goal is put elsewhere


def level(state: State) -> Level:
    """What was built. Before the last step goal and agent may be `NOWHERE`."""
    return state.level


# ---- dynamics


def with_wall(level: Level, cell: Integer[Array, ""]) -> Level:
    """A wall at the cell, unless the goal or the agent is there."""
    shape = level.wall_map.shape
    taken = cell_mask(level.goal_pos, shape) | cell_mask(level.agent_pos, shape)
    return level.replace(wall_map=level.wall_map | (cell_mask(position_of(cell, shape[1]), shape) & ~taken))


def with_goal(level: Level, cell: Integer[Array, ""]) -> Level:
    """The goal at the cell, which is opened."""
    position = position_of(cell, level.wall_map.shape[1])
    opened = level.wall_map & ~cell_mask(position, level.wall_map.shape)
    return level.replace(goal_pos=position, wall_map=opened)


def with_agent(level: Level, cell: Integer[Array, ""], spare: UInt32[Array, ""]) -> Level:
    """The agent at the cell, which is opened; if the goal is there, on an empty cell, equally likely by `spare`."""
    height, width = level.wall_map.shape
    goal = cell_mask(level.goal_pos, (height, width))
    empty = ~(level.wall_map | goal).reshape(-1)
    cell = jnp.where(jnp.any(goal.reshape(-1) & (np.arange(height * width) == cell)), choose(spare, empty), cell)
    position = position_of(cell, width)
    return level.replace(agent_pos=position, wall_map=level.wall_map & ~cell_mask(position, (height, width)))


def position_of(cell: Integer[Array, ""], width: int) -> Integer[Array, "2"]:
    """x and y."""
    cell = cell.astype(jnp.int32)
    return jnp.stack([cell % width, cell // width])


# ---- the task


@dataclasses.dataclass(frozen=True)
class MazeEditor(Environment):
    id: str = dataclasses.field(default="MazeEditor-v0", kw_only=True)
    height: int = 13
    width: int = 13
    num_walls: int = 60  # steps that place a wall; several on one cell make one
    noise_dim: int = 50
    goal_first: bool = False  # place goal and agent before the walls

    Params = Params
    level = staticmethod(level)
    # All episodes are of one length, so that all slots restart at once.
    hints = Hints(deterministic=True, reset_share=1.0)
    static_ranges = {"height": (1, 1000), "width": (1, 1000), "num_walls": (0, 1_000_000), "noise_dim": (0, 1_000_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        cells = self.height * self.width
        if cells < 2:
            raise ValueError(f"{self.id}: {self.height} x {self.width} cells; there must be two, for agent and goal.")
        if self.num_walls > cells - 2:
            raise ValueError(
                f"{self.id}: num_walls={self.num_walls} must be from 0 to {cells - 2}: all cells but two"
                f" of height={self.height} x width={self.width}."
            )

    @property
    def num_steps(self) -> int:
        """The length of every episode."""
        return self.num_walls + 2

    def initial(self, key: Array, params: Params) -> State:
        noise_key, bits_key = jax.random.split(key)
        bits = jax.random.bits(bits_key, (2,), jnp.uint32)
        nowhere = jnp.full(2, NOWHERE, jnp.int32)
        walls = jnp.zeros((self.height, self.width), bool)
        empty = Level(walls, nowhere, below(bits[0], 4), nowhere, params.level_max_steps)
        return State(jnp.int32(0), empty, jax.random.uniform(noise_key, (self.noise_dim,)), bits[1])

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        goal_time, agent_time = (0, 1) if self.goal_first else (self.num_walls, self.num_walls + 1)
        places_goal, places_agent = state.time == goal_time, state.time == agent_time
        after = jax.tree.map(
            lambda goal, agent, wall: jnp.where(places_goal, goal, jnp.where(places_agent, agent, wall)),
            with_goal(state.level, action),
            with_agent(state.level, action, state.spare),
            with_wall(state.level, action),
        )
        last = state.time >= self.num_steps - 1
        return Transition(state.replace(level=after), jnp.zeros((), state.noise.dtype), last, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        level, shape = state.level, (self.height, self.width)
        goal, agent = cell_mask(level.goal_pos, shape), cell_mask(level.agent_pos, shape)
        kinds = jnp.where(goal, GOAL, jnp.where(agent, AGENT, jnp.where(level.wall_map, WALL, EMPTY)))
        kinds = jnp.pad(kinds.astype(jnp.uint8), 1, constant_values=WALL).T
        facing = jnp.where(kinds == AGENT, level.agent_dir, 0)
        return {"image": symbols(kinds, facing), "time": state.time, "noise": state.noise}

    def observation_space(self, params: Params) -> Dict:
        image = Box(0, AGENT, (self.width + 2, self.height + 2, 3), jnp.uint8)
        noise = Box(0.0, 1.0, (self.noise_dim,))
        return Dict({"image": image, "time": Discrete(self.num_steps + 1), "noise": noise})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.height * self.width)

    def validate(self, params: Params) -> None:
        for name in ("max_steps", "level_max_steps"):
            if np.any(np.asarray(getattr(params, name)) < 1):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must be at least 1.")

    def render(self, state: State, params: Any) -> np.ndarray:
        """The level so far, 32 pixels a cell."""
        level = jax.device_get(state.level)
        tiles = np.where(level.wall_map, TILES.index("#"), 0).astype(np.int32)
        for tile, (x, y) in (("G", level.goal_pos), (">", level.agent_pos)):
            if x != NOWHERE:
                tiles[y, x] = TILES.index(tile) + (int(level.agent_dir) if tile == ">" else 0)
        return paint(tiles)

"""Four rooms in a ring on a grid, what was recorded there, and who may go where.

Each data-collecting policy knows two neighbouring rooms and walks, by shortest ways within them and with some random
steps, between cells of these. So no trajectory has seen cells of two rooms that lie across, and pairs of a start and a
goal there are held out; `check` counts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.environment import Environment, Transition, pytree
from jaxrl.spaces import Box, Dict, Discrete

ROOM = 5  # cells along a side of a room
SIDE = 2 * ROOM + 1
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
MIDDLE = ROOM // 2
DOORS = {(0, 1): (MIDDLE, ROOM), (1, 2): (ROOM, ROOM + 1 + MIDDLE), (2, 3): (ROOM + 1 + MIDDLE, ROOM)}
DOORS[(3, 0)] = (ROOM, MIDDLE)  # rooms 0 to 3 in a circle
WALLS = np.zeros((SIDE, SIDE), bool)
WALLS[ROOM], WALLS[:, ROOM] = True, True
for _door in DOORS.values():
    WALLS[_door] = False


def room_of(cell: tuple[int, int]) -> int:
    """0 to 3 in a circle; -1 for a door."""
    row, column = cell
    if ROOM in (row, column):
        return -1
    return {(0, 0): 0, (0, 1): 1, (1, 1): 2, (1, 0): 3}[int(row > ROOM), int(column > ROOM)]


FREE = [cell for cell in itertools.product(range(SIDE), range(SIDE)) if not WALLS[cell]]
ROOMS = [[cell for cell in FREE if room_of(cell) == room] for room in range(4)]
REGIONS = [{*ROOMS[a], *ROOMS[b], door} for (a, b), door in DOORS.items()]


def pairs(across: bool) -> np.ndarray:
    """All (start, goal), (P, 2, 2) cells: in rooms that lie across, held out, or in neighbouring ones, seen."""
    return np.array([(s, g) for s, g in itertools.permutations(FREE, 2) if _kind(s, g) == (2 if across else 1)])


def _kind(start: tuple[int, int], goal: tuple[int, int]) -> int:
    a, b = room_of(start), room_of(goal)
    return -1 if -1 in (a, b) else min((a - b) % 4, (b - a) % 4)


@pytree
class Params:
    max_steps: jax.Array
    pairs: jax.Array  # (P, 2, 2) int32 cells, of which each episode draws a start and a goal


@pytree
class State:
    time: jax.Array
    position: jax.Array  # (2,) int32, row and column
    goal: jax.Array


@dataclasses.dataclass(frozen=True)
class Maze(Environment):
    """Reward 1 for reaching the goal, which ends the episode. Four moves of a cell; observations are one-hot cells."""

    id: str = "Maze"

    @property
    def default_params(self) -> Params:
        return Params(jnp.int32(50), jnp.asarray(pairs(True), jnp.int32))

    def observation_space(self, params: Params) -> Dict:
        one = Box(0.0, 1.0, (SIDE * SIDE,))
        return Dict({"goal": one, "obs": one})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def initial(self, key: jax.Array, params: Params) -> State:
        pair = params.pairs[jax.random.randint(key, (), 0, len(params.pairs))]
        return State(jnp.int32(0), pair[0], pair[1])

    def transition(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Transition:
        position = state.position + jnp.asarray(MOVES)[action]
        inside = jnp.all((position >= 0) & (position < SIDE))
        free = inside & ~jnp.asarray(WALLS)[*jnp.clip(position, 0, SIDE - 1)]
        state = state.replace(position=jnp.where(free, position, state.position))
        near = jnp.all(state.position == state.goal)
        return Transition(state, near.astype(jnp.float32), near, jnp.bool_(False), {})

    def seen(self, position: jax.Array) -> jax.Array:
        """Cells (..., 2) as the entries of observations have them."""
        return jax.nn.one_hot(position[..., 0] * SIDE + position[..., 1], SIDE * SIDE)

    def observe(self, key: jax.Array, state: State, params: Params) -> dict[str, jax.Array]:
        return {"goal": self.seen(state.goal), "obs": self.seen(state.position)}

    def validate(self, params: Params) -> None:
        pass


# ---- who collects


def _towards(goal: tuple[int, int], region: set[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """The shortest moves to the goal from every cell of a region, within it."""
    steps, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for move in MOVES:
            near = (cell[0] - move[0], cell[1] - move[1])
            if near in region and near not in steps:
                steps[near] = steps[cell] + 1
                queue.append(near)
    following = {cell: [(cell[0] + m[0], cell[1] + m[1]) for m in MOVES] for cell in steps}
    return {c: [i for i, n in enumerate(f) if steps.get(n, 1e9) == steps[c] - 1] for c, f in following.items()}


def record(episodes: int, noise: float = 0.1, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """`(dataset, cells before and after each step (2, n, 2))`: trajectories of the four policies in turn.

    Each ends at its goal. A random move, with probability `noise`, that would leave the region is not made.
    """
    rng, found = np.random.default_rng(seed), []
    for episode in range(episodes):
        region = REGIONS[episode % 4]
        cells = sorted(region)
        start, goal = (cells[i] for i in rng.choice(len(cells), 2, replace=False))
        ways, cell = _towards(goal, region), start
        for _ in range(200):
            if cell == goal:
                break
            action = rng.integers(4) if rng.random() < noise else rng.choice(ways[cell])
            new = (cell[0] + MOVES[action][0], cell[1] + MOVES[action][1])
            if new not in region:
                continue
            found.append((cell, action, new, goal, episode))
            cell = new
    places, action, after, goal, number = (np.array(x, np.int32) for x in zip(*found, strict=True))
    seen = jax.jit(Maze().seen)
    obs, next_obs = ({"goal": np.asarray(seen(goal)), "obs": np.asarray(seen(x))} for x in (places, after))
    last = np.append(number[1:] != number[:-1], True)
    return Dataset(obs, action, last.astype(np.float32), last & False, last, next_obs), np.stack([places, after])


def check(dataset: Dataset, places: np.ndarray) -> int:
    """How many trajectories there are; AssertionError if any has seen cells of two rooms that lie across."""
    episodes = Episodes(dataset)
    for first, length in zip(episodes.first, episodes.length, strict=True):
        rooms = {room_of((r, c)) for r, c in places[:, first : first + length].reshape(-1, 2)} - {-1}
        assert not ({0, 2} <= rooms or {1, 3} <= rooms), f"a trajectory was in rooms {rooms}"
    return len(episodes)


def reached(achieved: jax.Array, goal: jax.Array) -> jax.Array:
    """The same cell, of one-hot ones."""
    return jnp.all(achieved == goal, -1)


def cells_of(after: np.ndarray) -> np.ndarray:
    """Exact cells as clusters."""
    return after.astype(np.int32) @ np.array([SIDE, 1], np.int32)


def k_means(x: np.ndarray, k: int, seed: int = 0, rounds: int = 50) -> np.ndarray:
    """Lloyd's algorithm: the nearest of k centres, which begin at points of the data. Walls mean nothing to it."""
    rng = np.random.default_rng(seed)
    centres = np.unique(x, axis=0)
    centres = centres[rng.choice(len(centres), k, replace=False)]
    for _ in range(rounds):
        nearest = np.argmin(((x[:, None] - centres) ** 2).sum(-1), 1)
        centres = np.array([x[nearest == i].mean(0) if np.any(nearest == i) else c for i, c in enumerate(centres)])
    return nearest

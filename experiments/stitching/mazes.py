"""Four rooms in a ring: a grid maze and a point maze on the same map, what was recorded there, and who may go where.

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

from jaxrl.environment import Environment, Transition, pytree
from jaxrl.replay.datasets import Dataset, Episodes
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
RADIUS = 0.5  # of what counts as the goal of the point maze, in cells
STEP = 0.5  # cells, at most, along each axis


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
    position: jax.Array  # (2,) float32, row and column
    goal: jax.Array


@dataclasses.dataclass(frozen=True)
class Maze(Environment):
    """Reward 1 for reaching the goal, which ends the episode. Observations are one-hot cells or places in [-1, 1].

    Grid: 4 moves of a cell, by number. Point: a move of up to `STEP` along each axis; walls stop it along that axis.
    """

    id: str = "Maze"
    point: bool = False

    @property
    def default_params(self) -> Params:
        return Params(jnp.int32(100 if self.point else 50), jnp.asarray(pairs(True), jnp.int32))

    def observation_space(self, params: Params) -> Dict:
        one = Box(-1.0, 1.0, (2,)) if self.point else Box(0.0, 1.0, (SIDE * SIDE,))
        return Dict({"goal": one, "obs": one})

    def action_space(self, params: Params) -> Box | Discrete:
        return Box(-1.0, 1.0, (2,)) if self.point else Discrete(4)

    def initial(self, key: jax.Array, params: Params) -> State:
        pair_key, place_key = jax.random.split(key)
        pair = params.pairs[jax.random.randint(pair_key, (), 0, len(params.pairs))].astype(jnp.float32)
        if self.point:
            pair = pair + jax.random.uniform(place_key, (2, 2), minval=-0.25, maxval=0.25)
        return State(jnp.int32(0), pair[0], pair[1])

    def transition(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Transition:
        move = STEP * jnp.clip(action, -1, 1) if self.point else jnp.asarray(MOVES, jnp.float32)[action]
        position = moved(state.position, move)
        state = state.replace(position=position)
        near = jnp.sum((position - state.goal) ** 2) < RADIUS**2
        return Transition(state, near.astype(jnp.float32), near, jnp.bool_(False), {})

    def seen(self, position: jax.Array) -> jax.Array:
        """Places (..., 2) as the entries of observations have them."""
        if self.point:
            return 2 * position / (SIDE - 1) - 1
        cell = jnp.round(position).astype(jnp.int32)
        return jax.nn.one_hot(cell[..., 0] * SIDE + cell[..., 1], SIDE * SIDE)

    def observe(self, key: jax.Array, state: State, params: Params) -> dict[str, jax.Array]:
        return {"goal": self.seen(state.goal), "obs": self.seen(state.position)}

    def validate(self, params: Params) -> None:
        pass


def moved(position: jax.Array, move: jax.Array) -> jax.Array:
    """A step along rows, then one along columns; each where no wall is. Arrays of jax or numpy."""
    walls = jnp.asarray(WALLS)
    for axis in (0, 1):
        new = position + move * (jnp.arange(2) == axis)
        row, column = jnp.round(new).astype(jnp.int32)
        inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE)
        free = inside & ~walls[jnp.clip(row, 0, SIDE - 1), jnp.clip(column, 0, SIDE - 1)]
        position = jnp.where(free, new, position)
    return position


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


def record(point: bool, episodes: int, noise: float = 0.1, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """`(dataset, places before and after each step (2, n, 2))`: trajectories of the four policies in turn.

    Each ends at its goal. A random move, with probability `noise`, that would leave the region is not made. The point
    goes for the middle of the next cell, with noise on its actions.
    """
    rng, maze, found = np.random.default_rng(seed), Maze(point=point), []
    for episode in range(episodes):
        region = REGIONS[episode % 4]
        cells = sorted(region)
        start, goal = (cells[i] for i in rng.choice(len(cells), 2, replace=False))
        ways, position = _towards(goal, region), np.array(start, float)
        for _ in range(200):
            cell = (round(position[0]), round(position[1]))
            if cell == goal:
                break
            way = MOVES[rng.choice(ways[cell])]
            if point:
                action = np.clip((cell + way - position) / STEP + rng.normal(0, 0.3, 2), -1, 1)
                new = _free(position, action * STEP, region)
            else:
                action = rng.integers(4) if rng.random() < noise else rng.choice(ways[cell])
                new = _free(position, MOVES[action].astype(float), region)
                if np.all(new == position):
                    continue
            found.append((position, action, new, goal, episode))
            position = new
    places, action, after, goal, number = (np.array(x) for x in zip(*found, strict=True))
    seen = jax.jit(maze.seen)
    goal = np.asarray(seen(goal.astype(np.float32)))
    obs, next_obs = ({"goal": goal, "obs": np.asarray(seen(x.astype(np.float32)))} for x in (places, after))
    last = np.append(number[1:] != number[:-1], True)
    action = action.astype(np.float32 if point else np.int32)
    return Dataset(obs, action, last.astype(np.float32), last & False, last, next_obs), np.stack([places, after])


def _free(position: np.ndarray, move: np.ndarray, region: set[tuple[int, int]]) -> np.ndarray:
    """As `moved`, in numpy, for a policy that does not leave its region."""
    for axis in (0, 1):
        new = position + move * (np.arange(2) == axis)
        if (round(new[0]), round(new[1])) in region:
            position = new
    return position


def check(dataset: Dataset, places: np.ndarray) -> int:
    """How many trajectories there are; AssertionError if any has seen cells of two rooms that lie across."""
    episodes = Episodes(dataset)
    for first, length in zip(episodes.first, episodes.length, strict=True):
        rooms = {room_of((round(r), round(c))) for r, c in places[:, first : first + length].reshape(-1, 2)} - {-1}
        assert not ({0, 2} <= rooms or {1, 3} <= rooms), f"a trajectory was in rooms {rooms}"
    return len(episodes)


def cells_of(after: np.ndarray) -> np.ndarray:
    """Exact cells as clusters."""
    return np.round(after).astype(np.int32) @ np.array([SIDE, 1], np.int32)


def k_means(x: np.ndarray, k: int, seed: int = 0, rounds: int = 50) -> np.ndarray:
    """Lloyd's algorithm: the nearest of k centres, which begin at points of the data. Walls mean nothing to it."""
    rng = np.random.default_rng(seed)
    centres = np.unique(x, axis=0)
    centres = centres[rng.choice(len(centres), k, replace=False)]
    for _ in range(rounds):
        nearest = np.argmin(((x[:, None] - centres) ** 2).sum(-1), 1)
        centres = np.array([x[nearest == i].mean(0) if np.any(nearest == i) else c for i, c in enumerate(centres)])
    return nearest

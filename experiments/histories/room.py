"""A room in fog: the first look shows where one stands and where to go, all later ones only the walls next to one.

SIDE x SIDE cells; an episode starts on one of the inner cells, its goal is one of the corners. Reaching the goal pays
1, any corner ends the episode. So histories are many, and the states behind them, (cell, goal), are few. Moves are
deterministic, so a history says in which state one is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SIDE, STEPS = 5, 16  # cells along a wall, moves an episode
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
CELLS = np.array([(r, c) for r in range(SIDE) for c in range(SIDE)])
NEXT = np.clip(CELLS[:, None] + MOVES, 0, SIDE - 1) @ np.array([SIDE, 1])  # (cells, moves) cells
WALLS = NEXT == np.arange(SIDE**2)[:, None]  # (cells, moves) bool: the move leads nowhere
STARTS = np.flatnonzero(~WALLS.any(1))
CORNERS = np.flatnonzero(WALLS.sum(1) == 2)
CASES = np.array([(s, g) for s in STARTS for g in CORNERS])  # all pairs of a start and a goal
NUM_ACTIONS = len(MOVES)
LOOK = NUM_ACTIONS + len(STARTS) + len(CORNERS) + NUM_ACTIONS  # numbers in one


class Data(NamedTuple):
    """Episodes, leaves (E, ...)."""

    cell: Any  # (E, STEPS + 1) int32, at each look; after the end the last one again
    action: Any  # (E, STEPS) int32
    goal: Any  # (E,) int32, a corner
    valid: Any  # (E, STEPS) bool: the step was taken


def look(cell: Any, start: Any, goal: Any, previous: Any) -> jax.Array:
    """What is seen (..., LOOK) at the first step (`start`) or a later one: walls, start and goal, the last move.

    `previous` is a move's number, or -1 for none.
    """
    shown = jnp.concatenate([cell[..., None] == STARTS, goal[..., None] == CORNERS], -1) & start[..., None]
    moved = previous[..., None] == np.arange(NUM_ACTIONS)
    return jnp.concatenate([jnp.asarray(WALLS)[cell], shown, moved], -1).astype(jnp.float32)


def looks_of(data: Data) -> tuple[jax.Array, jax.Array]:
    """`(looks, start)` of episodes, time-major: (STEPS + 1, E, ...)."""
    cell, action = jnp.swapaxes(data.cell, 0, 1), jnp.swapaxes(data.action, 0, 1)
    start = jnp.zeros(cell.shape, bool).at[0].set(True)
    previous = jnp.concatenate([jnp.full_like(action[:1], -1), action])
    return look(cell, start, jnp.broadcast_to(data.goal, cell.shape), previous), start


def record(rng: np.random.Generator, episodes: int) -> Data:
    """Three kinds of behaviour, drawn for each episode: one is uniform; each of the others makes half of its moves
    towards the goal's row, or towards its column, and is uniform otherwise. None knows both."""
    case = CASES[rng.integers(len(CASES), size=episodes)]
    cell, goal, kind = case[:, 0], case[:, 1], rng.integers(3, size=episodes)
    cells, actions, valid, on = [cell], [], [], np.ones(episodes, bool)
    for _ in range(STEPS):
        towards = CELLS[goal] - CELLS[cell]
        along = np.where(kind == 1, towards[:, 0], towards[:, 1])
        informed = (kind > 0) & (along != 0) & (rng.random(episodes) < 0.5)
        best = np.where(kind == 1, 0, 2) + (along > 0)
        action = np.where(informed, best, rng.integers(NUM_ACTIONS, size=episodes))
        cell = np.where(on, NEXT[cell, action], cell)
        actions.append(action)
        valid.append(on)
        cells.append(cell)
        on = on & ~np.isin(cell, CORNERS)
    cell, action = (np.stack(x, 1).astype(np.int32) for x in (cells, actions))
    return Data(cell, action, goal.astype(np.int32), np.stack(valid, 1))


def known(data: Data) -> dict[str, float]:
    """What there is in data: the behaviour's success, histories that occur once, pairs of state and move seen, and the
    success of the best policy that makes only moves which the data has in that state: what stitching states allows."""
    goal = np.broadcast_to(data.goal[:, None], data.action.shape)
    seen = np.zeros((SIDE**2, len(CORNERS), NUM_ACTIONS), bool)
    step = data.cell[:, :-1][data.valid], np.searchsorted(CORNERS, goal[data.valid]), data.action[data.valid]
    seen[step] = True
    pays = NEXT[:, None] == CORNERS[:, None]  # (cells, goals, moves)
    goes_on = ~np.isin(NEXT, CORNERS)[:, None]
    left = np.zeros(seen.shape[:2], bool)  # the goal can be reached in so many steps
    for _ in range(STEPS):
        then = left[NEXT[:, None], np.arange(len(CORNERS))[:, None]]
        left = (seen & (pays | (goes_on & then))).any(-1)
    whole = {
        (*e[: t + 1], g, *a[:t]) for e, a, g, v in zip(*data[:2], *data[2:], strict=True) for t in np.flatnonzero(v)
    }
    inner = ~WALLS.any(1) | (WALLS.sum(1) == 1)
    return {
        "behaviour": float(np.mean(data.cell[:, -1] == data.goal)),
        "steps": int(data.valid.sum()),
        "histories": len(whole),
        "pairs": float(seen[inner].mean()),
        "possible": float(np.mean(left[CASES[:, 0], np.searchsorted(CORNERS, CASES[:, 1])])),
    }


def success(act: Any, carry: Any) -> jax.Array:
    """The share of `CASES` in which a policy reaches the goal, exactly: nothing here is random.

    `act(carry, look (N, LOOK), start (N,)) -> (carry, action (N,))`, of N cases at once.
    """
    goal = jnp.asarray(CASES[:, 1])

    def step(x, t):
        carry, cell, previous = x
        start = jnp.full(len(CASES), t == 0)
        carry, action = act(carry, look(cell, start, goal, previous), start)
        ended = jnp.any(cell[:, None] == CORNERS, -1)
        cell = jnp.where(ended, cell, jnp.asarray(NEXT)[cell, action])
        return (carry, cell, action), None

    begin = carry, jnp.asarray(CASES[:, 0]), jnp.full(len(CASES), -1)
    return jnp.mean(jax.lax.scan(step, begin, jnp.arange(STEPS))[0][1] == goal)

"""Write `combinatorial.npz`: what Jumanji does in Snake, 2048, Minesweeper and Sokoban, for tests that run without it.

    pip install jumanji==1.1.2 && python tests/golden/make_combinatorial.py

Single steps along episodes, each with the state before it and what came after:
- `snake_<rows>x<columns>_`: `body head fruit length action`, and `next_*`, `reward`, `ended` (its time limit apart),
  `mask` and `grid`, the observation before the step as a checksum over fixed weights, in float64 (grid @ weights);
  actions by a policy that goes for the fruit among the allowed moves and now and then errs, or in every other episode
  by one that goes round and round over all cells and so fills the board;
- `game_2048_<size>_`: `board action next_board reward mask ended`;
- `minesweeper_`: `mines opened action`, `board next_board reward ended`; cells by row and column;
- `sokoban_`: `walls targets boxes player action`, `next_boxes next_player reward ended`. Rooms are made here: Jumanji
  only reads files; its actions are numbered as ours.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments import Game2048, Minesweeper, Snake, Sokoban
from jumanji.environments.logic.minesweeper.generator import UniformSamplingGenerator
from jumanji.environments.routing.sokoban.generator import SimpleSolveGenerator
from jumanji.environments.routing.sokoban.types import State as SokobanState

WEIGHTS = 7919
"""Entry i of a grid weighs i % WEIGHTS + 1."""


def checksum(grid: Any) -> np.ndarray:
    grid = np.asarray(grid, np.float64).ravel()
    return grid @ (np.arange(grid.size) % WEIGHTS + 1.0)


def collect(rows: list[dict[str, Any]], prefix: str) -> dict[str, np.ndarray]:
    return {f"{prefix}_{name}": np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def snake(rows: int, columns: int, steps: int, seed: int) -> dict[str, np.ndarray]:
    env = Snake(rows, columns, time_limit=10**9)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    random, key, out = np.random.default_rng(seed), jax.random.PRNGKey(seed), []
    state, ts = reset(key)
    round_trip = [(0, c) for c in range(columns)]  # a cycle over all cells, where the number of columns is even
    for c in reversed(range(columns)):
        round_trip += [(r, c) for r in (range(1, rows) if c % 2 else reversed(range(1, rows)))]
    following, careful = dict(zip(round_trip, round_trip[1:] + round_trip[:1], strict=True)), True
    for _ in range(steps):
        mask = np.asarray(state.action_mask)
        allowed = np.flatnonzero(mask) if mask.any() and random.random() < 0.97 else np.arange(4)
        head, fruit = (np.array([int(p.row), int(p.col)]) for p in (state.head_position, state.fruit_position))
        moves = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
        far = np.abs(head + moves[allowed] - fruit).sum(1) + random.random(len(allowed)) * 1.5
        action = int(allowed[far.argmin()])
        if careful:
            action = int(np.flatnonzero((moves == np.subtract(following[tuple(head.tolist())], head)).all(1))[0])
        after, next_ts = step(state, action)
        pair = lambda p: np.array([int(p.row), int(p.col)], np.int8)  # noqa: E731
        out.append(
            {
                "body": np.asarray(state.body_state, np.int16),
                "head": pair(state.head_position),
                "fruit": pair(state.fruit_position),
                "length": np.int16(state.length),
                "action": np.int8(action),
                "mask": mask,
                "grid": checksum(ts.observation.grid),
                "next_body": np.asarray(after.body_state, np.int16),
                "next_head": pair(after.head_position),
                "next_fruit": pair(after.fruit_position),
                "reward": np.float32(next_ts.reward),
                "ended": bool(next_ts.last()),
            }
        )
        state, ts = after, next_ts
        if next_ts.last():
            key, reset_key = jax.random.split(key)
            state, ts = reset(reset_key)
            careful = not careful
    return collect(out, f"snake_{rows}x{columns}")


def game_2048(size: int, steps: int, seed: int) -> dict[str, np.ndarray]:
    env = Game2048(size)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    random, key, out = np.random.default_rng(seed), jax.random.PRNGKey(seed), []
    state, _ = reset(key)
    for _ in range(steps):
        mask = np.asarray(state.action_mask)
        order = [3, 2, 1, 0] if random.random() < 0.7 else random.permutation(4)  # into a corner: larger tiles
        action = int(next(a for a in order if mask[a] or random.random() < 0.05))
        after, ts = step(state, action)
        out.append(
            {
                "board": np.asarray(state.board, np.int8),
                "action": np.int8(action),
                "mask": mask,
                "next_board": np.asarray(after.board, np.int8),
                "reward": np.float32(ts.reward),
                "ended": bool(ts.last()),
            }
        )
        state = after
        if ts.last():
            key, reset_key = jax.random.split(key)
            state, _ = reset(reset_key)
    return collect(out, f"game_2048_{size}")


def minesweeper(steps: int, seed: int) -> dict[str, np.ndarray]:
    rows, columns, mines = 6, 8, 7
    env = Minesweeper(UniformSamplingGenerator(rows, columns, mines))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    random, key, out = np.random.default_rng(seed), jax.random.PRNGKey(seed), []
    state, _ = reset(key)
    for _ in range(steps):
        where = np.zeros(rows * columns, bool)
        where[np.asarray(state.flat_mine_locations)] = True
        closed = np.asarray(state.board).ravel() == -1
        safe = np.flatnonzero(closed & ~where)  # one in 20 is any square
        action = int(random.choice(safe if random.random() < 0.95 else rows * columns))
        after, ts = step(state, jnp.array(divmod(action, columns)))
        out.append(
            {
                "mines": where.reshape(rows, columns),
                "opened": ~closed.reshape(rows, columns),
                "action": np.array(divmod(action, columns), np.int8),
                "board": np.asarray(state.board, np.int8),
                "next_board": np.asarray(after.board, np.int8),
                "reward": np.float32(ts.reward),
                "ended": bool(ts.last()),
            }
        )
        state = after
        if ts.last():
            key, reset_key = jax.random.split(key)
            state, _ = reset(reset_key)
    return collect(out, "minesweeper")


def sokoban(steps: int, seed: int) -> dict[str, np.ndarray]:
    env = Sokoban(generator=SimpleSolveGenerator(), time_limit=10**9)
    step = jax.jit(env.step)
    random, out, state = np.random.default_rng(seed), [], None
    for t in range(steps):
        if state is None or t % 60 == 0:
            walls = random.random((10, 10)) < 0.15
            walls[[0, -1]] = walls[:, [0, -1]] = random.random() < 0.7  # some rooms are open: the border stops all
            cells = random.permutation(np.flatnonzero(~walls))
            fixed, moving = np.where(walls, 1, 0).ravel(), np.zeros(100, int)
            moving[cells[:4]] = 4
            solvable = [(c, d) for c in cells[3:-9] for d in (-1, 1, -10, 10) if {c + d, c - d} <= {*cells[3:]}]
            box, d = solvable[0]  # one push from a target, three are on theirs or next to them
            moving[cells[3]], moving[box] = 0, 4
            targets = [*cells[:3], box + d] if random.random() < 0.6 else [*cells[4:7], box + d]
            fixed[targets] = 2
            player = int(box - d)
            moving[player] = 3
            state = SokobanState(
                key=jax.random.PRNGKey(0),
                fixed_grid=jnp.asarray(fixed.reshape(10, 10), jnp.uint8),
                variable_grid=jnp.asarray(moving.reshape(10, 10), jnp.uint8),
                agent_location=jnp.array(divmod(player, 10), jnp.int32),
                step_count=jnp.int32(0),
            )
        action = int(random.integers(4))
        after, ts = step(state, action)
        before, then = np.asarray(state.variable_grid), np.asarray(after.variable_grid)
        out.append(
            {
                "walls": np.packbits(np.asarray(state.fixed_grid) == 1),
                "targets": np.packbits(np.asarray(state.fixed_grid) == 2),
                "boxes": np.packbits(before == 4),
                "player": np.asarray(state.agent_location, np.int8),
                "action": np.int8(action),
                "next_boxes": np.packbits(then == 4),
                "next_player": np.asarray(after.agent_location, np.int8),
                "reward": np.float32(ts.reward),
                "ended": bool(ts.last()),
            }
        )
        state = None if ts.last() else after
    return collect(out, "sokoban")


def main() -> None:
    data = {"jumanji": np.array(importlib.metadata.version("jumanji")), "jax": np.array(jax.__version__)}
    data |= snake(5, 4, 1800, 0) | snake(12, 12, 600, 1) | game_2048(4, 1500, 2) | game_2048(3, 400, 3)
    data |= minesweeper(600, 4) | sokoban(3000, 5)
    out = Path(__file__).with_name("combinatorial.npz")
    np.savez_compressed(out, **data)  # pyright: ignore[reportArgumentType]
    print(f"{out.name}: {out.stat().st_size / 1e3:.0f} kB")
    for name in ("snake_5x4", "game_2048_4", "minesweeper", "sokoban"):
        print(name, data[f"{name}_reward"].sum(), data[f"{name}_ended"].sum())


if __name__ == "__main__":
    main()

"""Write `rule_world.npz`: what `xminigrid` 0.9.1 does with rulesets of every kind, for tests that run without it.

    python tests/golden/make_rule_world.py

For each layout `L` of `LAYOUTS`, `RUNS` runs of `STEPS` actions, each with a ruleset of its own: goals of all kinds in
turn, eight rules of random kinds (fewer where goals would be rare) over so few tiles that they meet all the time, also
rules that take floor or doors, and that make walls, doors, floor or nothing. Nothing is reset when a goal is reached.
Actions are random or, in half of the runs, mostly carry what can be picked up to other tiles. Tiles are
shape << 4 | colour.

- `L_goal (RUNS, 5)`, `L_rules (RUNS, 8, 7)`, `L_objects (RUNS, 12, 2)`, `L_grid (RUNS, size, size)`, `L_position`,
  `L_direction`: the ruleset and the reference's own first state; `L_action (RUNS, STEPS)`;
- after each step `L_positions` (row * size + column), `L_directions`, `L_pocket`, `L_reached`, `L_reward`, and sums of
  the tiles of grid and observation times `weights(n)`, modulo 2^32: `L_grid_sum`, `L_image_sum`;
- `L_last_grid`, `L_last_image`: whole, after the last step; `version`, `seed`.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xminigrid
from xminigrid.types import RuleSet

SEED = 20261121
RUNS = 30
STEPS = 300
NUM_RULES, NUM_OBJECTS = 8, 18
LAYOUTS = ("R1-9x9", "R2-9x9", "R4-9x9", "R6-13x13", "R9-16x16")
FLOOR = (1, 7)


def weights(n: int) -> np.ndarray:
    """Odd numbers below 2^32, one for each of n tiles."""
    return np.random.Generator(np.random.PCG64(n)).integers(0, 1 << 31, n, np.uint32) * 2 + 1


def draw_ruleset(rng: np.random.Generator, size: int, goal_kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shapes = rng.choice([3, 4, 5, 7, 11, 12], 2, replace=False)
    tiles = [(int(shape), int(rng.integers(1, 12))) for shape in shapes] + [(6, int(rng.integers(1, 12)))]
    products = [*tiles * 6, FLOOR, (2, 6), (0, 0), (9, 3), (8, 1), (6, 2)]

    def one(pool: list[tuple[int, int]]) -> tuple[int, int]:
        return pool[rng.integers(len(pool))]

    rows = []
    for _ in range(NUM_RULES):
        kind = int(rng.integers(12)) if goal_kind not in (4, 7, 8, 9, 10) or rng.random() < 0.3 else 0
        inputs = tiles if rng.random() < 0.95 else [FLOOR, (10, 3), (7, 1)]
        a, b, product = one(inputs), one(tiles), one(products)
        parts = (a, b, product) if 3 <= kind <= 7 else (a, product, (0, 0))
        rows.append([kind, *sum(parts, ())] if kind else [0] * 7)
    a = one(tiles)
    goal = [goal_kind, *a, *(a if rng.random() < 0.7 else one(tiles))]
    place = [int(x) for x in rng.integers(1, size - 1, 2)]
    if goal_kind == 2:
        goal[1:3] = [(6, goal[2]), FLOOR][rng.integers(2)] if rng.random() < 0.5 else tiles[2]
    if goal_kind == 5:
        goal[1:5] = [*(FLOOR if rng.random() < 0.5 else a), *place]
    if goal_kind == 6:
        goal[1:5] = [*place, 0, 0]
    keep = {2: 3, 3: 3, 1: 3, 11: 3, 12: 3, 13: 3, 14: 3}.get(goal_kind, 5)
    goal = [*goal[:keep], *[0] * (5 - keep)] if goal_kind else [0] * 5
    objects = [one(tiles) for _ in range(NUM_OBJECTS - 2)] + [(7, 1), (0, 0)]
    return np.array(goal, np.uint8), np.array(rows, np.uint8), np.array(objects, np.uint8)


def play(name: str, seed: int) -> dict[str, np.ndarray]:
    env, params = xminigrid.make(f"XLand-MiniGrid-{name}")
    size = params.height
    rng = np.random.default_rng(seed)
    rulesets = [draw_ruleset(rng, size, run % 15) for run in range(RUNS)]
    goal, rules, objects = (np.stack(parts) for parts in zip(*rulesets, strict=True))
    grid_weights, image_weights = jnp.asarray(weights(size * size)), jnp.asarray(weights(params.view_size**2))

    def packed(tiles):
        return tiles[..., 0].astype(jnp.uint32) << 4 | tiles[..., 1].astype(jnp.uint32)

    def checksum(tiles, weights):
        return jnp.sum(packed(tiles).reshape(-1) * weights, dtype=jnp.uint32)

    def run(goal, rules, objects, key, busy):
        task = params.replace(ruleset=RuleSet(goal, rules, objects))
        first = env.reset(task, key)

        def step(timestep, key):
            agent = timestep.state.agent
            ahead = agent.position + jnp.array([(-1, 0), (0, 1), (1, 0), (0, -1)])[agent.direction]
            sides = jnp.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
            near = timestep.state.grid.at[ahead[0] + sides[:, 0], ahead[1] + sides[:, 1], 0].get(mode="clip")
            shape = timestep.state.grid[ahead[0], ahead[1], 0]
            lay = (agent.pocket[0] > 0) & (jnp.any((near > 2) & (near < 8)) | jnp.any(near > 10))
            use = jnp.where(shape == 1, jnp.where(lay, 4, 0), jnp.where((shape >= 8) & (shape <= 10), 5, 3))
            use = jnp.where((shape == 2) | (shape == 10), jnp.where(shape == 2, 1, 0), use)
            draw, what = jax.random.split(key)
            action = jax.random.choice(draw, 6, p=jnp.array([0.4, 0.15, 0.1, 0.15, 0.15, 0.05]))
            action = jnp.where(busy & (jax.random.uniform(what) < 0.7), use, action)
            new = env.step(task, timestep, action)
            agent = new.state.agent
            return new, {
                "action": action.astype(jnp.uint8),
                "positions": (agent.position[0] * size + agent.position[1]).astype(jnp.uint16),
                "directions": agent.direction.astype(jnp.uint8),
                "pocket": packed(agent.pocket).astype(jnp.uint8),
                "reached": new.discount == 0,
                "reward": new.reward.astype(jnp.float32),
                "grid_sum": checksum(new.state.grid, grid_weights),
                "image_sum": checksum(new.observation, image_weights),
            }

        last, rows = jax.lax.scan(step, first, jax.random.split(jax.random.fold_in(key, 1), STEPS))
        agent = first.state.agent
        return rows | {
            "grid": packed(first.state.grid).astype(jnp.uint8),
            "position": agent.position[0] * size + agent.position[1],
            "direction": agent.direction,
            "last_grid": packed(last.state.grid).astype(jnp.uint8),
            "last_image": packed(last.observation).astype(jnp.uint8),
        }

    keys, busy = jax.random.split(jax.random.key(seed), RUNS), np.arange(RUNS) // 15 == 1
    data = jax.device_get(jax.jit(jax.vmap(run))(goal, rules, objects, keys, busy))
    data |= {"goal": goal, "rules": rules, "objects": objects}
    changes = np.mean(np.diff(data["grid_sum"].astype(np.int64), axis=1) != 0)
    reached = {kind: int(data["reached"][goal[:, 0] == kind].sum()) for kind in range(15)}
    print(f"{name}: the grid changes in {changes:.0%} of the steps; goals reached, by kind: {reached}")
    return data


if __name__ == "__main__":
    results = {"version": np.array(importlib.metadata.version("xminigrid")), "seed": np.array(SEED)}
    for i, name in enumerate(LAYOUTS):
        results |= {f"{name}_{key}": value for key, value in play(name, SEED + i).items()}
    path = Path(__file__).with_name("rule_world.npz")
    np.savez_compressed(path, **results)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")

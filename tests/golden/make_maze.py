"""Write `maze.npz`: what jaxued's Maze does on shared levels and actions, for tests that run without it.

    python tests/golden/make_maze.py --jaxued CHECKOUT

Needs a checkout of DramaCow/jaxued, whose Maze has not changed since commit 0f8f128, and its dependencies (jax, flax,
chex, gymnax; made with jax 0.10.2, gymnax 1.0.1). A case is a size, a view and its levels, L of them, each played
`STEPS` times, from the start again after an end:

- `<case>/wall_map (L, H, W)`, `agent_pos (L, 2)` x, y, `agent_dir (L,)`, `goal_pos (L, 2)`, `max_steps (L,)`;
- `<case>/action (L, T)`, `reward (L, T)`, `done (L, T)`, and `image (L, T + 1, ...)`, `direction (L, T + 1)`: what is
  seen at first and after each step, before a restart;
- `<case>/min_steps (L, 4, H, W)` to the goal, infinite where there is no way (uint16, 65535 for that).

Half of the actions are random, the other half go the shortest way, so that goals are reached and time runs out.
`prefabs/<name>` are jaxued's own strings of its eight evaluation levels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 250
HOLDOUTS = (
    "SixteenRooms",
    "SixteenRooms2",
    "Labyrinth",
    "LabyrinthFlipped",
    "Labyrinth2",
    "StandardMaze",
    "StandardMaze2",
    "StandardMaze3",
)
CASES = {  # height, width, view size, sees everything, walls and time limit of each level
    "default": (13, 13, 5, False, [(25, 250)] * 8 + [(60, 250)] * 8 + [(0, 250), (25, 40), (60, 17), (100, 250)]),
    "holdouts": (13, 13, 5, False, [(-1, 250)] * len(HOLDOUTS)),
    "oblong": (7, 10, 3, False, [(10, 60), (20, 250), (30, 100)]),
    "wide_view": (5, 4, 7, False, [(3, 30), (5, 250), (8, 100)]),
    "full_view": (6, 9, 5, True, [(10, 60), (20, 250)]),
}


def play(maze: Any, level: Any, max_steps: int, key: jax.Array) -> dict[str, Any]:
    """`STEPS` steps on one level."""
    params = maze.default_params.replace(max_steps_in_episode=max_steps)
    first = maze.reset_env_to_level(key, level, params)
    distance = first[1].min_steps

    def step(carry, key):
        state = carry
        kind_key, action_key = jax.random.split(key)
        after = [maze.step_env(key, state, a, params)[1] for a in range(3)]
        steps = [jnp.where(s.terminal & (s.time < max_steps), -1, maze.min_steps_to_goal(s)) for s in after]
        best = jnp.argmin(jnp.stack(steps))
        action = jnp.where(jax.random.bernoulli(kind_key), jax.random.randint(action_key, (), 0, 7), best)
        obs, new, reward, done, _ = maze.step_env(key, state, action, params)
        state = jax.tree.map(lambda a, b: jnp.where(done, a, b), first[1], new)
        return state, (action, reward, done, obs.image, obs.agent_dir)

    _, (action, reward, done, image, direction) = jax.lax.scan(step, first[1], jax.random.split(key, STEPS))
    return {
        "wall_map": level.wall_map,
        "agent_pos": level.agent_pos,
        "agent_dir": level.agent_dir,
        "goal_pos": level.goal_pos,
        "max_steps": jnp.int32(max_steps),
        "action": action.astype(jnp.uint8),
        "reward": reward,
        "done": done,
        "image": jnp.concatenate([first[0].image[None], image]),
        "direction": jnp.concatenate([first[0].agent_dir[None], direction]),
        "min_steps": jnp.where(distance == jnp.inf, 65535, distance).astype(jnp.uint16),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jaxued", required=True, help="checkout of DramaCow/jaxued")
    args = parser.parse_args()
    sys.path.insert(0, f"{args.jaxued}/src")
    from jaxued.environments.maze import Level, MazeSolved, make_level_generator  # pyright: ignore
    from jaxued.environments.maze.level import prefabs  # pyright: ignore

    data: dict[str, np.ndarray] = {f"prefabs/{name}": np.array(prefabs[name]) for name in HOLDOUTS}
    for i, (case, (height, width, view_size, full, levels)) in enumerate(CASES.items()):
        maze = MazeSolved(max_height=height, max_width=width, agent_view_size=view_size, fully_obs=full)
        play_one = jax.jit(lambda level, max_steps, key, maze=maze: play(maze, level, max_steps, key))
        rows = []
        for j, (walls, max_steps) in enumerate(levels):
            level_key, key = jax.random.split(jax.random.fold_in(jax.random.key(i), j))
            fixed = walls < 0
            draw = make_level_generator(height, width, walls)
            level = Level.from_str(prefabs[HOLDOUTS[j]]) if fixed else draw(level_key)
            rows.append(jax.tree.map(np.asarray, play_one(level, max_steps, key)))
        data |= {f"{case}/{name}": np.stack([row[name] for row in rows]) for name in rows[0]}
    path = Path(__file__).with_name("maze.npz")
    np.savez_compressed(path, **data)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()

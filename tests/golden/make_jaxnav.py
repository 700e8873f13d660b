"""Write `jaxnav.npz`: what JaxMARL's JaxNav does with one robot, for tests that run without it.

    python tests/golden/make_jaxnav.py --jaxmarl CHECKOUT

Needs a checkout of FLAIROx/JaxMARL, made at commit c793d09 with jax 0.10.2, and jax, flax, matplotlib; of the package
only JaxNav is imported. Settings are those of the paper's experiments with one robot. Arrays, of L levels and T steps:

- `wall_map (L, 11, 11)`, `start (L, 3)` x, y, theta, `goal (L, 2)`; `shortest (L,)`, cells, -1 where there is no way;
- steps of episodes from there, each in the state that the one before left: `action (L, T, 2)`, `pose (L, T + 1, 3)`,
  `velocity (L, T + 1, 2)`, `reward (L, T)`, `success (L, T)`, `collision (L, T)`, and of the observation
  `lidar (L, T + 1, 200)`, the number of the sample (of 120 from 0 to 6 m), and `rest (L, T + 1, 4)`; `live (L, T)`: the
  episode had not ended before the step;
- poses anywhere within the rim: `pose_level (P,)`, `poses (P, 3)`, `pose_collision (P,)`, `pose_lidar (P, 200)`;
- `discrete (15, 2)`, the speeds and rates of the discrete actions.

Half of the episodes act at random, half head for the goal, so that some reach it and some hit walls.
"""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LEVELS, STEPS, POSES = 24, 60, 400


def jaxnav(checkout: Path) -> Any:
    """The module, without what the packages around it import."""
    for name in ("jaxmarl", "jaxmarl.environments"):
        package = types.ModuleType(name)
        package.__path__ = [str(checkout / name.replace(".", "/"))]
        sys.modules[name] = package
    from jaxmarl.environments.jaxnav import jaxnav_env  # pyright: ignore[reportMissingImports]

    return jaxnav_env


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jaxmarl", type=Path, required=True)
    module = jaxnav(parser.parse_args().jaxmarl)
    maps = {"map_size": (11, 11), "fill": 0.6, "sample_test_case_type": "grid"}
    env = module.JaxNav(num_agents=1, goal_radius=0.3, map_params=maps)
    rng = np.random.default_rng(20261128)

    def whole(lidar: Any) -> np.ndarray:
        return np.rint((np.asarray(lidar) + 0.5) * 119).astype(np.uint8)

    step = jax.jit(env.step_env)
    out: dict[str, list[Any]] = {}
    for n in range(LEVELS):
        obs, state = env.reset(jax.random.key(n))
        for _ in range(100 * (n % 2)):  # near the goal, so that it is reached
            angle = rng.uniform(-np.pi, np.pi)
            place = state.goal[0] + 0.48 * jnp.array([np.cos(angle), np.sin(angle)], jnp.float32)
            facing = module.wrap(jnp.float32(angle + np.pi + rng.uniform(-1, 1)))
            if not env.map_obj.check_agent_map_collision(place, facing, state.map_data):
                state = state.replace(pos=place[None], theta=jnp.full_like(state.theta, facing))
                obs = env.get_obs(state)
                break
        passable, length = env.map_obj.dikstra_path(state.map_data, state.pos[0], state.goal[0])
        row: dict[str, list[Any]] = {k: [] for k in ("action", "reward", "success", "collision", "live")}
        seen, poses, velocities, live = [obs["agent_0"]], [], [], True
        pose = [jnp.append(state.pos[0], state.theta[0].reshape(()))]
        velocities.append(state.vel[0])
        head = np.zeros(2)
        level = {"wall_map": state.map_data == 1, "start": pose[0], "goal": state.goal[0]}
        level["shortest"] = length if passable else -1
        for t in range(STEPS):
            if n % 2:
                turn = float(np.asarray(seen[-1])[203]) * np.pi
                action = np.array([1.0 if abs(turn) < 0.5 else 0.1, np.clip(2 * turn, -0.6, 0.6)])
            else:
                if t % 8 == 0:
                    head = rng.uniform((-0.3, -0.8), (1.1, 0.8))
                action = head
            action = np.asarray(action, np.float32)
            after, state, reward, _, info = step(jax.random.key(0), state, {"agent_0": jnp.asarray(action)})[:5]
            row["action"].append(action)
            row["reward"].append(reward["agent_0"])
            row["success"].append(bool(info["GoalR"][0]))
            row["collision"].append(bool(info["MapC"][0]))
            row["live"].append(live)
            live = live and not bool(state.ep_done)
            seen.append(after["agent_0"])
            pose.append(jnp.append(state.pos[0], state.theta[0].reshape(())))
            velocities.append(state.vel[0])
        seen = np.stack(seen)
        level |= row | {"pose": pose, "velocity": velocities, "lidar": whole(seen[:, :200]), "rest": seen[:, 200:204]}
        for name, x in level.items():
            out.setdefault(name, []).append(np.asarray(x))
    found: dict[str, Any] = {name: np.stack(rows) for name, rows in out.items()}
    which = rng.integers(LEVELS, size=POSES)
    poses = rng.uniform((1, 1, -np.pi), (10, 10, np.pi), (POSES, 3)).astype(np.float32)

    @jax.jit
    def look(wall_map, pose):
        at = state.replace(pos=pose[None, :2], theta=pose[None, 2], map_data=wall_map.astype(int))
        return env.map_obj.check_agent_map_collision(pose[:2], pose[2], wall_map.astype(int)), env.get_obs(at)[
            "agent_0"
        ]

    collision, seen = jax.vmap(look)(jnp.asarray(found["wall_map"])[which], jnp.asarray(poses))
    found |= {"pose_level": which.astype(np.int32), "poses": poses, "pose_collision": np.asarray(collision)}
    found |= {"pose_lidar": whole(seen[:, :200]), "discrete": np.asarray(module.DISCRETE_ACTS)}
    found["versions"] = np.array(["JaxMARL c793d09", f"jax {jax.__version__}"])
    np.savez_compressed(Path(__file__).parent / "jaxnav.npz", **found)
    print({name: x.shape for name, x in found.items()})
    print(found["success"].sum(), found["collision"].sum(), found["live"].mean(), found["pose_collision"].mean())


if __name__ == "__main__":
    main()

"""Golden episodes of the Kheperax maze, into kheperax.npz.

    python tests/golden/make_kheperax.py

in an environment with kheperax 0.2.0 (MIT; with it come qdax 0.5.0 and jax 0.10.2), which the project's own has not.

Eight robots drive 250 steps each in the standard maze, the first from kheperax's own start, the others from places
drawn at random where nothing touches them. The wheels turn away from what the lasers see, with noise, so that most
robots drive for long before they touch a wall; who does is held there, as kheperax checks the place that a step leaves.
Stored are poses (episodes, 251, 3), observations (episodes, 251, 5), actions and rewards.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from kheperax.simu.posture import Posture
from kheperax.tasks.config import KheperaxConfig
from kheperax.tasks.main import KheperaxTask

EPISODES, STEPS = 8, 250
jax.tree_leaves = jax.tree.leaves  # as kheperax 0.2.0 calls it, which newer jax has no more


def free_pose(rng: np.random.Generator, robot, maze) -> Posture:
    while True:
        x, y, theta = rng.uniform((0.05, 0.05, -np.pi), (0.95, 0.95, np.pi))
        posture = Posture(float(x), float(y), float(theta))
        if not robot.replace(posture=posture, radius=0.03).collides(maze):
            return posture


def main() -> None:
    rng = np.random.default_rng(0)
    config = KheperaxConfig.get_default()
    task = KheperaxTask(config)
    step = jax.jit(task.step)
    stored = {name: [] for name in ("pose", "obs", "action", "reward")}
    for episode in range(EPISODES):
        state = task.reset(jax.random.PRNGKey(0))
        if episode:
            pose = jax.tree.map(jnp.float32, free_pose(rng, config.robot, config.maze))
            robot = config.robot.replace(posture=pose)
            obs = task._get_obs(robot, config.maze, random_key=jax.random.PRNGKey(0))
            state = state.replace(robot=robot, obs=obs)
        rows = {name: [] for name in stored}

        def note(state, rows=rows):
            posture = state.robot.posture
            rows["pose"].append([float(posture.x), float(posture.y), float(posture.angle)])
            rows["obs"].append(np.asarray(state.obs))

        note(state)
        for _ in range(STEPS):
            left, ahead, right = (float(x) for x in (state.obs[2], state.obs[1], state.obs[0]))
            speed, turn = 0.15 + 2 * (ahead - 0.05), 3 * (left - right) + (0.5 if ahead < 0.07 else 0)
            action = np.clip([speed - turn, speed + turn] + rng.normal(0, 0.1, 2), -1.2, 1.2).astype(np.float32)
            state = step(state, jnp.asarray(action))
            rows["action"].append(action)
            rows["reward"].append(float(state.reward))
            note(state)
        for name, values in rows.items():
            stored[name].append(np.asarray(values, np.float32))
    arrays = {name: np.stack(values) for name, values in stored.items()}
    path = Path(__file__).with_name("kheperax.npz")
    np.savez_compressed(path, **arrays, version="kheperax 0.2.0, qdax 0.5.0, jax 0.10.2")
    still = np.all(np.diff(arrays["pose"], axis=1) == 0, -1).mean(1)
    print(f"{path}: {path.stat().st_size} bytes; share of steps in which a robot is held: {still.round(2)}")


if __name__ == "__main__":
    main()

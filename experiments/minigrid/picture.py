"""An episode of a recurrent policy trained for DoorKey-8x8, and one level of each of sixteen tasks, as pictures.

    python experiments/minigrid/picture.py

Writes docs/media/doorkey.gif and docs/media/minigrid.png.
"""

import math
from pathlib import Path

import jax
import numpy as np
from PIL import Image
from run import BONUS

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.host import render
from jaxrl.registry import tuned
from jaxrl.wrappers import VisitBonus

MEDIA = Path(__file__).parents[2] / "docs" / "media"
TASK = "MiniGrid-DoorKey-8x8-v0"
SHOWN = (
    "DoorKey-8x8-v0",
    "FourRooms-v0",
    "MultiRoom-N6-v0",
    "KeyCorridorS6R3-v0",
    "MemoryS13-v0",
    "LockedRoom-v0",
    "ObstructedMaze-Full-v1",
    "Playground-v0",
    "LavaCrossingS11N5-v0",
    "SimpleCrossingS11N5-v0",
    "Dynamic-Obstacles-8x8-v0",
    "Fetch-8x8-N3-v0",
    "GoToDoor-8x8-v0",
    "PutNear-8x8-N3-v0",
    "RedBlueDoors-8x8-v0",
    "BlockedUnlockPickup-v0",
)
SIDE = 232  # pixels of a task in the sheet


def episodes(num: int) -> list[np.ndarray]:
    """Frames of `num` episodes of a policy trained with the settings of experiments/minigrid/run.py."""
    settings = tuned("ppo_rnn", TASK)
    env, params = jaxrl.make(TASK, **settings.env)
    algo = ppo_rnn.make(VisitBonus(env, "position", math.prod(env.shape), BONUS), ppo_rnn.Config(**settings.config))
    train = jax.jit(lambda key: jaxrl.train(algo, key, settings.total_steps, ppo_rnn.Hyper(**settings.hyper), params))
    state, _ = train(jax.random.key(0))
    policy, step, act = algo.policy(state), jax.jit(env.step), jax.jit(algo.act)
    frames = []
    for seed in range(num):
        key, reset_key = jax.random.split(jax.random.key(seed))
        obs, state = env.reset(reset_key, params)
        carry, over = algo.initial_carry(), False
        frames.append(env.render(state, params))
        while not over:
            key, act_key, step_key = jax.random.split(key, 3)
            action, carry = act(policy, act_key, obs, carry)
            ts = step(step_key, state, action, params)
            obs, state, over = ts.obs, ts.state, bool(ts.terminated | ts.truncated)
            frames.append(env.render(state, params))
        frames += [frames[-1]] * 4
    return frames


def fitted(picture: np.ndarray) -> np.ndarray:
    """`picture` scaled into a square of SIDE pixels, on white."""
    image = Image.fromarray(picture)
    image.thumbnail((SIDE - 8, SIDE - 8), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (SIDE, SIDE), "white")
    square.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    return np.asarray(square)


def main() -> None:
    pictures = []
    for i, name in enumerate(SHOWN):
        env, params = jaxrl.make(f"MiniGrid-{name}")
        _, state = env.reset(jax.random.key(i), params)
        pictures.append(fitted(env.render(state, params)))
    render.save(MEDIA / "minigrid.png", pictures)
    render.save(MEDIA / "doorkey.gif", episodes(4), fps=6)


if __name__ == "__main__":
    main()

"""The picture of the README: one Acrobot episode before, early in and after training, side by side.

python experiments/results/picture.py [OUT.gif]
"""

import sys
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.render import render_states, save
from jaxrl.registry import tuned

STEPS = (0, 60_000, 500_000)
FRAMES = 120


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs" / "media" / "learning.gif")
    env, params = jaxrl.make("Acrobot-v1")
    settings = tuned("ppo", "Acrobot-v1")
    algo = ppo.make(env, ppo.Config(**settings.config))
    state = algo.init(jax.random.key(0), ppo.Hyper(**settings.hyper), params)
    update = jax.jit(algo.update)

    @jax.jit
    def episode(policy, key):
        obs, first = env.reset(key, params)

        def step(loop, key):
            obs, state, over = loop
            action, _ = algo.act(policy, key, obs)
            ts = env.step(key, state, action, params)
            hold = jax.tree.map(lambda new, old: jax.numpy.where(over, old, new), (ts.obs, ts.state), (obs, state))
            return (*hold, over | ts.terminated), state  # after the end: the last picture stays

        return jax.lax.scan(step, (obs, first, jax.numpy.bool_(False)), jax.random.split(key, FRAMES))[1]

    strips = []
    for target in STEPS:
        while int(state.step) < target:
            state, _ = update(state)
        frames = render_states(env, episode(algo.policy(state), jax.random.key(4)), params)
        strips.append([labelled(frame, f"{target:,} steps") for frame in frames])
    panels = [np.concatenate(row, axis=1) for row in zip(*strips, strict=True)]
    out.parent.mkdir(parents=True, exist_ok=True)
    print(save(out, panels, fps=15))


def labelled(frame: np.ndarray, text: str) -> np.ndarray:
    image = Image.fromarray(frame).resize((frame.shape[1] * 280 // frame.shape[0], 280))
    ImageDraw.Draw(image).text((10, 258), text, fill="#222222", font_size=15)
    return np.asarray(image)


if __name__ == "__main__":
    main()

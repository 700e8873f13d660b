"""Pictures of docs/envs/quadcopter.md: a learned policy on the figure-eight, paths in space, a formation.

    python experiments/quadcopter/pictures.py

Trains the hover policy of recipes.py (seed 0) and writes docs/media/quadcopter_{eight.gif,paths.png,formation.gif}.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from recipes import apg_recipe

import jaxrl
from jaxrl.canvas import GREEN, GREY
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter.control import actions
from jaxrl.envs.quadcopter.courses import paths
from jaxrl.envs.quadcopter.scene import Scene
from jaxrl.host.plotting import COLORS
from jaxrl.host.render import render_states, save

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

MEDIA = Path(__file__).parents[2] / "docs" / "media"
CURVES = ("circle", "figure_eight", "upright_eight", "lissajous")


def fly(env, params, act, steps, seed=0):
    """The states of an episode that `act(obs, state)` flies."""
    reset_key, key = jax.random.split(jax.random.key(seed))
    obs, state = env.reset(reset_key, params)

    def step(carry, key):
        obs, state = carry
        ts = env.step(key, state, act(obs, state), params)
        return (ts.obs, ts.state), state

    return jax.jit(lambda: jax.lax.scan(step, (obs, state), jax.random.split(key, steps))[1])()


def tracker(path):
    """The tracking task as a policy sees it that has learned to hover, and its params."""
    env, params = jaxrl.make(
        "Quadcopter-TrajectoryTracking-v0", path=path, action="rpm", history=32, lookahead=0, noise=True
    )
    return env, strongly_typed(params.replace(anywhere=0.0, start_position=0.0, start_velocity=0.0))


def eight(policy, algo):
    env, params = tracker("figure_eight")
    states = fly(env, params, lambda obs, _: algo.act(policy, jax.random.key(0), obs, (), greedy=True)[0], 550)
    flown = np.stack(states.drone.position, -1)
    curve = np.asarray(paths.position(params.path, jnp.linspace(0, params.path.period, 200)))
    frames = []
    for i in range(0, 550, 5):
        scene = Scene((0, 0, 0), 5.5, floor=-1.0)
        scene.path(curve, GREY, 0.5)
        scene.path(flown[max(0, i - 100) : i + 1], GREEN, 0.8)
        scene.drones(jax.tree.map(lambda x, i=i: x[i], states.drone))
        frames.append(scene.image())
    save(MEDIA / "quadcopter_eight.gif", frames, fps=20)


def curves(policy, algo):
    figure = plt.figure(figsize=(12, 3.9))
    for i, path in enumerate(CURVES):
        env, params = tracker(path)
        states = fly(env, params, lambda obs, _: algo.act(policy, jax.random.key(0), obs, (), greedy=True)[0], 1000)
        ax = figure.add_subplot(1, len(CURVES), i + 1, projection="3d")
        time = jnp.linspace(0, params.path.period, 300)
        ax.plot(*np.asarray(paths.position(params.path, time)).T, color="0.6", linewidth=3, label="reference")
        ax.plot(*(np.asarray(x) for x in states.drone.position), color=COLORS[0], linewidth=1, label="flown")
        ax.set(title=path.replace("_", " "), xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
        reach = 1.1 * float(jnp.abs(paths.position(params.path, time)).max())
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach), zticks=(-1, 0, 1))
        ax.set_box_aspect((1, 1, 1), zoom=0.85)  # room for the label of z
    figure.legend(*ax.get_legend_handles_labels(), loc="lower center", ncols=2)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(MEDIA / "quadcopter_paths.png", dpi=110)


def formation():
    env, params = jaxrl.make("Quadcopter-Formation-v0", num_agents=8)
    scales = actions.default_scales("velocity")

    def pilot(obs, state):  # a velocity towards the slot, and the slot's own
        _, velocity = env.target(state, params)
        wanted = jnp.stack(velocity, -1) - 1.5 * obs[:, :3]
        return jnp.concatenate([wanted / scales.speed, jnp.zeros((8, 1))], -1)

    states = fly(env, params, pilot, min(int(params.max_steps), 400), seed=3)
    every = jax.tree.map(lambda x: x[::4], states)
    save(MEDIA / "quadcopter_formation.gif", render_states(env, every, params), fps=12)


def main():
    algo, train = apg_recipe()
    policy = jax.jit(train)(jax.random.key(0))
    eight(policy, algo)
    curves(policy, algo)
    formation()


if __name__ == "__main__":
    main()

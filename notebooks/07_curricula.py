# %% [markdown]
# # Curricula: which mazes teach most?
#
# A level is just parameters, so a curriculum is a function that chooses them. ACCEL starts from mazes without a wall, keeps
# those that the student can still learn from, and edits them: the mazes grow with the student.

# %% tags=["parameters"]
UPDATES = 250
PIECES = 5  # pictures on the way

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import accel, dr
from jaxrl.curriculum import attach
from jaxrl.envs.grid.maze import kit

task, params = jaxrl.make("Maze-v0", height=9, width=9)
env = task.as_levels()  # the same task, its params are one maze
some = jax.vmap(task.generate, (0, None))(jax.random.split(jax.random.key(0), 16), params.replace(walls=25))

figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
axes.imshow(kit.draw_levels(some))
axes.axis("off")

# %% [markdown]
# The student, and two curricula around it: domain randomisation (mazes of 25 random walls) and ACCEL (no walls at first, edits). What
# `attach` returns is an algorithm again.

# %%
slots = jaxrl.vectorize(env, 32, batched_params=True)
student = ppo.make(slots, ppo.Config(num_envs=32, num_steps=64, num_epochs=2, num_minibatches=2, hidden=(64, 64)))
random_mazes = attach(student, dr.make(task.generate))
growing = attach(student, accel.make(task.generate, env.mutate, accel.Config(buffer_size=256, num_edits=10)))

hyper = ppo.Hyper(learning_rate=1e-3, gamma=0.98)
walls = {"DR": jnp.int32(25), "ACCEL": jnp.int32(0)}
algos = {"DR": random_mazes, "ACCEL": growing}
states = {
    name: algo.init(jax.random.key(1), algo.hyper(**vars(hyper)), params.replace(walls=walls[name]))
    for name, algo in algos.items()
}

# %%
unseen = jax.vmap(task.generate, (0, None))(jax.random.split(jax.random.key(99), 128), params.replace(walls=25))
solvable = np.asarray(jax.vmap(kit.is_solvable)(unseen))


def train(algo):
    """Some updates, and the share of unseen solvable mazes that are then solved."""

    @jax.jit
    def piece(state, key):
        state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, None, UPDATES // PIECES)
        policy = algo.policy(state)

        def solved(level, key):
            stats = jaxrl.evaluate(algo, policy, key, env, level, num_episodes=1, max_steps=100, greedy=False)
            return stats.returns[0] > 0

        return state, metrics, jax.vmap(solved)(unseen, jax.random.split(key, 128))

    return piece


pieces = {name: train(algo) for name, algo in algos.items()}
curves, pictures = {name: [] for name in algos}, []
for i in range(PIECES):
    for name in algos:
        states[name], metrics, solved = pieces[name](states[name], jax.random.key(i))
        curves[name].append(np.asarray(solved)[solvable].mean())
    pictures.append((states["ACCEL"].curriculum.buffer, int(states["ACCEL"].step)))
    print(f"after {(i + 1) * UPDATES // PIECES} updates:", {k: f"{v[-1]:.2f} solved" for k, v in curves.items()})

# %% [markdown]
# ACCEL's best-scored mazes, from the first piece of training to the last:

# %%
figure, axes = plt.subplots(PIECES, 1, figsize=(9, 1.3 * PIECES), layout="constrained")
for ax, (buffer, steps) in zip(axes, pictures, strict=True):
    best = np.argsort(-np.asarray(buffer.score))[:8]
    levels = jax.tree.map(lambda x, best=best: x[best], buffer.levels)
    ax.imshow(kit.draw_levels(levels))
    mean = float(levels.wall_map.sum((1, 2)).mean())
    ax.set_ylabel(f"{steps / 1e6:.2f} M steps\n{mean:.0f} walls", rotation=0, ha="right", va="center", fontsize=8)
    ax.set(xticks=[], yticks=[])

# %%
figure, axes = plt.subplots(figsize=(5.5, 3), layout="constrained")
for name, shares in curves.items():
    axes.plot(np.arange(1, PIECES + 1) * UPDATES // PIECES, shares, marker="o", label=name)
axes.set(xlabel="updates", ylabel=f"solved of {solvable.sum()} unseen mazes", ylim=(0, 1))
axes.legend(frameon=False)

# %% [markdown]
# At so small a budget domain randomisation is ahead, and ACCEL has made more steps for as many updates: it also looks at mazes that it does
# not learn from. How far they grow in a longer run, on ten methods and the published hold-outs: [the study](https://github.com/jaxrl/jaxrl/blob/main/experiments/mazes/README.md).

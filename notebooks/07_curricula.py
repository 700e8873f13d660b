# %% [markdown]
# # Curricula: which mazes teach most?
#
# A level is just parameters, so a curriculum is a function that chooses them. Here three of four mazes that chance draws have
# no way to the goal: a student that is given them learns nothing from most of its steps. Sampling for learnability (SFL; Rutherford
# et al. 2024) lets the student try many mazes without learning and keeps those that it solves sometimes, neither always nor never.

# %% tags=["parameters"]
UPDATES = 150
PIECES = 5  # evaluations on the way
SEEDS = 4
LEVELS = 2_000  # that SFL looks at in a refresh

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import dr, sfl
from jaxrl.curriculum import attach
from jaxrl.envs.grid.maze import kit

task, params = jaxrl.make("Maze-v0", height=9, width=9)
params = params.replace(walls=jnp.int32(60))
env = task.as_levels()  # the same task, its params are one maze
drawn = jax.vmap(task.generate, (0, None))(jax.random.split(jax.random.key(99), 1_000), params)
solvable = np.asarray(jax.vmap(kit.is_solvable)(drawn))
print(f"{solvable.mean():.0%} of the mazes can be solved; here are sixteen")

figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
axes.imshow(kit.draw_levels(jax.tree.map(lambda x: x[:16], drawn)))
axes.set_axis_off()

# %% [markdown]
# The student, and two curricula around it: domain randomisation, which takes mazes as they come, and SFL. What `attach` returns is an
# algorithm again.

# %%
slots = jaxrl.vectorize(env, 32, batched_params=True)
student = ppo.make(slots, ppo.Config(num_envs=32, num_steps=64, num_epochs=2, num_minibatches=2, hidden=(64, 64)))
look = sfl.Config(buffer_size=128, num_levels=LEVELS, num_steps=200, chunk=500, refresh_every=25)
algos = {"DR": attach(student, dr.make(task.generate)), "SFL": attach(student, sfl.make(task.generate, look))}
hyper = ppo.Hyper(learning_rate=1e-3, gamma=0.98)

# %% [markdown]
# Both are judged by what their students never learned from: 128 other mazes of the same distribution, each with a way to its goal.

# %%
unseen = jax.tree.map(lambda x: x[solvable][:128], drawn)


def train(algo):
    """A function: some updates, and the share of unseen mazes that the student then solves."""

    @jax.jit
    def piece(state, key):
        state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, None, UPDATES // PIECES)
        policy = algo.policy(state)

        def solved(level, key):
            stats = jaxrl.evaluate(algo, policy, key, env, level, num_episodes=1, max_steps=100, greedy=False)
            return stats.returns[0] > 0

        keys = jax.random.split(key, len(jax.tree.leaves(unseen)[0]))
        return state, jax.vmap(solved)(unseen, keys).mean()

    return piece


# One seed after another: a vmap over seeds would have SFL look at its mazes in every update, as both sides of a branch are
# then computed.
curves, states = {}, {}
for name, algo in algos.items():
    piece, init = train(algo), jax.jit(algo.init)
    curves[name], seconds = np.zeros((SEEDS, PIECES)), []
    for seed in range(SEEDS):
        state = init(jax.random.key(seed), algo.hyper(**vars(hyper)), params)
        began = time.perf_counter()
        for i in range(PIECES):
            state, share = piece(state, jax.random.key(100 + i))
            curves[name][seed, i] = share
        seconds.append(time.perf_counter() - began)
    states[name] = state
    shares = ", ".join(f"{x:.2f}" for x in sorted(curves[name][:, -1]))
    print(f"{name:3}: solved of unseen mazes, by seed: {shares}; {min(seconds):.0f} s a seed")

# %%
figure, axes = plt.subplots(figsize=(5.5, 3), layout="constrained")
at = np.arange(1, PIECES + 1) * UPDATES // PIECES
for color, (name, shares) in zip(("tab:gray", "tab:blue"), curves.items(), strict=True):
    axes.plot(at, shares.T, color=color, alpha=0.3, linewidth=0.8)
    axes.plot(at, shares.mean(0), color=color, marker="o", label=name)
axes.set(xlabel="updates of the student", ylabel="solved of unseen mazes", ylim=(0, 1))
axes.legend(frameon=False)
axes.grid(alpha=0.25)

# %% [markdown]
# After as many updates every student of SFL solves more than any of domain randomisation. It is not free: SFL's looks are
# steps from which nobody learns, many more than the student's own, and the seconds above are what they cost.
#
# The sixteen mazes that SFL found most learnable at the end of the last seed:

# %%
learnable = jax.tree.map(lambda x: x[:16], states["SFL"].curriculum.levels)
figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
axes.imshow(kit.draw_levels(learnable))
axes.set_axis_off()

# %% [markdown]
# Where most levels teach something, curricula gain little or nothing: ten methods, published hold-outs, longer runs in
# [the study](https://github.com/jaxrl/jaxrl/blob/main/experiments/mazes/README.md).

# %% [markdown]
# # Curricula: which levels teach most?
#
# A level is just parameters, so a curriculum is a function that chooses them. It pays where most levels that chance draws are
# useless, of which here are two examples: mazes without a way to the goal, and cars too weak for their valley.
#
# ## Mazes
#
# Three of four of these mazes have no way to the goal: a student that is given them learns nothing from most of its steps. Sampling
# for learnability (SFL; Rutherford et al. 2024) lets the student try many mazes without learning and keeps those that it solves
# sometimes, neither always nor never.

# %% tags=["parameters"]
UPDATES = 150
PIECES = 5  # evaluations on the way
SEEDS = 4
LEVELS = 2_000  # that SFL looks at in a refresh
CAR_UPDATES = 125
CAR_SEEDS = 8
CARS = 500  # that students are judged on

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
# ## Cars, and every step counts
#
# `MountainCar-v0` with any force and gravity of a box. A car counts as one that can arrive if, from rest at the bottom, one of two
# simple drivers brings it there, who push to the right throughout or along the velocity: one of four.

# %%
import dataclasses

from jaxrl.algos.curricula import alp_gmm
from jaxrl.envs.classic import mountain_car
from jaxrl.host.statistics import told
from jaxrl.wrappers.base import Wrapper

mountain, car_params = jaxrl.make("MountainCar-v0")
LOW, HIGH = jnp.log(jnp.array([[2e-5, 5e-4], [3e-3, 2.5e-2]]))  # force, gravity


@dataclasses.dataclass(frozen=True)
class Flag(Wrapper):
    """1 for arriving at once, 0.1 for arriving with the last step, else 0."""

    def transition(self, key, state, action, params):
        moved = self.env.transition(key, state, action, params)
        reward = jnp.where(moved.terminated, 1 - 0.9 * (state.time + 1) / params.max_steps, 0.0)
        return moved._replace(reward=reward)


def car_at(params, x):
    """The level at a point of the unit box."""
    force, gravity = jnp.exp(LOW + x * (HIGH - LOW))
    return params.replace(force=force, gravity=gravity)


def arrives(level):
    def along(follow):
        def step(car, _):
            push = jnp.where(follow & (car.velocity < 0), -level.force, level.force)
            car = mountain_car.dynamics(car, push, level)
            return car, mountain_car.at_goal(car, level)

        bottom = mountain_car.State(jnp.int32(0), jnp.float32(-jnp.pi / 6), jnp.float32(0))
        return jax.lax.scan(step, bottom, None, 200)[1].any()

    return along(jnp.bool_(False)) | along(jnp.bool_(True))


points = jax.random.uniform(jax.random.key(3), (20 * CARS, 2))
cars = jax.vmap(car_at, (None, 0))(car_params, points)
can = np.asarray(jax.jit(jax.vmap(arrives))(cars))
judged = jax.tree.map(lambda x: x[can][:CARS], cars)
print(f"{can.mean():.0%} of the cars can arrive")

# %% [markdown]
# ALP-GMM (Portelas et al. 2019) is told nothing of that. It fits a mixture of Gaussians to where the student's return changed
# most. Its students are judged beside those of domain randomisation on cars that can arrive: on all, and on the tenth where the same
# student did worst. This tenth is chosen by one evaluation and judged by another, as else chance would choose it.

# %%
driver = ppo.make(
    jaxrl.vectorize(Flag(mountain), 32, batched_params=True),
    ppo.Config(num_envs=32, num_steps=100, num_epochs=2, num_minibatches=2, hidden=(32, 32), normalize_obs=True),
)
driving = ppo.Hyper(learning_rate=2e-3, gamma=0.99, ent_coef=0.01)
curricula = {
    "DR": dr.make(lambda key, params: car_at(params, jax.random.uniform(key, (2,)))),
    "ALP-GMM": alp_gmm.make(car_at, alp_gmm.Config(2, history=1000), alp_gmm.Hyper(return_low=0.0, return_high=1.0)),
}


def drive(curriculum):
    """A function: key -> (arrivals on all cars, in the worst tenth, what the curriculum knows at the end)."""
    algo = attach(driver, curriculum)

    def run(key):
        state = algo.init(key, algo.hyper(**vars(driving)), car_params)
        state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, None, CAR_UPDATES)
        policy = algo.policy(state)

        def arrived(key):
            def one(level, key):
                stats = jaxrl.evaluate(driver, policy, key, None, level, num_episodes=3, greedy=False)
                return (stats.returns > 0).mean()

            return jax.vmap(one)(judged, jax.random.split(key, CARS))

        first, second = map(arrived, jax.random.split(jax.random.fold_in(key, 1)))
        return second.mean(), second[jnp.argsort(first)][: CARS // 10].mean(), state.curriculum

    return jax.jit(run)


mean, worst = {}, {}
for name, curriculum in curricula.items():
    run, began = drive(curriculum), time.perf_counter()
    found = [run(jax.random.key(seed)) for seed in range(CAR_SEEDS)]
    mean[name], worst[name] = np.array([x[:2] for x in found]).T
    seconds = time.perf_counter() - began
    print(f"{name:7}: {mean[name].mean():.2f} of all, {worst[name].mean():.2f} of the worst tenth; {seconds:.0f} s")
for what, by_seed in (("of all", mean), ("of the worst tenth", worst)):
    print(f"ALP-GMM less DR, {what}: {told(by_seed['ALP-GMM'] - by_seed['DR'], '+.2f', np.mean)}")
teacher = found[-1][-1]  # ALP-GMM's, of the last seed

# %%
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), layout="constrained")
axes[0].scatter(*points[~can][:1000].T, s=3, color="tab:gray", alpha=0.4)
axes[0].scatter(*points[can][:300].T, s=5, color="tab:green")
axes[0].set(title="cars that can arrive, green", xlabel="log force", ylabel="log gravity")
axes[1].scatter(*teacher.history.rows[:, :2].T, s=3, color="tab:blue")
axes[1].set(title="the last 1,000 of ALP-GMM", xlabel="log force")
for seed in range(CAR_SEEDS):
    axes[2].plot(
        ["DR", "ALP-GMM"], [worst["DR"][seed], worst["ALP-GMM"][seed]], color="tab:blue", marker="o", alpha=0.5
    )
axes[2].set(title="worst tenth, by seed", ylabel="arrived", ylim=(0, 1))
axes[2].margins(x=0.2)
for axis in axes[:2]:
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])

# %% [markdown]
# Neither makes other steps than those that its student learns from, as many for both. ALP-GMM trains on the cars between those that
# arrive anyway and those that cannot, which is where the worst tenth is.
#
# %% [markdown]
# Where most levels are useless: [more methods, more seeds, intervals, and where it does not
# pay](https://github.com/jaxrl/jaxrl/blob/main/experiments/useful_levels/README.md). Where most levels teach something, curricula
# gain little or nothing: ten methods, published hold-outs, longer runs in
# [the study](https://github.com/jaxrl/jaxrl/blob/main/experiments/mazes/README.md). Which to choose for your task:
# [the guide](https://github.com/jaxrl/jaxrl/blob/main/docs/curricula.md).

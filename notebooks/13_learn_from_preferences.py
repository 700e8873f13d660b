# %% [markdown]
# # Learn from preferences
#
# Nobody can say what a swing-up is worth in numbers, but of two short films everybody can say which is the better one. A model of
# the reward is fitted to such answers, and PPO learns from the model alone: how many answers does it need? Then
# without any reward: a policy that plays against itself, where "better" is no number at all.

# %% tags=["parameters"]
TOTAL_STEPS = 200_000  # of each policy
PAIRS = (5, 20, 80, 320)  # answers

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl import actors, registry
from jaxrl.algos import ppo, spo
from jaxrl.data import preferences, reward_models
from jaxrl.host.data import recording
from jaxrl.wrappers import LearnedReward

env, params = jaxrl.make("Pendulum-v1")

# %% [markdown]
# ## What is asked
#
# 20,000 steps of random actions are cut into segments of ten steps, half a second. Two of them are a question. The answers here are
# those of somebody who errs: with the chance of Bradley and Terry, who tells clear cases nearly always and close ones by a coin.

# %%
LENGTH = 10
record = jax.jit(lambda key: recording.recorded(env, params, recording.at_random(env, params), key, 100, 200))
steps = jax.tree.map(np.asarray, record(jax.random.key(0)))


def answered(n, seed=0):
    """n questions and their answers, the probability that the second segment is the better one."""
    asked = preferences.uniform_queries(np.random.default_rng(seed), steps, n, LENGTH)
    score = preferences.scores(steps, asked, LENGTH)
    label = preferences.labels(jax.random.key(seed), jnp.asarray(score), preferences.Teacher(temperature=5.0))
    return preferences.Preferences(steps, asked, np.asarray(label), LENGTH)


ten = answered(10)
for first, label in zip(ten.first, ten.label, strict=True):
    returns = [steps.reward[row : row + LENGTH].sum() for row in first]
    print(f"returns {returns[0]:7.1f} and {returns[1]:7.1f}: the {'second' if label else 'first'} is better")

# %% [markdown]
# ## A model of the reward
#
# A network is fitted so that the segment with the larger sum of its rewards is the one that was preferred. What did it make of how many
# answers? Its reward, without an action, by the pendulum's angle and speed; upright is in the middle.

# %%
CONFIG = reward_models.Config(hidden=(64, 64), num_members=3)
HYPER = reward_models.Hyper(learning_rate=1e-3)
spaces = env.observation_space(params), env.action_space(params)
models = [reward_models.fit(jax.random.key(0), answered(n), *spaces, CONFIG, HYPER)[0] for n in PAIRS]

angle, speed = np.meshgrid(np.linspace(-np.pi, np.pi, 61), np.linspace(-8, 8, 61))
seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed], -1)
learned = [reward_models.reward_of(model, seen, jnp.zeros((61, 61, 1))) for model in models]
true = -(angle**2) - 0.1 * speed**2

figure, axes = plt.subplots(1, len(PAIRS) + 1, figsize=(12, 2.8), layout="constrained", sharey=True)
titles = [f"{n} answers" for n in PAIRS] + ["the task's reward"]
for ax, reward, title in zip(axes, [*learned, true], titles, strict=True):
    ax.imshow(reward, origin="lower", extent=(-np.pi, np.pi, -8, 8), aspect="auto")
    ax.set(title=title, xlabel="angle [rad]")
axes[0].set_ylabel("speed [rad/s]")
plt.show()

# %% [markdown]
# ## PPO learns from the model
#
# `LearnedReward` pays what the model says. Its weights are a leaf of `params`, so all models train in one program, three seeds each. They
# never see the task's reward; we do.

# %%
task = LearnedReward(env, reward_models.reward_of)
tuned = registry.settings("ppo", "Pendulum-v1")
algo, hyper = ppo.make(task, ppo.Config(**tuned.config)), ppo.Hyper(**tuned.hyper)
ROUNDS = 10


def returns_while_training(key, model):
    """The task's own return, 32 episodes, after each tenth of the training: (ROUNDS,)."""
    init_key, eval_key = jax.random.split(key)
    state = algo.init(init_key, hyper, task.on(params, model))

    def tenth(state, key):
        state, _ = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, None, updates)
        return state, jaxrl.evaluate(algo, algo.policy(state), key, env, params, num_episodes=32).returns.mean()

    updates = TOTAL_STEPS // ROUNDS // algo.steps_per_update
    return jax.lax.scan(tenth, state, jax.random.split(eval_key, ROUNDS))[1]


stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
keys = jax.random.split(jax.random.key(0), 3)
program = jax.jit(jax.vmap(jax.vmap(returns_while_training, (0, None)), (None, 0)))
returns = np.asarray(program(keys, stacked))  # (models, seeds, ROUNDS)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for n, row in zip(PAIRS, returns, strict=True):
    axes.plot(np.linspace(TOTAL_STEPS / ROUNDS, TOTAL_STEPS, ROUNDS), row.mean(0), label=f"{n} answers")
axes.axhline(-159, color="grey", linewidth=0.8)  # PPO on the task's own reward
axes.set(xlabel="environment steps", ylabel="the task's return")
axes.legend()
plt.show()
for n, row in zip(PAIRS, returns, strict=True):
    print(f"{n:4} answers: {row[:, -1].mean():7.0f}, each seed {row[:, -1].round().astype(int)}")

# %% [markdown]
# The grey line is PPO on the task's own reward. Five answers mislead, twenty are about enough; that 320 do no better than 80 is of one draw
# of questions, some of which were answered wrongly.
#
# ## No reward at all
#
# Self-play preference optimisation (SPO) fits no model. The reward of an episode is how many of the policy's own last eight episodes it is
# preferred to. What is compared need not be a number: here an episode is told by how long it lasted and by where its cart was, and
# of two episodes that are about as long the one further to the left wins. CartPole's own reward is never used.

# %%
cart, cart_params = jaxrl.make("CartPole-v1")


def told(obs, action, reward):
    """Of a step: one for being there, and the place of the cart [m]."""
    return jnp.stack([jnp.ones(obs.shape[:-1]), obs[..., 0]], -1)


def further_left(outcome, other, hyper):
    length, x = outcome[..., 0], outcome[..., 1] / jnp.maximum(outcome[..., 0], 1)
    other_length, other_x = other[..., 0], other[..., 1] / jnp.maximum(other[..., 0], 1)
    close = jnp.abs(length - other_length) <= 25
    return jnp.where(close, x < other_x, length > other_length).astype(jnp.float32)


def trained(**how):
    algo = spo.make(cart, spo.Config(), **how)
    hyper = spo.Hyper(anneal_steps=5 * TOTAL_STEPS)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 5 * TOTAL_STEPS, hyper, cart_params))(jax.random.key(0))
    return algo, algo.policy(state)


def places(algo, policy):
    """Where the cart is at each step of 100 episodes [m]."""
    seen = recording.recorded(cart, cart_params, actors.of_policy(algo, policy, True), jax.random.key(1), 100, 500)
    return np.asarray(seen.obs)[:, 0], np.asarray(seen.last).reshape(100, 500).argmax(1).mean() + 1


figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, how in {"the longer": {}, "the further left": dict(features=told, prefers=further_left)}.items():
    x, length = places(*trained(**how))
    print(f"preferred is {name}: episodes of {length:.0f} steps, the cart at {x.mean():.2f} m")
    axes.hist(x, bins=60, range=(-2.4, 2.4), density=True, alpha=0.6, label=name)
axes.set(xlabel="place of the cart [m]", ylabel="share of the time")
axes.legend(title="preferred is")
plt.show()

# %% [markdown]
# [Learning from preferences](https://github.com/jaxrl/jaxrl/blob/main/docs/algos/preferences.md) has the rest: files of answers, what regret says
# that return does not, and learners that need no reward and never act (`cpl`, `p_iql`, `oppo`).
# From a shell: `jaxrl dataset preferences pendulum.npz --pairs 320 --length 10 --noise logistic --out preferences.npz`.

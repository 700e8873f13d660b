# %% [markdown]
# # An agent that remembers
#
# A corridor with a T at its end. The first cell shows which way to turn, and no later one does: who forgets can only guess, for a
# mean return of 0.5. Recurrent PPO with three memories, what they hold on the way, and corridors longer than those of training.

# %% tags=["parameters"]
TOTAL_STEPS = 300_000  # of each seed
SEEDS = 3

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.wrappers import PreviousActionReward

corridor, params = jaxrl.make("TMazePassive-v0")
env = PreviousActionReward(corridor)  # what was done is not in the observation: a recurrent agent is told
print("the best return:", corridor.optimal_value(params))

# %% [markdown]
# A memory is chosen by name. `frames` has no memory but the last four observations, `gru` is a gated recurrent unit, `s5` a
# state-space model, which an accelerator computes in parallel over a sequence. All else is the same, so what differs is the memory.

# %%
hyper = ppo_rnn.Hyper(learning_rate=1e-3, anneal_steps=TOTAL_STEPS, ent_coef=0.05)


def agent(name):
    config = ppo_rnn.Config(num_envs=32, num_steps=22, rnn=name, window=3, shared=True)
    return ppo_rnn.make(env, config)


def train_and_test(name):
    """Mean return of each seed's final policy, and the curve of its training."""
    algo = agent(name)

    def run(key):
        state, metrics = jaxrl.train(algo, key, TOTAL_STEPS, hyper, params)
        return algo.policy(state), metrics["episode_return"]

    policies, curves = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), SEEDS))
    score = jax.jit(jax.vmap(lambda policy, key: jaxrl.evaluate(algo, policy, key, num_episodes=128).returns.mean()))
    return policies, curves, score(policies, jax.random.split(jax.random.key(1), SEEDS))


found = {name: train_and_test(name) for name in ("frames", "gru", "s5")}
for name, (_, _, scores) in found.items():
    print(f"{name:8}", np.round(scores, 2))

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, (_, curves, _) in found.items():
    pieces = np.array_split(np.asarray(curves), min(60, curves.shape[1]), 1)
    mean = [np.nanmean(piece) if np.isfinite(piece).any() else np.nan for piece in pieces]
    axes.plot(np.linspace(0, TOTAL_STEPS, len(mean)), mean, label=name)
axes.axhline(0.5, color="grey", linewidth=0.8)
axes.set(xlabel="environment steps of a seed", ylabel="return while training")
axes.legend()
plt.show()

# %% [markdown]
# Frames stay at the guess. What do the others hold on the way? Two episodes, one for each cue, with the same policy: how far apart are the two
# memories, step by step? The observations are the same from the second step on, so what differs is what is remembered.


# %%
def memories(name, seed=0):
    """The hidden state after each step down the corridor, one row a cue: (2, T, numbers)."""
    algo, policy = agent(name), jax.tree.map(lambda x: x[seed], found[name][0])
    keys = jax.random.split(jax.random.key(0), 64)
    obs, state = jax.vmap(env.reset, (0, None))(keys, params)
    cue = state.env.goal
    chosen = jnp.array([jnp.argmax(cue == -1), jnp.argmax(cue == 1)])
    obs, state = jax.tree.map(lambda x: x[chosen], (obs, state))

    def step(before, _):
        obs, state, carry = before
        action, carry = algo.act(policy, jax.random.key(0), obs, carry, greedy=True)
        after = jax.vmap(env.step, (None, 0, 0, None))(jax.random.key(0), state, action, params)
        held = jnp.concatenate([x.reshape(2, -1) for x in jax.tree.leaves(carry.hidden)], 1)
        return (after.obs, after.state, carry), held

    _, held = jax.lax.scan(step, (obs, state, algo.initial_carry((2,))), None, 10)
    return jnp.swapaxes(held, 0, 1)


figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name in found:
    up, down = memories(name)
    axes.plot(range(1, 11), jnp.linalg.norm(up - down, axis=-1), marker="o", label=name)
axes.set(xlabel="step", ylabel="distance of the two memories")
axes.legend()
plt.show()

# %% [markdown]
# Four frames are the present one and the three that are carried along, so the cue is soon gone. The other memories keep it. A length
# is a leaf of `params`, so the policies are tried in longer corridors by a `vmap`.

# %%
LONGER = jnp.array([10, 12, 15, 20, 30, 40])


def success(name):
    algo = agent(name)

    def at(policy, length):
        longer = params.replace(length=length)
        result = jaxrl.evaluate(
            algo, policy, jax.random.key(2), env, longer, num_episodes=64, max_steps=50, greedy=True
        )
        return (result.returns > 0.5).mean()

    return jax.jit(jax.vmap(lambda policy: jax.vmap(lambda length: at(policy, length))(LONGER)))(found[name][0])


figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name in found:
    axes.plot(LONGER, success(name).mean(0), marker="o", label=name)
axes.axhline(0.5, color="grey", linewidth=0.8)
axes.set(xlabel="cells of the corridor; trained with 10", ylabel="share that reaches the goal")
axes.legend()
plt.show()

# %% [markdown]
# The GRU's answer is right in corridors of any of these lengths, S5's is not. Both were asked after ten cells alone in training;
# `jaxrl.vectorize(env, 32, level_fn=...)` would draw another corridor for each episode.
#
# [Memory](https://github.com/jaxrl/jaxrl/blob/main/docs/memory.md) has all cells and what goes wrong with resets;
# [tasks that need memory](https://github.com/jaxrl/jaxrl/blob/main/docs/envs/memory.md) has 44 ids, with the best returns.
# From a shell: `jaxrl train ppo_rnn TMazePassive-v0 --config.rnn s5`.

# %% [markdown]
# # From Gymnasium, gymnax or Brax to here, and back
#
# Our environments are Gymnasium's, gymnax's or Brax's where you need them to be; theirs are ours.

# %% tags=["parameters"]
TOTAL_STEPS = 100_000

# %%
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo

env, params = jaxrl.make("CartPole-v1")

# %% [markdown]
# ## Coming from gymnax
#
# `reset` and `step` look alike. Two differences: `step` does **not** reset (the vectorised environment does), and `done` is two flags.

# %%
obs, state = env.reset(jax.random.key(0), params)
obs, state, reward, terminated, truncated, info = env.step(jax.random.key(1), state, jnp.int32(1), params)

venv = jaxrl.vectorize(env, 8)  # resets, and keeps the observation before a reset in info["final_obs"]
obs, vstate = venv.reset(jax.random.key(0), params)
ts = venv.step(jax.random.key(1), vstate, jnp.zeros(8, jnp.int32), params)
print(ts.obs.shape, sorted(ts.info))

# %% [markdown]
# A training script that was written for gymnax takes ours:

# %%
from jaxrl.interop.gymnax import to_gymnax

theirs = to_gymnax(env, api="1.0")
obs, state = theirs.reset(jax.random.key(0), params)
obs, state, reward, terminated, truncated, info = theirs.step(jax.random.key(1), state, 1, params)
print(theirs.name, obs.round(3))

# %% [markdown]
# ## Coming from Gymnasium
#
# One environment, and a vector of them, as Gymnasium's agents expect them, with the checks of Gymnasium itself (which warn of
# observations without a bound, as a cart's speed is):

# %%
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("gymnasium") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "gymnasium"], check=True)

from gymnasium.utils.env_checker import check_env

from jaxrl.interop.gymnasium import to_gymnasium, to_gymnasium_vector

single = to_gymnasium(env, seed=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    check_env(single, skip_render_check=True)
obs, info = single.reset()
obs, reward, terminated, truncated, info = single.step(single.action_space.sample())

batch = to_gymnasium_vector(env, 64, seed=0)
obs, info = batch.reset()
total = np.zeros(64)
for _ in range(100):
    obs, reward, terminated, truncated, info = batch.step(batch.action_space.sample())
    total += reward
print("64 environments, 100 steps of Gymnasium's vector API, mean reward", total.mean())

# %% [markdown]
# ## Coming from Brax
#
# Brax's environments are pure functions, too; here they get true resets, and an end that is apart from a cut.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of brax's own imports
    from jaxrl.interop.brax import from_brax, to_brax

pendulum, pendulum_params = jaxrl.make("Pendulum-v1")
as_brax = to_brax(pendulum)
brax_state = jax.jit(as_brax.reset)(jax.random.key(0))
brax_state = jax.jit(as_brax.step)(brax_state, jnp.zeros(1))
print("as Brax:", brax_state.obs.shape, float(brax_state.reward))

back, back_params = from_brax(as_brax)
print("and back:", back.observation_space(back_params), back.action_space(back_params))

# %% [markdown]
# What came in is trained as any other. The pendulum that went out and came back, by PPO:

# %%
config = ppo.Config(
    num_envs=32, num_steps=64, num_epochs=5, num_minibatches=16, normalize_obs=True, normalize_reward=True
)
algo = ppo.make(back, config)
hyper = ppo.Hyper(learning_rate=1e-3, gamma=0.95, ent_coef=0.0, anneal_steps=TOTAL_STEPS)
state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, TOTAL_STEPS, hyper, back_params))(jax.random.key(0))
returns = np.asarray(metrics["episode_return"])
print("return of the first and the last episodes:", returns[~np.isnan(returns)][[0, -1]].round())

# %% [markdown]
# `jaxrl.interop` also has Stable-Baselines3 (`to_sb3`) and MuJoCo Playground (`from_playground`). Agents of SBX, rejax, Brax and
# purejaxrl's kind were trained on our environments through these, with the figures in
# [the guide](https://github.com/jaxrl/jaxrl/blob/main/docs/core.md#interop).

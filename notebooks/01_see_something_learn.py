# %% [markdown]
# # See something learn
#
# A pole on a cart, 250,000 steps of PPO, four seeds at once: the curve while it grows, and what came of it. Half a minute on two
# CPU cores, most of it compiling.

# %% tags=["parameters"]
TOTAL_STEPS = 250_000  # of each seed

# %%
import jax
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.render import film
from jaxrl.host.run.live import LiveCurve

env, params = jaxrl.make("CartPole-v1")
print(env.observation_space(params))
print(env.action_space(params))

# %% [markdown]
# An environment is static; its numbers are `params`, arrays that you may change, batch or differentiate by. An algorithm is a few
# pure functions. Before it has learned anything:

# %%
algo = ppo.make(env, ppo.Config(num_envs=8, num_steps=64))
hyper = ppo.Hyper(learning_rate=1e-3, anneal_steps=TOTAL_STEPS)
untrained = algo.init(jax.random.key(0), hyper, params)

film(algo, algo.policy(untrained), jax.random.key(1))

# %% [markdown]
# `fit` trains and shows how it goes; `on_progress` is called after each compiled piece of the run.

# %%
result = jaxrl.fit(
    algo, jax.random.key(0), TOTAL_STEPS, hyper=hyper, num_seeds=4, on_progress=LiveCurve(), progress=False
)

# %%
returns = result.metrics["episode_return"][-10:]  # of the last updates; NaN where no episode ended
print("mean return of each seed's last episodes:", np.nanmean(returns, 0).round(1))

# %% [markdown]
# The same pole, after training (the first of the four policies):

# %%
policy = jax.tree.map(lambda x: x[0], algo.policy(result.state))

film(algo, policy, jax.random.key(1))

# %% [markdown]
# How good is it really? Full episodes of the finished policy, one a slot:

# %%
scores = jaxrl.evaluate(algo, policy, jax.random.key(2), num_episodes=128)
print(f"mean {scores.returns.mean():.1f} of at most 500, worst {scores.returns.min():.0f}")

# %% [markdown]
# Another task is another id: `jaxrl.list_envs("MinAtar")` finds some, and every algorithm of
# [the list](https://github.com/jaxrl/jaxrl/blob/main/docs/algos/index.md) is trained by the same three lines. From a shell:
# `jaxrl train ppo CartPole-v1 --seeds 4 --video`.

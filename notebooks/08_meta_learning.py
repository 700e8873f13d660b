# %% [markdown]
# # Meta-learning: an agent that learns by a learned rule
#
# How an agent learns is a function: from what it saw to what it should do more of. A2C is one that people wrote; LPG is one that was
# itself learned, by gradients through the lives of many agents. One ships with the library.

# %% tags=["parameters"]
UPDATES = 100  # of an agent's life
LEVELS = 32
META_UPDATES = 40

# %%
import dataclasses

import jax
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos.curricula import dr
from jaxrl.algos.meta import lpg, policy_gradients
from jaxrl.host.run.live import LiveCurve
from jaxrl.meta import AgentConfig, AgentHyper, agent
from jaxrl.meta.lifetimes import MetaConfig, MetaHyper, learner

env, distribution = jaxrl.make("GridWorld-small-v0", observation="index")
levels = jax.vmap(env.generate, (0, None))(jax.random.split(jax.random.key(7), LEVELS), distribution)

# %% [markdown]
# An agent by a learned rule, in two lines, on a level of your own:

# %%
learned = lpg.load("lpg-cpu-1")
algo = learned.agent(env)

print({k: v for k, v in learned.provenance.items() if isinstance(v, str | int | float)})

# %% [markdown]
# On levels that the rule never saw, beside A2C with the same networks: an agent a level, all at once.


# %%
def lives(algo):
    """Returns of the episodes that ended in each update, (levels, updates)."""

    def one(level, key):
        hyper = AgentHyper(learning_rate=40.0, critic_learning_rate=4.0, lifetime=UPDATES)
        hyper = dataclasses.replace(hyper, rule=algo.hyper().rule)
        return jaxrl.train(algo, key, UPDATES * algo.steps_per_update, hyper, level)[1]["episode_return"]

    return np.asarray(jax.jit(jax.vmap(one))(levels, jax.random.split(jax.random.key(8), LEVELS)))


returns = {"LPG, learned": lives(algo), "A2C": lives(agent(policy_gradients.a2c_rule(), env))}

# %%
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, curves in returns.items():
    axes.plot(np.nanmean(curves, 0), label=f"{name}: {np.nanmean(curves[:, -5:]):.2f} at the end")
axes.set(xlabel="updates of an agent's life", ylabel="return of episodes", title=f"{LEVELS} levels of GridWorld-small")
axes.legend(frameon=False)

# %% [markdown]
# ## How the rule was trained
#
# `learner` is an algorithm whose update is a meta-update: agents, each on a level of its own, make five updates by the rule, act, and
# the rule moves so that they would have acted better. Here is the start of such a training, smaller than the one that shipped
# (3,000 meta-updates of 32 agents, half an hour on two cores).

# %%
small = AgentConfig(num_envs=16, num_steps=20)
network = lpg.RuleConfig(features=8, predictions=4)
meta = learner(
    lpg.rule(network), env, dr.make(env.generate), MetaConfig(num_agents=16, remat=False), small,
    lifetime_fn=lambda key, level: jax.random.randint(key, (), 10, 40),
)  # fmt: skip

trained = jaxrl.fit(
    meta, jax.random.key(0), META_UPDATES, hyper=MetaHyper(learning_rate=3e-3), env_params=distribution,
    on_progress=LiveCurve("final_return"), progress=False,
)  # fmt: skip

# %%
lpg.save("mine.npz", network, trained.state.weights, {"command": "notebook 8"})
mine = lpg.load("mine.npz")
print("a rule of", sum(x.size for x in jax.tree.leaves(trained.state.weights)), "numbers; the agent by it:")
print(mine.agent(jaxrl.make("CartPole-v1")[0], small).name, "on CartPole-v1")

# %% [markdown]
# From a shell: `jaxrl meta-train lpg --tasks GridWorld-small-v0 ...` and `jaxrl meta-test runs/lpg GridWorld-small-v0`. What learned rules are
# worth, in figures: [the page](https://github.com/jaxrl/jaxrl/blob/main/docs/meta.md).

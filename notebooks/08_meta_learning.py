# %% [markdown]
# # Meta-learning: an agent that learns by a learned rule
#
# How an agent learns is a function: from what it saw to what it should do more of. A2C is one that people wrote; LPG is one that was
# itself learned, by gradients through the lives of many agents. Two ship with the library; this is one of them.

# %% tags=["parameters"]
UPDATES = 50  # of an agent's life
LEVELS = 64  # to choose rates on, and as many others to judge on
RATES = ((12.0, 40.0, 120.0, 400.0, 1200.0), (1.2, 4.0, 12.0))  # of the actor, of the critic
META_UPDATES = 40
PUPIL_UPDATES = 300

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos.curricula import dr
from jaxrl.algos.meta import lpg, policy_gradients
from jaxrl.host.run.live import LiveCurve
from jaxrl.meta import AgentConfig, agent
from jaxrl.meta.lifetimes import MetaConfig, MetaHyper, learner

env, distribution = jaxrl.make("GridWorld-small-v0", observation="index")
drawn = jax.vmap(env.generate, (0, None))(jax.random.split(jax.random.key(7), 2 * LEVELS), distribution)
to_choose, to_judge = jax.tree.map(lambda x: x[:LEVELS], drawn), jax.tree.map(lambda x: x[LEVELS:], drawn)

# %% [markdown]
# An agent by a learned rule, in two lines, on a level of your own:

# %%
learned = lpg.load("lpg-cpu-1")
algo = learned.agent(env)

print({k: v for k, v in learned.provenance.items() if isinstance(v, str | int | float)})

# %% [markdown]
# Is it better than A2C with the same networks? Both have two learning rates, so each gets the best of fifteen pairs, chosen on some
# levels and judged on others. The rule saw neither. Each agent starts its life anew on a level of its own, all at once.


# %%
def lives(algo, levels, rates):
    """Returns of the episodes that ended in each update, (levels, updates)."""
    hyper = algo.hyper().replace(learning_rate=rates[0], critic_learning_rate=rates[1], lifetime=UPDATES)

    def one(level, key):
        return jaxrl.train(algo, key, UPDATES * algo.steps_per_update, hyper, level)[1]["episode_return"]

    return jax.vmap(one)(levels, jax.random.split(jax.random.key(8), LEVELS))


pairs = jax.numpy.array([(actor, critic) for actor in RATES[0] for critic in RATES[1]])
returns = {}
for name, rule in {"A2C": agent(policy_gradients.a2c_rule(), env), "LPG, learned": algo}.items():
    some = jax.jit(lambda levels, rates, rule=rule: lives(rule, levels, rates))
    tried = [float(np.nanmean(some(to_choose, rates)[:, -5:])) for rates in pairs]
    best = pairs[int(np.argmax(tried))]
    returns[name] = np.asarray(some(to_judge, best))
    print(f"{name:12}: rates {best[0]:g} and {best[1]:g}; on the other levels {np.nanmean(returns[name][:, -5:]):.3f}")

# %% [markdown]
# The difference, level by level, with a bootstrap interval:

# %%
final = {name: np.nanmean(curves[:, -5:], 1) for name, curves in returns.items()}
difference = final["LPG, learned"] - final["A2C"]
redrawn = np.random.default_rng(0).choice(difference, (10_000, LEVELS))
low, high = np.nanquantile(np.nanmean(redrawn, 1), (0.025, 0.975))
above = "no clear difference" if low < 0 < high else "LPG is above" if low > 0 else "A2C is above"
print(f"LPG minus A2C: {np.nanmean(difference):+.3f} ({low:+.3f} to {high:+.3f}): {above}")

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, curves in returns.items():
    axes.plot(np.nanmean(curves, 0), label=name)
axes.set(xlabel="updates of an agent's life", ylabel="return of episodes", title=f"{LEVELS} levels of GridWorld-small")
axes.legend(frameon=False)
axes.grid(alpha=0.25)

# %% [markdown]
# A tuned A2C leaves little to win on these levels, so a rule that was trained for half an hour does not stand out. What learned
# rules are worth on other tasks and after longer training: [the page](https://github.com/jaxrl/jaxrl/blob/main/docs/meta.md).

# %% [markdown]
# ## Use it on a task of yours
#
# A rule stands where A2C or PPO does. The agent has any networks; here small ones, on a task that the rule never saw. A rule is told
# where the agent is in its life, so say how long that is.

# %%
catch, _ = jaxrl.make("Catch-bsuite")
networks = AgentConfig(num_envs=16, hidden=(32, 32), optimizer="adam")
for name, rule in {"A2C": policy_gradients.a2c_rule(), "LPG, learned": learned.rule}.items():
    pupil = agent(rule, catch, networks)
    result = jaxrl.fit(
        pupil,
        jax.random.key(0),
        PUPIL_UPDATES * pupil.steps_per_update,
        hyper=pupil.hyper().replace(learning_rate=3e-3, critic_learning_rate=3e-3, lifetime=PUPIL_UPDATES),
        progress=False,
    )
    before, after = (float(np.nanmean(x)) for x in np.array_split(result.metrics["episode_return"], 10)[::9])
    print(f"{name:12}: {before:.2f} in the first tenth of its life, {after:.2f} in the last; at most 1")

# %% [markdown]
# The same from a shell, with run folders, seeds, resume and reports as for any other run; `jaxrl zoo` lists the rules, and a file is
# as good as a name:
#
#     jaxrl train a2c Catch-bsuite --rule lpg-cpu-1 --total-steps 100000
#     jaxrl meta-test lpg-cpu-1 GridWorld-mazes-v0 --env.observation index --levels 128 --updates 100 --against a2c ppo
#
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

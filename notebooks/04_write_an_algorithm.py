# %% [markdown]
# # Write your own algorithm
#
# An actor-critic from the parts that PPO is made of, complete, beside PPO. An algorithm is a NamedTuple of pure functions; `fit`,
# sweeps, resume and curricula take it as they take PPO.

# %% tags=["parameters"]
TOTAL_STEPS = 200_000
SEEDS = 4

# %%
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import jaxrl
from jaxrl import pytree
from jaxrl.algorithm import Algorithm, as_vector_env, restarted, starting_values
from jaxrl.algos import ppo
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.networks import MLP
from jaxrl.returns import gae
from jaxrl.rollout import Ends, ends_of
from jaxrl.testing import check_algorithm

# %% [markdown]
# What sets a shape is static (`Config`), what is a number is a leaf (`Hyper`), all that changes is in one state, a pytree.


# %%
@dataclasses.dataclass(frozen=True)
class Config:
    num_envs: int = 16
    num_steps: int = 16
    hidden: tuple[int, ...] = (64, 64)


@pytree
class Hyper:
    learning_rate: jax.Array = 2e-3
    gamma: jax.Array = 0.99
    gae_lambda: jax.Array = 0.95
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5


@pytree
class LearnerState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: jax.Array  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any
    optimizer: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: jax.Array  # before a restart
    ends: Ends  # where episodes ended, and their returns


# %% [markdown]
# The idea of an algorithm is its loss: a function of plain arrays, which can be read, tested and imported.


# %%
def loss(logits, values, action, advantage, target, hyper):
    """Policy gradient, value error and entropy, of (T, N) steps."""
    pi = Categorical(logits)
    policy_loss = -jnp.mean(pi.log_prob(action) * advantage)
    value_loss = jnp.mean((values - target) ** 2) / 2
    return policy_loss + hyper.vf_coef * value_loss - hyper.ent_coef * jnp.mean(pi.entropy())


# %%
@functools.cache
def make(env, config=Config()):
    venv = as_vector_env(env, config.num_envs)
    actions = venv.env.action_space(venv.env.default_params).n
    actor, critic = MLP(config.hidden, actions, "tanh", out_scale=0.01), MLP(config.hidden, 1, "tanh")
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5))

    def value(weights, obs):
        return critic.apply(weights["critic"], obs)[..., 0]

    def init(key, hyper=None, env_params=None):
        hyper, env_params = starting_values(Hyper, venv, hyper, env_params)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = venv.reset(reset_key, env_params)
        weights = {"actor": actor.init(actor_key, obs), "critic": critic.init(critic_key, obs)}
        return LearnerState(key, hyper, env_params, env_state, obs, jnp.int32(0), weights, optimizer.init(weights))

    def collect(state):
        key, rollout_key = jax.random.split(state.key)

        def step(carry, key):
            obs, env_state = carry
            act_key, env_key = jax.random.split(key)
            action, _ = act(state.weights["actor"], act_key, obs)
            ts = venv.step(env_key, env_state, action, state.env_params)
            flags = ts.terminated, ts.truncated
            return (ts.obs, ts.state), Rollout(obs, action, ts.reward, *flags, ts.info["final_obs"], ends_of(ts))

        keys = jax.random.split(rollout_key, config.num_steps)
        (obs, env_state), rollout = jax.lax.scan(step, (state.obs, state.env_state), keys)
        steps = state.step + config.num_envs * config.num_steps
        return state.replace(key=key, obs=obs, env_state=env_state, step=steps), rollout

    def learn(state, rollout):
        hyper = state.hyper
        values = value(state.weights, rollout.obs)
        following = value(state.weights, rollout.final_obs)
        flags = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, values, following, *flags, hyper.gamma, hyper.gae_lambda)
        target = advantage + values

        def objective(weights):
            logits = actor.apply(weights["actor"], rollout.obs)
            return loss(logits, value(weights, rollout.obs), rollout.action, advantage, target, hyper)

        total, grads = jax.value_and_grad(objective)(state.weights)
        updates, opt_state = optimizer.update(grads, state.optimizer)
        weights = jax.tree.map(lambda w, u: w - hyper.learning_rate * u, state.weights, updates)
        return state.replace(weights=weights, optimizer=opt_state), {"loss": total, **rollout.ends.metrics()}

    def act(policy, key, obs, carry=(), greedy=False):
        pi = Categorical(actor.apply(policy, obs))
        return pi.mode() if greedy else pi.sample(key), carry

    return Algorithm(
        "mine",
        config,
        Hyper,
        venv,
        config.num_envs * config.num_steps,
        init,
        collect,
        learn,
        policy=lambda state: state.weights["actor"],
        initial_carry=lambda batch_shape=(): (),
        act=act,
        restart=functools.partial(restarted, venv),
    )


# %% [markdown]
# The contract of algorithms, on a small environment whose values are known: purity, jit equals no jit, `vmap` over settings,
# a gradient in every group of weights, no compilation on the second call.

# %%
env, params = jaxrl.make("CartPole-v1")
check_algorithm(make(env, Config(num_envs=4, num_steps=8, hidden=(8,))))
print("It keeps the contract.")

# %% [markdown]
# Beside PPO, at its defaults with the same environments, as one program each:


# %%
def curves(algo):
    """Returns of the episodes that ended, (seeds, updates)."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    return np.asarray(jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, TOTAL_STEPS)[1]["episode_return"]))(keys))


found = {"mine": curves(make(env)), "ppo": curves(ppo.make(env, ppo.Config(num_envs=8, num_steps=64)))}

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for color, (name, returns) in zip(("C0", "C1"), found.items(), strict=True):
    steps = np.linspace(0, TOTAL_STEPS, returns.shape[1])
    known = ~np.isnan(returns).all(0)
    axes.plot(steps[known], returns[:, known].T, color=color, alpha=0.25, linewidth=0.7)
    axes.plot(steps[known], np.nanmean(returns[:, known], 0), color=color, label=name)
axes.set(xlabel="environment steps", ylabel="return of episodes", title=f"CartPole-v1, {SEEDS} seeds")
axes.legend(frameon=False)
axes.grid(alpha=0.25)

# %% [markdown]
# As a file, `mine.py`, with `Config`, `Hyper` and `make`, it is trained from a shell: `jaxrl train mine.py CartPole-v1`.

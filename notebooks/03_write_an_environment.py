# %% [markdown]
# # Write your own environment
#
# Two tanks of water, one draining into the other; a pump fills the upper one, and the lower one is to be kept at a level that
# changes from episode to episode. The equations, the class, a check that it keeps the contract, and an agent.

# %% tags=["parameters"]
TOTAL_STEPS = 400_000

# %%
import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos import ppo
from jaxrl.host.run.live import LiveCurve
from jaxrl.spaces import Box
from jaxrl.testing import check_environment

# %% [markdown]
# **Params** are what may change from task to task: every field is an array, a leaf that `vmap` and `grad` see. **State** is what
# changes from step to step. The dynamics are a function that needs no class: Torricelli's law.


# %%
@pytree
class Params:
    max_steps: jax.Array = 200
    dt: jax.Array = 1.0  # s
    pump: jax.Array = 0.04  # m^3/s at full power
    area: jax.Array = 1.0  # m^2, of each tank
    outlet: jax.Array = 0.006  # m^2, of each outlet
    gravity: jax.Array = 9.81  # m/s^2


@pytree
class State:
    time: jax.Array  # steps since reset
    upper: jax.Array  # m
    lower: jax.Array  # m
    target: jax.Array  # m, of the lower tank


def dynamics(state, power, params):
    """Both levels one step later, with the pump at `power` in [0, 1]."""
    flows = [params.outlet * jnp.sqrt(2 * params.gravity * level) for level in (state.upper, state.lower)]
    upper = state.upper + params.dt * (params.pump * power - flows[0]) / params.area
    lower = state.lower + params.dt * (flows[0] - flows[1]) / params.area
    return state.replace(upper=jnp.maximum(upper, 0), lower=jnp.maximum(lower, 0))


@dataclasses.dataclass(frozen=True)
class Tanks(Environment):
    """Keep the lower of two tanks at a level. It ends when one of them runs over, at 3 m."""

    id: str = dataclasses.field(default="Tanks-v0", kw_only=True)
    Params = Params

    def initial(self, key, params):
        upper, lower, target = jax.random.uniform(key, (3,), minval=0.3, maxval=1.7)
        return State(jnp.int32(0), upper, lower, target)

    def transition(self, key, state, action, params):
        state = dynamics(state, jnp.clip((action[0] + 1) / 2, 0, 1), params)
        reward = -jnp.abs(state.lower - state.target)
        over = jnp.maximum(state.upper, state.lower) > 3
        return Transition(state, reward, over, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([state.upper, state.lower, state.target, state.target - state.lower])

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (4,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (1,))

    def validate(self, params):
        if not np.all(np.asarray(params.area) > 0):
            raise ValueError(f"Tanks: area={params.area} must be positive.")


# %% [markdown]
# The contract: spaces, clock, batches, `vmap`, `scan`, float64, determinism, keys used once, finite derivatives, one compilation.
# A mistake is named.

# %%
env = Tanks()
check_environment(env)
print("Tanks keeps the contract.")

# %% [markdown]
# Registered, it is an environment as any other, for every algorithm and every command.

# %%
jaxrl.register("Tanks-v0", Tanks)
env, params = jaxrl.make("Tanks-v0")
config = ppo.Config(num_envs=32, num_steps=64, normalize_obs=True, normalize_reward=True, clip_value=False)
algo = ppo.make(env, config)
hyper = ppo.Hyper(learning_rate=1e-3, anneal_steps=TOTAL_STEPS, ent_coef=0.0)
result = jaxrl.fit(algo, jax.random.key(0), TOTAL_STEPS, hyper=hyper, on_progress=LiveCurve(), progress=False)

# %% [markdown]
# What does it do? One episode, beside a pump at the constant power that would hold the level.


# %%
def episode(act, key):
    """Levels of both tanks over an episode, (T,) each, of `act(obs, state)`."""
    reset_key, key = jax.random.split(key)
    obs, state = env.reset(reset_key, params)

    def step(carry, key):
        obs, state = carry
        ts = env.step(key, state, act(obs, state), params)
        return (ts.obs, ts.state), ts.state

    return jax.lax.scan(step, (obs, state), jax.random.split(key, 200))[1]


def constant(obs, state):
    power = params.outlet * jnp.sqrt(2 * params.gravity * state.target) / params.pump
    return jnp.stack([2 * power - 1])


policy = algo.policy(result.state)
learned = episode(lambda obs, _: algo.act(policy, jax.random.key(0), obs, (), greedy=True)[0], jax.random.key(3))
held = episode(constant, jax.random.key(3))

figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
axes.plot(learned.lower, label="lower tank, learned")
axes.plot(learned.upper, label="upper tank, learned", linewidth=0.8)
axes.plot(held.lower, label="lower tank, constant power", linestyle="--")
axes.plot(learned.target, color="black", linewidth=0.8, label="target")
axes.set(xlabel="s", ylabel="level [m]")
axes.legend(frameon=False)
axes.grid(alpha=0.25)

# %% [markdown]
# And because a parameter is a leaf, how robust the policy is to a clogged outlet is one more `vmap`:

# %%
outlets = params.outlet * jnp.linspace(0.5, 1.5, 9)
scores = jax.vmap(
    lambda outlet: jaxrl.evaluate(
        algo, policy, jax.random.key(4), env, params.replace(outlet=outlet), num_episodes=64
    ).returns.mean()
)(outlets)
for outlet, score in zip(outlets, scores, strict=True):
    print(f"outlet {1e4 * outlet:3.0f} cm^2: return {score:.1f}")

# %% [markdown]
# In a file of its own (`tanks.py`), it is trained from a shell: `jaxrl train ppo tanks.py:Tanks`.

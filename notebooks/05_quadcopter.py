# %% [markdown]
# # A quadcopter that learns to hover, and then follows an eight
#
# Rotor speeds in, a 27 g Crazyflie with lagging motors and noisy sensors. The dynamics are differentiable, so the policy
# learns by gradients through the flight itself (APG), about a minute on two CPU cores. Then it flies a figure-eight that it
# never saw, beside a cascade of PID loops that was tuned for it.

# %% tags=["parameters"]
TOTAL_STEPS = 1_000_000

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import apg
from jaxrl.envs.quadcopter.courses import paths
from jaxrl.host.render import film, film_of
from jaxrl.host.run.live import LiveCurve

env, params = jaxrl.make("Quadcopter-Hover-v0")
print(env.observation_space(params).shape, "numbers in,", env.action_space(params).shape, "rotor speeds out")

# %% [markdown]
# Larger pushes and speeds than the task's own while it learns, so that the accelerations of a path are nothing new to it. They are
# parameters, as the mass is.

# %%
algo = apg.make(env, apg.Config(num_envs=64, num_steps=32))
hyper = apg.Hyper(learning_rate=3e-3, anneal_steps=TOTAL_STEPS)
weights = params.weights.replace(constant=jnp.float32(4), position=jnp.float32(40), velocity=jnp.float32(0.1))
rough = params.replace(weights=weights, force_std=jnp.float32(0.07), start_velocity=jnp.float32(1))

result = jaxrl.fit(
    algo, jax.random.key(0), TOTAL_STEPS, hyper=hyper, env_params=rough, on_progress=LiveCurve(), progress=False
)
policy = algo.policy(result.state)

# %% [markdown]
# Hovering, from a random start, in the task as it is:

# %%
film(algo, policy, jax.random.key(1), env, params, max_steps=250)

# %% [markdown]
# ## A path that it never saw
#
# The tracking task shows the policy what it knows: where it is and how fast, relative to the point that moves. The controller
# gets the same reference as velocities, which its PID loops turn into rotor speeds.


# %%
def flown(env, params, act, steps, seed=0):
    """The states of an episode that `act(obs, state)` flies, stacked."""
    reset_key, key = jax.random.split(jax.random.key(seed))
    obs, state = env.reset(reset_key, params)

    def step(carry, key):
        obs, state = carry
        ts = env.step(key, state, act(obs, state), params)
        return (ts.obs, ts.state), state

    return jax.jit(lambda: jax.lax.scan(step, (obs, state), jax.random.split(key, steps))[1])()


def on_the_path(**settings):
    """The task on the figure-eight, starting at its beginning, and its params."""
    env, params = jaxrl.make("Quadcopter-TrajectoryTracking-v0", path="figure_eight", noise=True, **settings)
    zero = jnp.float32(0)
    return env, params.replace(anywhere=zero, start_position=zero, start_velocity=zero, arena=jnp.float32(100))


tracker, eight = on_the_path(action="rpm", history=32, lookahead=0)
learned = flown(tracker, eight, lambda obs, _: algo.act(policy, jax.random.key(0), obs, (), greedy=True)[0], 1000)

steered, same = on_the_path(action="velocity", history=0, lookahead=0)


def pid(obs, state):
    """The path's velocity 0.3 s ahead, as the loops lag, and back to the path where the drone is off."""
    wanted = paths.velocity(same.path, state.time * same.dt + 0.3) - 5.0 * obs[:3]
    return jnp.concatenate([wanted / same.scales.speed, jnp.zeros(1)])


controlled = flown(steered, same, pid, 1000)

# %%
time = np.arange(1000) * float(eight.dt)
reference = np.asarray(paths.position(eight.path, jnp.asarray(time)))
figure = plt.figure(figsize=(10, 4.2), layout="constrained")
axes = figure.add_subplot(1, 2, 1, projection="3d")
axes.plot(*reference.T, color="0.7", linewidth=3, label="reference")
ax = figure.add_subplot(1, 2, 2)
for name, states in {"learned": learned, "PID": controlled}.items():
    position = np.stack(states.drone.position, -1)
    axes.plot(*position.T, linewidth=1, label=name)
    distance = np.linalg.norm(position - reference, axis=-1)
    ax.plot(time, 100 * distance, label=f"{name}: mean {100 * distance.mean():.0f} cm")
axes.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]", zlim=(-1, 1))
axes.legend(frameon=False, loc="upper left")
ax.set(xlabel="time [s]", ylabel="distance from the reference [cm]", ylim=(0, None))
ax.legend(frameon=False)
ax.grid(alpha=0.25)

# %%
film_of(tracker, jax.tree.map(lambda x: x[:550], learned), eight)

# %% [markdown]
# Every number of the drone is a leaf: `params.replace(model=params.model.replace(mass=...))`, and `vmap` over a thousand
# airframes. As a C header for the real one: `jaxrl export RUN`. All tasks, controllers and what the simulators agree on to 1e-10:
# [the page](https://github.com/jaxrl/jaxrl/blob/main/docs/envs/quadcopter.md).

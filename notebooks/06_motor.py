# %% [markdown]
# # A motor controller that learns, against PI control
#
# Currents of a permanent-magnet synchronous motor, 10,000 control steps a second, references that wander. PPO learns voltages from
# currents and references and knows nothing of the machine; the field-oriented PI controller is tuned from its numbers.

# %% tags=["parameters"]
TOTAL_STEPS = 1_000_000
STEPS = 600  # of the episode that is drawn

# %%
import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ppo
from jaxrl.envs.motor.control import controllers
from jaxrl.envs.motor.pictures import plots, report
from jaxrl.host.run.live import LiveCurve

env, params = jaxrl.make("Cont-CC-PMSM-v0", dq_actions=True)
params = params.replace(max_steps=jnp.int32(1000))  # the task itself has no limit
print("sees", ", ".join(env.observation_names))

# %%
config = ppo.Config(
    num_envs=64, num_steps=64, num_epochs=5, num_minibatches=8,
    normalize_obs=True, normalize_reward=True, clip_value=False,
)  # fmt: skip
algo = ppo.make(env, config)
hyper = ppo.Hyper(learning_rate=1e-3, anneal_steps=TOTAL_STEPS, gamma=0.5, ent_coef=0.0)

result = jaxrl.fit(
    algo, jax.random.key(0), TOTAL_STEPS, hyper=hyper, env_params=params, on_progress=LiveCurve(), progress=False
)
policy = algo.policy(result.state)

# %% [markdown]
# A closed loop of each, on the same references. The classical one acts on the plain task, with all of the bridge's voltage.

# %%
plain, plain_params = jaxrl.make("Cont-CC-PMSM-v0")
classical, _ = report.record(plain, plain_params, controllers.make(plain), jax.random.key(1), STEPS)


def act(params, state, carry, gains):
    obs = env.observe(jax.random.key(0), state, params)
    return algo.act(policy, jax.random.key(0), obs, (), greedy=True)[0], carry


learned_policy = controllers.Controller(tune=lambda params: None, init=lambda: (), act=act)
learned, _ = report.record(env, params, learned_policy, jax.random.key(1), STEPS)

# %%
shown = ["i_sd", "i_sq", "u_sd", "u_sq"]
plots.plot_time(classical, float(params.tau), shown)

# %%
plots.plot_time(learned, float(params.tau), shown)

# %%
for name, run, its in (("PI control", classical, (plain, plain_params)), ("learned", learned, (env, params))):
    errors = report.tracking(*its, run)
    print(
        f"{name:10}", "  ".join(f"{k}: mean {v['mean']:.1f} A, largest {v['largest']:.0f} A" for k, v in errors.items())
    )

# %% [markdown]
# Where do they work in the plane of torque and speed, and what could the machine do there?

# %%
plots.plot_torque_speed(plain, plain_params, {"PI control": classical, "learned": learned})

# %% [markdown]
# A motor is a level: `jaxrl.envs.motor.levels.generate(key, params, spread)` draws others, and a policy that has seen many controls one
# that it has not. Seventy drives, ten machines, verified to 1e-6 against gym-electric-motor:
# [the page](https://github.com/jaxrl/jaxrl/blob/main/docs/envs/motor.md).

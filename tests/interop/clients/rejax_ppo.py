"""rejax's PPO on `to_gymnax`. Prints a line of JSON a task: its id and the mean return before and after training."""

import json

import jax
from rejax import PPO

from jaxrl import make
from jaxrl.interop.gymnax import to_gymnax

PENDULUM = {"normalize_observations": True, "gamma": 0.95, "learning_rate": 1e-3, "max_grad_norm": 0.5}

for id, steps, settings in (
    ("CartPole-v1", 65_536, {}),
    ("Catch-bsuite", 65_536, {}),
    ("Pendulum-v1", 131_072, PENDULUM),
):
    env = to_gymnax(make(id)[0], api="0.0")
    agent = PPO.create(env=env, total_timesteps=steps, eval_freq=steps, num_envs=32, num_steps=64, **settings)
    _, (_, returns) = jax.jit(agent.train)(jax.random.PRNGKey(0))
    before, after = map(float, returns.mean(1))
    print(json.dumps({"id": id, "before": before, "after": after}), flush=True)

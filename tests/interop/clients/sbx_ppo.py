"""SBX's PPO on `to_sb3`. Prints a line of JSON a task: its id and the mean return before and after training."""

import json

import sbx
from stable_baselines3.common.evaluation import evaluate_policy

from jaxrl import make
from jaxrl.interop.stable_baselines import to_sb3

PENDULUM = {"gamma": 0.9, "learning_rate": 1e-3, "n_epochs": 10}

for id, steps, settings in (
    ("CartPole-v1", 30_000, {}),
    ("Catch-bsuite", 30_000, {}),
    ("Pendulum-v1", 80_000, PENDULUM),
):
    env = make(id)[0]
    agent = sbx.PPO("MlpPolicy", to_sb3(env, 16, seed=0), n_steps=64, batch_size=256, seed=0, **settings)
    judge = to_sb3(env, 16, seed=1)
    before, _ = evaluate_policy(agent, judge, 32)
    agent.learn(steps)
    after, _ = evaluate_policy(agent, judge, 32)
    print(json.dumps({"id": id, "before": float(before), "after": float(after)}), flush=True)

"""SBX's PPO and SAC on `to_sb3`. Prints a line of JSON a task: its id and the mean return before and after training."""

import json

import sbx
from stable_baselines3.common.evaluation import evaluate_policy

from jaxrl import make
from jaxrl.interop.stable_baselines import to_sb3

ROLLOUTS = {"n_steps": 64, "batch_size": 256}
PENDULUM = {"gamma": 0.9, "learning_rate": 1e-3, "n_epochs": 10}

for name, agent_of, num_envs, steps, settings in (
    ("CartPole-v1", sbx.PPO, 16, 30_000, ROLLOUTS),
    ("Catch-bsuite", sbx.PPO, 16, 30_000, ROLLOUTS),
    ("Pendulum-v1", sbx.PPO, 16, 80_000, ROLLOUTS | PENDULUM),
    ("SAC, Pendulum-v1", sbx.SAC, 1, 5_000, {}),
):
    env = make(name.split()[-1])[0]
    agent = agent_of("MlpPolicy", to_sb3(env, num_envs, seed=0), seed=0, **settings)
    judge = to_sb3(env, 16, seed=1)
    before, _ = evaluate_policy(agent, judge, 32)
    agent.learn(steps)
    after, _ = evaluate_policy(agent, judge, 32)
    print(json.dumps({"id": name, "before": float(before), "after": float(after)}), flush=True)

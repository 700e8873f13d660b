"""What does optimising a learned reward too far cost? Gold return against KL: a model, an ensemble's mean, its least.

    python experiments/over_optimisation/run.py [--seeds 10] [--picture]

A policy over 2,000 actions that leaves a uniform reference by exactly as much as it is allowed to: for each temperature
the optimum of learned reward minus temperature times KL, softmax(reward / temperature), is known. Writes results.json
and picture.png beside this file; `--picture` draws the latter again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data import preferences, reward_models
from jaxrl.data.datasets import Dataset
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.spaces import Box

HERE = Path(__file__).parent
ACTIONS, SIZE, PAIRS, MEMBERS = 2000, 6, 300, 5
TEMPERATURES = np.geomspace(10, 0.01, 31)
CONFIG = reward_models.Config(num_members=MEMBERS, hidden=(64, 64), num_checks=20, num_updates=50)
HYPER = reward_models.Hyper(learning_rate=1e-3)
SPACES = Box(-1.0, 1.0, (1,)), Box(-4.0, 4.0, (SIZE,))


def gold(key):
    """A smooth random reward of actions (n, SIZE): a network with random weights, mean 0 and deviation 1 over them."""
    first, second, shift = jax.random.split(key, 3)
    into = jax.random.normal(first, (SIZE, 64)) / np.sqrt(SIZE) * 1.5
    out, bias = jax.random.normal(second, (64,)), 2 * jax.random.normal(shift, (64,))

    def reward(action):
        return jnp.sin(action @ into + bias) @ out / 8

    return reward


def one(seed):
    """`{who: (KL, proxy, gold) of each temperature}`; rewards in units of the reference's deviation."""
    gold_key, action_key, fit_key, label_key = jax.random.split(jax.random.key(seed), 4)
    action = jnp.clip(jax.random.normal(action_key, (ACTIONS, SIZE)), -4, 4)
    true = gold(gold_key)(action)
    true = (true - jnp.mean(true)) / jnp.std(true)
    one, end = np.zeros((ACTIONS, 1), np.float32), np.ones(ACTIONS, bool)
    steps = Dataset(one, np.asarray(action), np.asarray(true), end, end, one)
    asked = preferences.uniform_queries(np.random.default_rng(seed), steps, PAIRS, 1)
    score = jnp.asarray(preferences.scores(steps, asked, 1), jnp.float32)
    label = np.asarray(preferences.labels(label_key, score, preferences.Teacher(temperature=0.5)), np.float32)
    found = preferences.Preferences(steps, asked, label, 1)
    model, _ = reward_models.fit(fit_key, found, *SPACES, CONFIG, HYPER)
    members = np.asarray(model.members(jnp.asarray(one), action / 4))
    learned = {"single model": members[0], "mean of five": members.mean(0), "least of five": members.min(0)}
    curves = {}
    for who, reward in {**learned, "gold itself": np.asarray(true)}.items():
        reward = (reward - reward.mean()) / reward.std()
        policy = np.asarray(jax.nn.softmax(jnp.asarray(reward) / TEMPERATURES[:, None], -1), np.float64)
        kl = np.sum(policy * np.log(np.maximum(policy * ACTIONS, 1e-300)), -1)
        curves[who] = np.stack([kl, policy @ reward, policy @ np.asarray(true)]).round(4).tolist()
    return curves


def table(curves):
    """Of each kind the gold return at its best and at the end, the KL of the best, and the proxy at the end."""
    for who in curves[0]:
        kl, proxy, true = np.moveaxis([curve[who] for curve in curves], 1, 0)
        best = true.argmax(1)
        at = kl[np.arange(len(kl)), best]
        fall = true.max(1) - true[:, -1]
        fallen = f"{fall.mean():.2f} ± {1.96 * fall.std(ddof=1) / len(fall) ** 0.5:.2f}"
        ends = f"{true[:, -1].mean():.2f} | {proxy[:, -1].mean():.2f}"
        print(f"| {who} | {true.max(1).mean():.2f} | {at.mean():.1f} | {ends} | {fallen} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    if not args.picture:
        began = time.process_time()
        curves = [one(seed) for seed in range(args.seeds)]
        kept = {"curves": curves, "cpu_seconds": round(time.process_time() - began), **environment_of_run()}
        file.write_text(json.dumps(kept))
    from picture import draw

    curves = json.loads(file.read_text())["curves"]
    draw(curves, HERE / "picture.png")
    table(curves)


if __name__ == "__main__":
    main()

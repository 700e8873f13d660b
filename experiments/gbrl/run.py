"""Do trees learn what a network learns with PPO?

    nice -n 10 python experiments/gbrl/run.py --only cartpole [--seeds 5]
    nice -n 10 python experiments/gbrl/run.py --only doorkey unlock --seeds 3

Trains what results.json beside this file does not have yet, seed by seed, and prints the table of README.md: the return
of 64 episodes of the trained policy. The networks' settings for MiniGrid are those of gbrl_sb3, too.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.algos import ppo, ppo_gbrl
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

RESULTS = Path(__file__).with_name("results.json")
# gbrl_sb3's settings of CartPole and of Acrobot, which has larger rates and 20 passes (here 10).
CARTPOLE = dict(config=dict(num_envs=8, num_steps=128, num_minibatches=16), hyper={})
FASTER = dict(
    config=dict(num_envs=16, num_steps=128, num_epochs=10, num_minibatches=4),
    hyper=dict(learning_rate=0.16, value_learning_rate=0.034, gamma=0.99, gae_lambda=0.94),
)
MINIGRID = dict(
    config=dict(num_envs=16, num_steps=256, num_epochs=20, num_minibatches=8),
    hyper=dict(learning_rate=0.17055, value_learning_rate=0.01003, gamma=0.99, gae_lambda=0.95),
)
NETWORK = dict(
    config=dict(num_envs=8, num_steps=128, num_epochs=10, num_minibatches=16, clip_value=False),
    hyper=dict(learning_rate=2.5e-4, gamma=0.993, ent_coef=0.0),
)
TASKS = {
    "cartpole": (
        "CartPole-v1",
        {
            "trees": (ppo_gbrl, 200_000, FASTER),
            "trees, CartPole's rates": (ppo_gbrl, 1_000_000, CARTPOLE),
            "network": (ppo, 200_000, dict(config={}, hyper=dict(anneal_steps=200_000))),
        },
    ),
    "doorkey": (
        "MiniGrid-DoorKey-5x5-v0",
        {"trees": (ppo_gbrl, 1_000_000, MINIGRID), "network": (ppo, 1_000_000, NETWORK)},
    ),
    "unlock": (
        "MiniGrid-Unlock-v0",
        {"trees": (ppo_gbrl, 1_000_000, MINIGRID), "network": (ppo, 1_000_000, NETWORK)},
    ),
}


def trained(env_id, module, total, settings, seed):
    """Returns of the trained policy as it samples and by its mode, the curve of training returns, and seconds."""
    env, params = jaxrl.make(env_id)
    config = dict(settings["config"])
    if module is ppo_gbrl:  # a budget for this run
        updates = -(-total // (config["num_envs"] * config["num_steps"]))
        config["num_trees"] = updates * config.get("num_epochs", 1) * config["num_minibatches"]
    algo, hyper = module.make(env, module.Config(**config)), module.Hyper(**settings["hyper"])
    begin, train_key, *keys = time.perf_counter(), *jax.random.split(jax.random.key(seed), 3)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, total, hyper, params))(train_key)
    curve = [float(np.nanmean(x)) for x in np.array_split(np.asarray(metrics["episode_return"]), 20)]
    result = {"seed": seed, "curve": curve, "seconds": time.perf_counter() - begin}
    for how, key in zip(("sampled", "greedy"), keys, strict=True):
        stats = jaxrl.evaluate(algo, algo.policy(state), key, num_episodes=64, greedy=how == "greedy")
        result[how] = float(np.mean(stats.returns))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    print("| task | policy of | steps | seeds | as it samples | its mode |\n|---|---|---|---|---|---|")
    for task in args.only:
        env_id, learners = TASKS[task]
        for name, (module, total, settings) in learners.items():
            runs = done.setdefault(task, {}).setdefault(name, [])
            for seed in range(len(runs), args.seeds):
                runs.append(trained(env_id, module, total, settings, seed))
                RESULTS.write_text(json.dumps({**done, "where": environment_of_run()}) + "\n")
            cells = []
            for how in ("sampled", "greedy"):
                returns = np.array([run[how] for run in runs])
                cells.append("{:.3g} ({:.3g} to {:.3g})".format(iqm(returns), *bootstrap_interval(returns)))
            print(f"| {env_id} | {name} | {total:,} | {len(runs)} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()

"""Does acting by PROPS give data whose actions are nearer the policy's own than sampling from the policy does?

    python experiments/props/run.py [--seeds 20]

Writes results.json and results.png beside this file and prints the table of README.md. Sampling error: KL(counted
policy || policy), nats.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from picture import picture

import jaxrl
from jaxrl.algos import props
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
TASKS = {
    "bandit": ("BernoulliBandit-v0", {"arms": 10}),
    "chain": ("TwoSidedChain-v0", {}),
    "grid": ("TwoGoalGrid-v0", {}),
}
SMALL = {"num_envs": 1, "hidden": (32, 32)}
# 16 batches of 64 steps under one policy, as the authors' script for a fixed policy has them.
FIXED = {"num_steps": 64, "buffer_batches": 16, "num_epochs": 1, "num_minibatches": 1, "props_num_steps": 16, **SMALL}
ONE_STEP = {"props_num_steps": 1, "props_num_epochs": 1, "props_num_minibatches": 1}
LEARNING = {"num_steps": 256, "num_epochs": 8, "num_minibatches": 8, "props_num_steps": 16, **SMALL}
SETTINGS = {
    "fixed": {
        "on-policy": {**FIXED, "props_num_epochs": 0},
        "ROS": {**FIXED, **ONE_STEP},
        "PROPS": FIXED,
    },
    "learning": {
        "PPO, 1 batch": {**LEARNING, "buffer_batches": 1, "props_num_epochs": 0},
        "PPO, 2 batches": {**LEARNING, "buffer_batches": 2, "props_num_epochs": 0},
        "PROPS, 2 batches": {**LEARNING, "buffer_batches": 2},
    },
}
UPDATES = 16


def run(task, config, fixed, seeds):
    """Metrics (seeds, updates) of runs whose policy is fixed, at logits far from uniform, or learns."""
    env_id, settings = TASKS[task]
    env, params = jaxrl.make(env_id, **settings)
    algo = props.make(env, props.Config(**config))
    hyper = props.Hyper(learning_rate=0.0 if fixed else 1e-3)

    def one(key):
        state = algo.init(key, hyper, params)
        if fixed:
            weights = jax.tree.map(lambda x: x, state.weights)  # its head starts with a hundredth of the usual scale
            head = weights["params"]["actor_mlp"]["Dense_2"]
            head["kernel"] = 100 * head["kernel"]
            state = state.replace(weights=weights)
        return jax.lax.scan(lambda state, _: algo.update(state), state, length=UPDATES)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds, begin, results = parser.parse_args().seeds, time.process_time(), {}
    print(
        "| policy | task | acting | sampling error [nats] (95 %) | return of the last quarter |\n|---|---|---|---|---|"
    )
    for setting, methods in SETTINGS.items():
        for task in TASKS:
            for name, config in methods.items():
                metrics = run(task, config, setting == "fixed", seeds)
                error = metrics["sampling_error"].astype(float)
                # The buffer is full at the end of a fixed policy's run; of a learning one all full buffers count.
                score = error[:, -1] if setting == "fixed" else error[:, config["buffer_batches"] - 1 :].mean(1)
                late = np.nanmean(metrics["episode_return"][:, -UPDATES // 4 :])
                r = {"sampling_error": iqm(score), "interval": bootstrap_interval(score), "return": float(late)}
                r["curve"] = [iqm(x) for x in error.T]
                r["curve_95"] = [bootstrap_interval(x, resamples=500) for x in error.T]
                results.setdefault(setting, {}).setdefault(task, {})[name] = r
                interval = "{:.4f} to {:.4f}".format(*r["interval"])
                print(
                    f"| {setting} | {task} | {name} | {r['sampling_error']:.4f} ({interval}) | {late:.2f} |", flush=True
                )
    seconds = round(time.process_time() - begin, 1)
    where = environment_of_run()
    report = {"seeds": seeds, "cpu_seconds": seconds, "where": where, "results": results}
    (HERE / "results.json").write_text(json.dumps(report) + "\n")
    picture(results, SETTINGS, HERE / "results.png")


if __name__ == "__main__":
    main()

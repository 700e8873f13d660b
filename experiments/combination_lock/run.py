"""Offline data in an on-policy learner: HNPG, the same without the data, and PPO on the combination lock.

    python experiments/combination_lock/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import hybrid
import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
OFFLINE, ITERATIONS, EPISODES, TEST = 1000, 80, 20, 100  # episodes of data; iterations, and episodes of each
RATE, RIDGE = 10.0, 0.2
ARMS = {"HNPG": (0.1, 1.0), "NPG": (0.1, 0.0), "data alone": (0.0, 1.0)}  # weights of on-policy and offline errors


def hybrids(env, params, keys):
    """Rows of each arm, a seed each: returns of the last policy and of every iteration; and the data's own return."""

    def run(key):
        level_key, data_key, key, test_key = jax.random.split(key, 4)
        lock = env.generate(level_key, params)
        off = hybrid.behaviour(data_key, env, lock, OFFLINE)

        def arm(shares):
            theta, returns = hybrid.train(key, env, lock, off, ITERATIONS, EPISODES, RATE, shares, RIDGE)
            test = hybrid.episodes(test_key, env, lock, hybrid.policy_act(theta), TEST)
            return jnp.mean(jnp.sum(test.reward, 0)), returns

        return jax.lax.map(arm, jnp.array(list(ARMS.values()))), jnp.mean(jnp.sum(off.reward, 0))

    return jax.jit(lambda keys: jax.lax.map(run, keys))(keys)


def proximal(env, params, keys, steps):
    """The same of PPO, with an update of as many steps as an iteration."""
    algo = ppo.make(env, ppo.Config(num_envs=EPISODES, num_steps=env.horizon))
    hyper = ppo.Hyper(learning_rate=1e-3, gamma=1.0)

    def run(key):
        level_key, _, key, test_key = jax.random.split(key, 4)
        lock = env.generate(level_key, params)
        state, metrics = jaxrl.train(algo, key, steps, hyper, lock)
        test = evaluate(
            algo, algo.policy(state), test_key, env, lock, num_episodes=TEST, max_steps=env.horizon, greedy=False
        )
        return jnp.mean(test.returns), metrics["episode_return"]

    return jax.jit(lambda keys: jax.lax.map(run, keys))(keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    keys = jax.random.split(jax.random.key(0), parser.parse_args().seeds)
    where, begin = environment_of_run(), time.perf_counter()
    env, params = jaxrl.make("CombinationLock-v0")
    steps = ITERATIONS * EPISODES * env.horizon
    (last, returns), data = hybrids(env, params, keys)
    rows = {arm: (last[:, i], returns[:, i]) for i, arm in enumerate(ARMS)}
    rows["PPO"] = proximal(env, params, keys, steps)
    rows = {arm: tuple(np.asarray(x, float).round(4) for x in row) for arm, row in rows.items()}
    print("| learner | return, IQM | 95 % interval | steps to a return of 0.5, median |\n" + "|---" * 4 + "|")
    for arm, (final, curve) in rows.items():
        at = [np.argmax(c > 0.5) * EPISODES * env.horizon if np.any(c > 0.5) else np.inf for c in curve]
        reached = f"{np.median(at):,.0f}" if np.isfinite(np.median(at)) else "not reached"
        print(f"| {arm} | {told(final, '.3f', cells=True)} | {reached} |")
    results = {key: where[key] for key in ("started", "device", "processors", "versions")}
    results |= {"steps": steps, "seconds": round(time.perf_counter() - begin, 1)}
    results |= {"return of the data": np.asarray(data, float).round(3).tolist()}
    print(f"the data: {np.mean(data):.3f}; {results['seconds']} s")
    arms = {arm: {"returns": final.tolist(), "curve": curve.tolist()} for arm, (final, curve) in rows.items()}
    (HERE / "results.json").write_text(json.dumps(results | {"arms": arms}) + "\n")
    at = np.arange(ITERATIONS) * EPISODES * env.horizon
    curves = {arm: (at, curve) for arm, (_, curve) in rows.items()}
    curves_by_task({env.id: curves}, HERE / "results.png", "return of the iteration's episodes")


if __name__ == "__main__":
    main()

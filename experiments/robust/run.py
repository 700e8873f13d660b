"""Robust policies: IWOCS on its windy walk, exactly; a pendulum against adversarial parameters.

    python experiments/robust/run.py [--seeds 10] [--picture]

Writes results.json and results.png beside this file; `--picture` makes only the latter again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import report

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import adversarial_params
from jaxrl.curriculum.teaching import ranges
from jaxrl.envs.tabular.grids.windy_walk import WindyWalk
from jaxrl.evaluation import evaluate
from jaxrl.exact import iwocs
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import value_iteration
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.registry import tuned

HERE = Path(__file__).parent
ALPHA = np.linspace(0, 0.5, 25)
BOX = {"mass": (0.5, 2.0), "length": (0.5, 1.5)}
GRID = 9  # a side, of test pendulums
STEPS = 300_000
ADVERSARY = adversarial_params.Config(num_adversaries=4, num_episodes=2, num_steps=200)
ARMS = {"nominal": None, "randomised": 1.0, "adversarial": 0.5, "adversarial only": 0.0}  # share of uniform params


def walk(gamma):
    env = WindyWalk()
    with jax.enable_x64(True):
        params = env.default_params
        mdps = jax.vmap(lambda a: tabulate(env, params.replace(alpha=a)))(jnp.asarray(ALPHA))
        found = iwocs.solve(mdps, gamma, tol=1e-6)
        begin = time.perf_counter()
        found = jax.block_until_ready(iwocs.solve(mdps, gamma, tol=1e-6))
        seconds = time.perf_counter() - begin
        robust = iwocs.rectangular_values(mdps, gamma, tol=1e-9)
        optimal = jax.vmap(lambda mdp: value_iteration(mdp, gamma, 1e-9).value[0])(mdps)
        naive = value_iteration(jax.tree.map(lambda x: x[0], mdps), gamma, 1e-9).policy
        n = int(found.iterations)
        return {
            "gamma": gamma,
            "iterations": n,
            "converged": bool(found.converged),
            "alphas solved": ALPHA[np.asarray(found.models[:n])].tolist(),
            "promised": np.asarray(found.promised[:n]).tolist(),
            "kept": np.asarray(found.kept[:n]).tolist(),
            "worst alpha": float(ALPHA[int(found.worst)]),
            "robust value iteration": float(robust.value[0]),
            "sweeps": int(robust.iterations),
            "least optimum": float(optimal.min()),
            "optimal": np.asarray(optimal).tolist(),
            "of the robust policy": np.asarray(iwocs.values_of(mdps, found.policy, gamma)).tolist(),
            "of the policy for no wind": np.asarray(iwocs.values_of(mdps, naive, gamma)).tolist(),
            "seconds": seconds,
        }


def pendulums(seeds):
    env, params = jaxrl.make("Pendulum-v1")
    boxes, settings, rows = ranges(params, BOX), tuned("ppo", env.id), {}
    config, hyper = ppo.Config(**settings.config), ppo.Hyper(**settings.hyper)
    venv = jaxrl.vectorize(env, config.num_envs, level_fn=adversarial_params.Drawn(boxes))
    grid = jnp.stack(jnp.meshgrid(*[jnp.linspace(0, 1, GRID)] * 2, indexing="ij"), -1).reshape(-1, 2)
    search = adversarial_params.Config(num_adversaries=8, num_episodes=16, num_steps=200, num_moves=20)
    for arm, share in ARMS.items():
        algo = ppo.make(env if share is None else venv, config)
        if share is not None:
            algo = adversarial_params.make(algo, ADVERSARY, adversarial_params.Hyper(uniform_share=share))

        def run(key, algo=algo):  # noqa: B023, it is called here
            key, test_key, search_key = jax.random.split(key, 3)
            state, _ = jaxrl.train(algo, key, STEPS, hyper, params)
            policy = algo.policy(state)

            def mean(point, policy=policy, key=test_key, algo=algo):
                level = boxes(params, point)
                return evaluate(
                    algo, policy, key, env, level, num_episodes=32, max_steps=200, greedy=True
                ).returns.mean()

            worst = adversarial_params.worst_params(search_key, algo, policy, env, params, boxes, search)
            return jax.vmap(mean)(grid), mean(jnp.array([1 / 3, 0.5])), worst.x, worst.episode_return

        begin = time.perf_counter()
        keys = jax.random.split(jax.random.key(0), seeds)
        scores, nominal, x, found = map(np.asarray, jax.block_until_ready(jax.jit(jax.vmap(run))(keys)))
        rows[arm] = {
            "grid": scores.reshape(seeds, GRID, GRID).round(2).tolist(),
            "nominal": nominal.tolist(),
            "found": found.tolist(),
            "x": x.tolist(),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        print(arm, scores.min(1).mean(), scores.mean(), nominal.mean(), found.mean(), rows[arm]["seconds"], flush=True)
    return {"box": BOX, "steps": STEPS, "arms": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    if not args.picture:
        result = {"walk": [walk(g) for g in (0.99, 1.0)], "pendulum": pendulums(args.seeds), **environment_of_run()}
        (HERE / "results.json").write_text(json.dumps(result))
    report(json.loads((HERE / "results.json").read_text()), HERE)


if __name__ == "__main__":
    main()

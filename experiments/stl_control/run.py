"""Who satisfies a formula of signal temporal logic, and how fast does it decide?

    python experiments/stl_control/run.py [--seeds 10] [--system point] [--arm planners]

TGPO against PPO that is rewarded by robustness; a policy trained through smooth robustness against the cross-entropy
method. Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import planners
from episodes import Episodes, Params
from tasks import SYSTEMS, T, signal_of

import jaxrl
from jaxrl.algos import ppo
from jaxrl.exact import stl
from jaxrl.host.plotting import bars
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
STEPS, TESTS, ALLOCATIONS = 150_000, 64, 32
CONFIG = ppo.Config(num_envs=64, num_steps=T, num_epochs=4, num_minibatches=4)


def satisfaction(task, starts, actions):
    """The share of `starts` from which `actions` satisfy the formula."""
    signals = jax.vmap(signal_of, (None, 0, 0))(task, starts, actions)
    return jnp.mean(jax.vmap(lambda s: stl.rho(task.formula, s)[0] > 0)(signals), dtype=float)


def median_seconds(function, *args):
    jax.block_until_ready(function(*args))
    taken = []
    for _ in range(50):
        begin = time.perf_counter()
        jax.block_until_ready(function(*args))
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))


def plans(name: str, seeds: int) -> dict:
    """Every seed's satisfaction from new starts, and the time of one decision (T actions), jitted, one start."""
    task, key = SYSTEMS[name], jax.random.key(1)
    net = planners.Plan(task.actions)

    def run(key):
        train_key, test_key, cem_key = jax.random.split(key, 3)
        weights, losses = planners.train(task, train_key)
        starts = task.initial(test_key, TESTS)
        planned = jax.lax.map(lambda x: planners.cem(task, x[0], x[1]), (jax.random.split(cem_key, TESTS), starts))
        return satisfaction(task, starts, net.apply(weights, starts)), satisfaction(task, starts, planned), weights

    keys = jax.random.split(jax.random.key(0), seeds)
    policy, cem, weights = jax.jit(lambda keys: jax.lax.map(run, keys))(keys)
    weights, start = jax.tree.map(lambda x: x[0], weights), task.initial(key, 1)[0]
    fast = median_seconds(jax.jit(net.apply), weights, start)
    slow = median_seconds(jax.jit(lambda key, x: planners.cem(task, key, x)), key, start)
    return {
        "policy through dynamics": np.asarray(policy).tolist(),
        "CEM": np.asarray(cem).tolist(),
        "seconds a decision": {"policy through dynamics": fast, "CEM": slow},
    }


def learned(name: str, reward: str, seeds: int) -> dict:
    """Every seed's satisfaction by the final greedy policy; TGPO has the times that its critic likes best."""
    env, params = Episodes(name, reward), Params()
    algo = ppo.make(env, CONFIG)
    count = ALLOCATIONS if reward == "grounded" else 1

    def run(key):
        train_key, test_key, act_key = jax.random.split(key, 3)
        state, _ = jaxrl.train(algo, train_key, STEPS, ppo.Hyper(learning_rate=1e-3, anneal_steps=STEPS), params)
        policy = algo.policy(state)
        starts = jax.vmap(lambda k: env.initial(k, params))(jax.random.split(test_key, TESTS * count))
        starts = jax.tree.map(lambda x: x.reshape(TESTS, count, *x.shape[1:]), starts)
        # One place a test, several times.
        starts = starts.replace(
            **{
                n: jax.tree.map(lambda x: x[:, :1].repeat(count, 1), getattr(starts, n))
                for n in ("x", "watches", "rho")
            }
        )
        obs = jax.vmap(jax.vmap(lambda s: env.observe(act_key, s, params)))(starts)
        values = algo.learn.__self__.network.apply(policy.weights, obs, method="critic")
        best = jnp.argmax(values, 1)
        starts = jax.tree.map(lambda x: jax.vmap(lambda row, i: row[i])(x, best), starts)

        def step(states, _):
            obs = jax.vmap(lambda s: env.observe(act_key, s, params))(states)
            action, _ = algo.act(policy, act_key, obs, greedy=True)
            following = jax.vmap(lambda s, a: env.transition(act_key, s, a, params).state)(states, action)
            return following.replace(time=states.time + 1), None

        final, _ = jax.lax.scan(step, starts, length=T)
        return jnp.mean(final.rho.min(-1) > 0, dtype=float)

    keys = jax.random.split(jax.random.key(0), seeds)
    return np.asarray(jax.jit(jax.vmap(run))(keys)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--system", choices=SYSTEMS, help="only this one; writes nothing")
    parser.add_argument("--arm", choices=("planners", "TGPO", "PPO"))
    args = parser.parse_args()
    results = {"where": environment_of_run(), "systems": {}}
    print("| system | method | satisfied, IQM | 95 % interval |\n" + "|---" * 4 + "|")
    for name in [args.system] if args.system else SYSTEMS:
        rows = results["systems"][name] = {}
        if args.arm in (None, "planners"):
            rows |= plans(name, args.seeds)
        for arm, reward in {"TGPO": "grounded", "PPO": "robustness"}.items():
            if args.arm in (None, arm):
                rows[arm] = learned(name, reward, args.seeds)
        for arm, scores in rows.items():
            if arm == "seconds a decision":
                print(scores)
                continue
            low, high = bootstrap_interval(scores)
            print(f"| {name} | {arm} | {iqm(scores):.2f} | {low:.2f} to {high:.2f} |", flush=True)
        if not args.system:
            (HERE / "results.json").write_text(json.dumps(results) + "\n")
    if not args.system:
        shown = {
            f"{name}: {arm}": s
            for name, rows in results["systems"].items()
            for arm, s in rows.items()
            if isinstance(s, list)
        }
        bars(shown, HERE / "results.png", "share of starts from which the formula is satisfied")


if __name__ == "__main__":
    main()

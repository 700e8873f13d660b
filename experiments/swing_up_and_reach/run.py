"""Do SAC and TD3 solve CartPoleSwingUp-v0 and Reacher-v0? Ten seeds each, 100 episodes of every final greedy policy.

    python experiments/swing_up_and_reach/run.py [--only sac/Reacher-v0 ...] [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md."""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.envs.classic import reacher
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.registry import tuned

HERE = Path(__file__).parent
PAIRS = [f"{name}/{env_id}" for env_id in ("CartPoleSwingUp-v0", "Reacher-v0") for name in ("sac", "td3")]
EPISODES, REQUIRED = 100, 95


def upright(states, params):
    return jnp.abs(jnp.arctan2(jnp.sin(states.theta), jnp.cos(states.theta))) < 0.2


def at_target(states, params):
    return jax.vmap(jax.vmap(lambda state: reacher.distance(state, params)))(states) < 0.02


CRITERIA = {
    "CartPoleSwingUp-v0": (upright, 1 / 2),
    "Reacher-v0": (at_target, 1 / 5),
}  # for this last part of an episode


def trajectories(algo, policy, env, params, key, num_steps):
    """States (T, E) after each step and where an episode terminated, `EPISODES` greedy episodes without auto-reset."""
    reset_key, run_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, EPISODES), params)

    def step(carry, key):
        obs, state = carry
        action, _ = algo.act(policy, key, obs, greedy=True)
        ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, EPISODES), state, action, params)
        return (ts.obs, ts.state), (ts.state, ts.terminated)

    return jax.lax.scan(step, (obs, state), jax.random.split(run_key, num_steps))[1]


def measure(pair: str, seeds: int) -> dict:
    """Train every seed of a pair in one program and count the episodes that each solves."""
    name, env_id = pair.split("/")
    module, settings = jaxrl.get_algo(name), tuned(name, env_id)
    env, params = jaxrl.make(env_id)
    algo, hyper = module.make(env, module.Config(**settings.config)), module.Hyper(**settings.hyper)
    num_steps, (holds, part) = int(params.max_steps), CRITERIA[env_id]

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, settings.total_steps, hyper, params)
        states, terminated = trajectories(algo, algo.policy(state), env, params, eval_key, num_steps)
        good = holds(states, params)[num_steps - round(part * num_steps) :].all(0)
        return jnp.sum(good & ~terminated.any(0))

    keys = jax.random.split(jax.random.key(0), seeds)
    program = jax.jit(lambda keys: jax.lax.map(run, keys)).lower(keys).compile()
    begin, where = time.perf_counter(), environment_of_run()
    solved = np.asarray(program(keys)).tolist()
    return {
        "solved": solved,
        "total_steps": settings.total_steps,
        "run_seconds_a_seed": round((time.perf_counter() - begin) / seeds, 1),
        **{key: where[key] for key in ("started", "device", "processors", "versions")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=PAIRS, choices=PAIRS)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    file = HERE / "results.json"
    for pair in args.only:
        row = measure(pair, args.seeds)
        kept = json.loads(file.read_text()) if file.exists() else {}  # read again: another process may have added to it
        results = {p: {**kept, pair: row}[p] for p in PAIRS if p in {**kept, pair: row}}
        file.write_text(json.dumps(results, indent=1) + "\n")
    print("| pair | steps | seeds | solved episodes of each seed | seeds with 95 or more | s/seed |\n|" + "---|" * 6)
    for pair, row in results.items():
        good = sum(n >= REQUIRED for n in row["solved"])
        cells = [pair, f"{row['total_steps']:,}", len(row["solved"]), row["solved"], good, row["run_seconds_a_seed"]]
        print("| " + " | ".join(map(str, cells)) + " |")
    bars({pair: row["solved"] for pair, row in results.items()}, HERE / "results.png", "episodes of 100 solved")


if __name__ == "__main__":
    main()

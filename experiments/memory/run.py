"""Does memory pay where it must? Recurrent and feed-forward PPO and PQN on a task that needs it, ten seeds each.

    python experiments/memory/run.py [--seeds 10] [--steps 60000]

MemoryLength-bsuite shows a bit at its first two steps and asks for it ten steps later. Writes results.json and
results.png beside this file and prints the table of README.md.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo, ppo_rnn, pqn, pqn_rnn
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
SHAPE = {"num_envs": 32, "num_steps": 22, "num_minibatches": 4}  # two episodes of each environment a rollout
GRU = {"hidden": (32,), "rnn": "gru", "rnn_size": 32, "burn_in": 4}
PQN = {"learning_rate": 1e-3, "exploration_steps": 20_000}
AGENTS = {  # module, config, hyper; what differs between the two of a pair is the network
    "PPO-RNN": (ppo_rnn, SHAPE | GRU, {"learning_rate": 3e-3}),
    "PPO": (ppo, SHAPE, {"learning_rate": 3e-3}),
    "PQN-RNN": (pqn_rnn, SHAPE | GRU, PQN),
    "PQN": (pqn, SHAPE, PQN),
}


def bound(env, params) -> float:
    """The best mean return of a policy that sees only the present observation, from all four kinds of episode.

    Only the last action counts. As both bits, each as likely, show the same last observation, whoever acts on it alone,
    at random or not, answers both alike.
    """
    steps, key = int(params.memory_length) + 1, jax.random.key(0)
    start = env.initial(key, params)
    returns, last = np.zeros((2, 2)), []
    for bit in (0, 1):
        for action in (0, 1):
            state = start.replace(context=jnp.full_like(start.context, bit))
            for _ in range(steps):
                obs = env.observe(key, state, params)
                ts = env.step(key, state, jnp.int32(action), params)
                returns[bit, action] += float(ts.reward)
                state = ts.state
        last.append(np.asarray(obs))
    np.testing.assert_array_equal(*last)
    return float(returns.mean(0).max())


def measure(name: str, seeds: int, steps: int) -> dict:
    """Train and evaluate every seed of one agent in one program."""
    module, config, hyper = AGENTS[name]
    env, params = jaxrl.make("MemoryLength-bsuite")
    algo = module.make(env, module.Config(**config))

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, train_key, steps, module.Hyper(**hyper), params)
        stats = evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=1024, max_steps=32, greedy=True)
        solved = metrics["episode_return"] > 0.9
        return stats.returns.mean(), jnp.where(solved.any(), jnp.argmax(solved) + 1, 0)

    keys = jax.random.split(jax.random.key(0), seeds)
    returns, updates = map(np.asarray, jax.jit(lambda keys: jax.lax.map(run, keys))(keys))
    low, high = bootstrap_interval(returns)
    return {
        "returns": [round(float(x), 3) for x in returns],
        "iqm": round(iqm(returns), 3),
        "interval": [round(low, 3), round(high, 3)],
        "steps_to_0.9": [int(n) * algo.steps_per_update or None for n in updates],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60_000)
    args = parser.parse_args()
    best, agents = bound(*jaxrl.make("MemoryLength-bsuite")), {}
    print(f"Without memory at most {best:g}.\n\n| agent | IQM | 95 % | lowest | median steps to 0.9 |")
    print("|---|---|---|---|---|", flush=True)
    for name in AGENTS:
        agents[name] = r = measure(name, args.seeds, args.steps)
        solved = f"{np.median([n or np.inf for n in r['steps_to_0.9']]):,.0f}"
        low, high = r["interval"]
        print(f"| {name} | {r['iqm']:.2f} | {low:.2f} to {high:.2f} | {min(r['returns']):.2f} | {solved} |", flush=True)
    out = {"bound": best, "steps": args.steps, "agents": agents, "where": environment_of_run()}
    (HERE / "results.json").write_text(json.dumps(out, indent=1) + "\n")
    bars({n: r["returns"] for n, r in agents.items()}, HERE / "results.png", "return", dict.fromkeys(agents, best))


if __name__ == "__main__":
    main()

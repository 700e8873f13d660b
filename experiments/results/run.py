"""Which returns do the algorithms reach? Ten seeds of each tuned pair, full episodes of the final policy.

    python experiments/results/run.py [--only ppo/CartPole-v1 ...] [--seeds 10]

Writes results.json beside this file (a pair at a time, so that an interrupted run loses nothing), the figure, and the
table of docs/results.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.evaluation import bootstrap_interval, evaluate, iqm
from jaxrl.plotting import bars
from jaxrl.registry import tuned
from jaxrl.run_folder import environment_of_run

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "results.md"
EPISODES = 128
# pair: (what it must reach, the published figure and where it is from); PPO is sampled, DQN greedy
TARGETS = {
    "ppo/CartPole-v1": (490, "CleanRL 490.0 ± 6.1"),
    "ppo/Acrobot-v1": (-87, "CleanRL -86.4 ± 1.3"),
    "ppo/Pendulum-v1": (-170, ""),
    "ppo/MountainCarContinuous-v0": (90, ""),
    "dqn/CartPole-v1": (488, "CleanRL 488.7 ± 16.1"),
    "dqn/Acrobot-v1": (-90, "CleanRL -91.5 ± 7.2"),
}

COLUMNS = ["algorithm", "environment", "steps", "seeds", "mean", "IQM", "95 % interval", "lowest seed", "bar"]
COLUMNS += ["published", "s/seed"]


def measure(pair: str, seeds: int) -> dict:
    """Train and evaluate every seed of one pair in one program."""
    name, env_id = pair.split("/")
    module, settings = jaxrl.get_algo(name), tuned(name, env_id)
    env, params = jaxrl.make(env_id)
    algo, hyper = module.make(env, module.Config(**settings.config)), module.Hyper(**settings.hyper)

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, settings.total_steps, hyper, params)
        stats = evaluate(algo, algo.policy(state), env, params, eval_key, EPISODES, greedy=name == "dqn")
        return stats.returns.mean()

    # One seed after the other on a CPU, where a batch of small matrix products gains nothing; together elsewhere.
    every = jax.vmap(run) if jax.default_backend() != "cpu" else lambda keys: jax.lax.map(run, keys)
    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(every).lower(keys).compile()
    compiled = time.perf_counter()
    returns = np.asarray(program(keys), float)
    where = environment_of_run()
    return {
        "returns": returns.round(2).tolist(),
        "total_steps": settings.total_steps,
        "compile_seconds": round(compiled - begin, 1),
        "run_seconds_a_seed": round((time.perf_counter() - compiled) / seeds, 1),
        "date": where["started"][:10],
        "device": f"{where['device']}, {where['processors']} cores",
        "versions": ", ".join(f"{k} {where['versions'][k]}" for k in ("python", "jax", "jaxlib")),
    }


STUDIES = """
## Studies with a question of their own

Each has its command, settings, intervals and figures in its folder.

- [regret](../experiments/regret/README.md): bandit algorithms against bounds and published regrets, 1,000 runs each
- [effective horizon](../experiments/effective_horizon/README.md): PPO's and DQN's steps against GORP's bound, 63 MDPs
- [in context](../experiments/in_context/README.md): decision-pretrained transformers against Thompson sampling
- [SEQUOIA](../experiments/sequoia/README.md): combinatorial arg-max by HiGHS and enumeration, against Whittle indices
- [fishery](../experiments/fishery/README.md): PPO against tuned harvest rules
- [behaviour suite](../experiments/bsuite/README.md): how to score an algorithm
"""


def page(results: dict) -> str:
    lines = [
        "# Results",
        "",
        f"Mean return of {EPISODES} full episodes of the final policy, PPO sampled, DQN greedy. Settings: "
        "`jaxrl/tuned.toml`. Interval: 95 % bootstrap of the IQM over seeds. Made by "
        "`python experiments/results/run.py` (`make results`).",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for pair, row in results.items():
        name, env_id = pair.split("/")
        returns, (bar, published) = np.array(row["returns"]), TARGETS[pair]
        interval = "{:.1f} to {:.1f}".format(*bootstrap_interval(returns))
        cells = [name, env_id, f"{row['total_steps']:,}", len(returns), f"{returns.mean():.1f}", f"{iqm(returns):.1f}"]
        cells += [interval, f"{returns.min():.1f}", bar, published, row["run_seconds_a_seed"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    made = sorted({f"{row['date']}, {row['device']}, {row['versions']}" for row in results.values()})
    lines += ["", "Machine: " + "; ".join(made) + ". Seconds a seed exclude compilation; the machine was shared.", ""]
    return "\n".join(lines) + STUDIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS), metavar="ALGO/ENV")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for pair in args.only:
        results[pair] = measure(pair, args.seeds)
        results = {p: results[p] for p in TARGETS if p in results}
        file.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))
        print(pair, np.mean(results[pair]["returns"]).round(2), results[pair], flush=True)
    scores = {p: np.array(r["returns"]) / abs(TARGETS[p][0]) for p, r in results.items()}
    bars(scores, HERE / "results.png", "return over the bar's magnitude", {p: np.sign(TARGETS[p][0]) for p in scores})


if __name__ == "__main__":
    main()

"""How well does a policy do when its decisions are slow? SAC with repeated actions and SRL on Pendulum.

    python experiments/slow_decisions/run.py [--only "SAC repeat 4" SRL] [--seeds 5]

The frequency-averaged score (FAS) of Patel and Siegelmann (2025): the return, from -1,550 as 0 to -200 as 1, where a
decision is taken every 1, 2, 4, 6 ... 30 steps; the area over these by the trapezoidal rule, divided by 30. Goes on
where it stopped: a row of results.json is one learner and seed. Prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import sac, srl
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.wrappers import ActionRepeat

FILE = Path(__file__).with_name("results.json")
STEPS = 30_000  # of the task, whatever is repeated
HOLDS = (1, *range(2, 31, 2))
WORST, SPAN = -1550.0, 1350.0  # the authors', of Pendulum
SMALL = dict(hidden=(64, 64), batch_size=128), dict(learning_rate=1e-3, alpha_learning_rate=1e-3, gamma=0.98), 1_000
AUTHORS = {}, {}, 10_000  # 256 x 256, batches of 256, 3e-4: SAC's defaults here, too
REPEATS = (1, 2, 4, 8, 16)
LEARNERS = {
    "SRL": (srl, 1, SMALL),
    **{f"SAC repeat {n}": (sac, n, SMALL) for n in REPEATS},
    "SAC repeat 8, 8 updates a decision": (sac, 8, ({**SMALL[0], "num_updates": 8}, *SMALL[1:])),
    **{f"SAC repeat {n}, authors' settings": (sac, n, AUTHORS) for n in REPEATS},
}


def measure(name: str, seed: int) -> dict:
    """Returns of the final policy at each number of steps between decisions, ten greedy episodes each."""
    module, repeat, (config, hyper, starts) = LEARNERS[name]
    env, params = jaxrl.make("Pendulum-v1")
    config = module.Config(**config, **({"sequence_length": 16} if module is srl else {}))
    algo = module.make(ActionRepeat(env, repeat), config)
    hyper = module.Hyper(**hyper, learning_starts=starts // repeat)

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, STEPS // repeat, hyper, params)
        policy = algo.policy(state)

        def judged(hold):
            return evaluate(algo, policy, eval_key, env, num_episodes=10, greedy=True, hold=hold).returns.mean()

        return jax.lax.map(judged, jnp.array(HOLDS))

    program = jax.jit(run).lower(jax.random.key(0)).compile()
    begin = time.process_time()
    returns = np.asarray(program(jax.random.key(seed)))
    return {"returns": returns.round(1).tolist(), "cpu_seconds": round(time.process_time() - begin, 1)}


def score(returns) -> float:
    """The FAS of returns at `HOLDS`."""
    return float(np.trapezoid((np.asarray(returns) - WORST) / SPAN, HOLDS) / HOLDS[-1])


def table(rows: dict) -> None:
    print("| learner | FAS, mean (deviation) | return at 1 | at 4 | at 8 | at 16 | at 30 | seeds | CPU s a seed |")
    print("|" + "---|" * 9)
    for name in LEARNERS:
        found = [rows[key] for key in sorted(rows) if key.rpartition("/")[0] == name]
        if found:
            returns = np.mean([row["returns"] for row in found], 0)
            scores = [score(row["returns"]) for row in found]
            shown = " | ".join(f"{returns[HOLDS.index(n)]:.0f}" for n in (1, 4, 8, 16, 30))
            ends = f"{len(found)} | {np.median([row['cpu_seconds'] for row in found]):.0f}"
            print(f"| {name} | {np.mean(scores):.3f} ({np.std(scores):.3f}) | {shown} | {ends} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(LEARNERS), choices=LEARNERS, metavar="LEARNER")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    rows = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in args.only:
        for seed in range(args.seeds):
            if f"{name}/{seed}" not in rows:
                rows[f"{name}/{seed}"] = {**measure(name, seed), "where": environment_of_run()}
                lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
                FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
                print(name, seed, round(score(rows[f"{name}/{seed}"]["returns"]), 3), flush=True)
    table(rows)


if __name__ == "__main__":
    main()

"""Does SQIRL solve what PPO and DQN solve? The MDPs of run.py, and how its steps go with theirs.

    python experiments/effective_horizon/shallow.py [--seeds 3]

SQIRL with each of `SETTINGS` (k, m), m episodes a phase and k heads; its steps on an MDP are T^2 m of the cheapest
setting whose policy is the optimum's, as near as run.py asks for, in most seeds. Writes shallow.json, goes on where it
stopped, and prints the table of README.md. It reads what results.json has of PPO and DQN.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from measure import curves, first_step
from picture import correlation
from tasks import ACTIONS, HORIZON, Seen, study

from jaxrl.algos import sqirl
from jaxrl.exact.mdp import TableParams
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
SETTINGS = [(k, m) for k in (1, 2, 3) for m in (4, 16, 64)]
HYPER = sqirl.Hyper(learning_rate=3e-3)


def measure(k, m, rows, seeds):
    """Of each MDP, the share of seeds whose last policy is the optimum's."""
    tables = [TableParams(four, jnp.int32(limit)) for _, limit, _, _, four in study()]
    params = jax.tree.map(lambda *x: jnp.stack(x), *tables)
    env = Seen(tables[0].mdp.num_states, ACTIONS, id="Seen")
    algo = sqirl.make(env, sqirl.Config(m, HORIZON, k, num_gradient_steps=100, batch_size=128, hidden=(32,)))
    values, seconds = curves(algo, HYPER, HORIZON, HORIZON, params, seeds)
    return {"solved": np.isfinite(first_step(values, rows, 1)).mean(-1).tolist(), "seconds": round(seconds, 1)}


def report(rows, found):
    """How many MDPs each learner solves, and rank correlations of its steps with those of the others."""
    kinds = {"all": np.ones(len(rows), bool), "deterministic": np.array([row["deterministic"] for row in rows])}
    kinds["stochastic"] = ~kinds["deterministic"]
    steps = np.full(len(rows), np.inf)
    for k, m in SETTINGS:
        cost = np.array([row["T"] ** 2 * m for row in rows], float)
        steps = np.where(np.array(found[f"{k} {m}"]["solved"]) > 0.5, np.minimum(steps, cost), steps)
    reached = {n: np.nan_to_num(np.array([r[n] for r in rows], float), nan=np.inf) for n in ("ppo", "dqn")}
    others = {n: np.median(x, -1) for n, x in reached.items()}
    others["either"] = np.minimum(others["ppo"], others["dqn"])
    head = ["MDPs", "SQIRL solves", "PPO", "DQN", "of those that PPO or DQN solves", "of the others"]
    print(f"| {' | '.join([*head, 'rank with PPO', 'with DQN'])} |\n|" + "---|" * 8)
    solved = np.isfinite(steps)
    for kind, mask in kinds.items():
        cells = [f"{solved[mask].sum()}", *(f"{np.isfinite(others[n])[mask].sum()}" for n in ("ppo", "dqn"))]
        for some in (np.isfinite(others["either"]) & mask, ~np.isfinite(others["either"]) & mask):
            cells.append(f"{solved[some].sum()} of {some.sum()}")
        for n in ("ppo", "dqn"):
            ranks = (np.where(np.isfinite(x), x, 1e9)[mask] for x in (steps, others[n]))  # never: later than all
            cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*correlation(*ranks, np.random.default_rng(0))))
        print(f"| {kind} ({mask.sum()}) | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    file, rows = HERE / "shallow.json", json.loads((HERE / "results.json").read_text())["rows"]
    found = json.loads(file.read_text())["settings"] if file.exists() else {}
    for k, m in SETTINGS:
        if f"{k} {m}" not in found:
            found[f"{k} {m}"] = measure(k, m, rows, args.seeds)
            out = {"seeds": args.seeds, "settings": found, "where": environment_of_run()}
            file.write_text(json.dumps(out, indent=1) + "\n")
            print(k, m, np.mean(np.array(found[f"{k} {m}"]["solved"]) > 0.5), found[f"{k} {m}"]["seconds"], flush=True)
    report(rows, found)


if __name__ == "__main__":
    main()

"""Does SQIRL solve what PPO and DQN solve? The MDPs of run.py, and how its steps go with theirs.

    python experiments/effective_horizon/shallow.py [--seeds 3]

SQIRL has k heads and m episodes a phase, by each of `SETTINGS`. An MDP counts as solved by a setting if the last policy
of most seeds is optimal, as near as run.py asks for. Its steps are then T^2 m, of the cheapest such setting. Writes
shallow.json, goes on where it stopped, and prints the tables of README.md. PPO's and DQN's steps are of results.json.
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
    solved = np.isfinite(first_step(values, rows, 1)).mean(-1).tolist()
    return {"seeds": seeds, "solved": solved, "seconds": round(seconds, 1), "where": environment_of_run()}


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
    print("\n| SQIRL | " + " | ".join(f"m = {m}" for m in (4, 16, 64)) + " |\n|" + "---|" * 4)
    for k in (1, 2, 3):
        counts = [np.sum(np.array(found[f"{k} {m}"]["solved"]) > 0.5) for m in (4, 16, 64)]
        print(f"| k = {k} | {' | '.join(map(str, counts))} |")
    least = np.array([row["min_k"] for row in rows])
    print(f"least k = 1: {solved[least == 1].sum()} of {(least == 1).sum()}; above: {solved[least > 1].sum()}")
    for n in ("ppo", "dqn"):
        both = solved & np.isfinite(others[n])
        r = correlation(steps[both], others[n][both], np.random.default_rng(0))
        print(n, "solved by both", both.sum(), "{:.2f} [{:.2f}, {:.2f}]".format(*r))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    file, rows = HERE / "shallow.json", json.loads((HERE / "results.json").read_text())["rows"]
    found = json.loads(file.read_text())["settings"] if file.exists() else {}
    for k, m in SETTINGS:
        if found.get(f"{k} {m}", {}).get("seeds") != args.seeds:
            found[f"{k} {m}"] = measure(k, m, rows, args.seeds)
            file.write_text(json.dumps({"settings": found}, indent=1) + "\n")
            print(k, m, np.mean(np.array(found[f"{k} {m}"]["solved"]) > 0.5), found[f"{k} {m}"]["seconds"], flush=True)
    report(rows, found)


if __name__ == "__main__":
    main()

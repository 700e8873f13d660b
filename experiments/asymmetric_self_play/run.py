"""Does a player who is paid for the other's trouble propose better goals than a random walk? Alice and Bob in mazes.

    python experiments/asymmetric_self_play/run.py [--mazes 10] [--only self-play]

Writes results.json beside this file after each maze, goes on where it stopped, and prints the table of README.md.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from two_players import BUDGETS, SETTINGS, maze, play

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
ARMS = "self-play", "random walk", "any cell"


def measure(arm, number):
    """Of one maze: at each budget the share of cells that Bob reaches by a shortest way, rounds, distance of goals."""
    step, distance = maze(number)
    run = jax.jit(lambda key: play(key, arm, step, jnp.asarray(distance)))
    needed, rounds, asked = (np.asarray(x) for x in run(jax.random.key(number)))
    shortest = (needed == distance)[:, 1:].mean(-1)
    return {
        "shortest": shortest.round(4).tolist(),
        "rounds": rounds.tolist(),
        "asked": asked.astype(float).round(1).tolist(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mazes", type=int, default=10)
    parser.add_argument("--only", choices=ARMS)
    args = parser.parse_args()
    path = HERE / "results.json"
    file = json.loads(path.read_text()) if path.exists() else {}
    if file.get("settings") != SETTINGS:
        file = {"settings": SETTINGS, "found": {}}
    for number in range(args.mazes):
        for arm in [args.only] if args.only else ARMS:
            if f"{arm}/{number}" not in file["found"]:
                file["found"][f"{arm}/{number}"] = measure(arm, number)
                path.write_text(json.dumps(file | {"where": environment_of_run()}, indent=1) + "\n")
    heads = [f"{budget:,} steps" for budget in BUDGETS]
    print(f"| goals | {' | '.join(heads)} | rounds until then | distance of goals |\n|" + "---|" * (len(BUDGETS) + 3))
    of = {arm: [x for name, x in file["found"].items() if name.startswith(arm)] for arm in ARMS}
    for arm, rows in of.items():
        shortest, rounds, asked = (np.array([row[name] for row in rows]) for name in ("shortest", "rounds", "asked"))
        cells = [arm, *map(told, shortest.T), f"{rounds[:, -1].mean():,.0f}"]
        cells.append(f"{asked[:, 0].mean():.0f}, {asked[:, -1].mean():.0f}")
        print(f"| {' | '.join(cells)} |")
    ours, walk = (np.array([row["shortest"] for row in of[arm]]) for arm in ARMS[:2])
    print(f"| self-play less the random walk | {' | '.join(map(told, (ours - walk).T))} | | |")


if __name__ == "__main__":
    main()

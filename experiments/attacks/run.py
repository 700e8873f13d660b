"""Who is the strongest attacker of what a policy sees, and are several policies better than one that is robust?

    python experiments/attacks/run.py [--only strength robust] [--seeds 10]

PPO on Pendulum-v1. `strength`: one policy a seed under random noise, the largest difference of actions, and a director
that has learned to attack it (PA-AD). `robust`: four policies a seed, trained in rounds against directors of four
strengths; a table of their returns under none, a weak and a strong director; Exp3-IX among them, as PROTECTED has it.
Goes on where it stopped: a row of results.json is one part and seed. Prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tasks

from jaxrl.exact import non_dominated
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

FILE = Path(__file__).with_name("results.json")
STRENGTHS, STEPS = (0.0, 0.05, 0.1, 0.2, 0.4), 300_000
TRAINED, AGAINST, ALONE, ROUNDS, STEPS_OF_ROUND = (0.0, 0.05, 0.1, 0.2), (0.0, 0.05, 0.15), 200_000, 3, 100_000


def of_strength(seed: int) -> dict:
    found = tasks.strength(jax.random.key(seed), jnp.array(STRENGTHS), STEPS)
    return {"returns": np.asarray(found).round(1).tolist()}


def of_robust(seed: int) -> dict:
    key = jax.random.key(1000 + seed)
    found = tasks.robust(key, jnp.array(TRAINED), jnp.array(AGAINST), ALONE, ROUNDS, STEPS_OF_ROUND)
    payoff = found.mean(-1)
    members = np.asarray(non_dominated.discover(payoff, size=len(TRAINED)).members)
    members = [int(i) for i in members if i >= 0]
    among = {"exp3": members, "exp3_of_all": range(len(TRAINED))}
    chosen = {name: tasks.chosen(jax.random.fold_in(key, 1), found[np.array(which)]) for name, which in among.items()}
    chosen = {name: np.asarray(x).round(1).tolist() for name, x in chosen.items()}
    return {"returns": np.asarray(payoff).round(1).tolist(), "members": members, **chosen}


PARTS = {"strength": of_strength, "robust": of_robust}


def told(values) -> str:
    low, high = bootstrap_interval(values)
    return f"{iqm(values):.0f} ({low:.0f} to {high:.0f})"


def tables(rows: dict) -> None:
    found = np.array([row["returns"] for name, row in rows.items() if name.startswith("strength/")])
    if len(found):
        print(f"| attack, {len(found)} victims | " + " | ".join(map(str, STRENGTHS)) + " |\n" + "|---" * 6 + "|")
        for i, kind in enumerate(tasks.ATTACKS):
            print(f"| {kind} | " + " | ".join(told(found[:, i, j]) for j in range(len(STRENGTHS))) + " |")
        lost = found[:, 1] - found[:, 2]
        print("| what a director costs more than the largest difference, victim by victim | ", end="")
        print(" | ".join(f"{told(x)}, {(x > 0).sum()} of {len(x)}" for x in lost.T) + " |")
    rows = [row for name, row in rows.items() if name.startswith("robust/")]
    if rows:
        found, exp3, of_all = (np.array([row[name] for row in rows]) for name in ("returns", "exp3", "exp3_of_all"))
        print(f"\n| policy, {len(rows)} seeds | none | weak | strong | mean |\n" + "|---" * 5 + "|")
        best = found[np.arange(len(rows)), found.mean(-1).argmax(1)]
        named = {f"trained under {x}": found[:, i] for i, x in enumerate(TRAINED)}
        named |= {"the best single one of each seed": best, "Exp3-IX among the non-dominated": exp3}
        named |= {"Exp3-IX among all four": of_all, "the best one under each attacker": found.max(1)}
        for name, of in named.items():
            print(f"| {name} | " + " | ".join(told(x) for x in (*of.T, of.mean(1))) + " |")
        less = {name: best.mean(1) - named[name].mean(1) for name in list(named)[-3:]}
        print("minus the best single one, seed by seed:", {name: told(-x) for name, x in less.items()})
        print("below -500 without an attacker:", (found[:, :, 0] < -500).sum(0), [row["members"] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    rows = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in [f"{part}/{seed}" for part in args.only for seed in range(args.seeds)]:
        if name not in rows:
            begin, (part, _, seed) = time.process_time(), name.partition("/")
            rows[name] = PARTS[part](int(seed))
            rows[name] |= {"cpu_seconds": round(time.process_time() - begin), "where": environment_of_run()}
            lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
            FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            print(name, rows[name]["returns"], rows[name].get("exp3", ""), rows[name]["cpu_seconds"], flush=True)
    tables(rows)


if __name__ == "__main__":
    main()

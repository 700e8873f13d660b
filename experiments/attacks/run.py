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
    exp3 = np.asarray(tasks.chosen(jax.random.fold_in(key, 1), found))
    return {
        "returns": np.asarray(payoff).round(1).tolist(),
        "members": [int(i) for i in members if i >= 0],
        "exp3": exp3.round(1).tolist(),
    }


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
    rows = [row for name, row in rows.items() if name.startswith("robust/")]
    if rows:
        found, exp3 = (np.array([row[name] for row in rows]) for name in ("returns", "exp3"))
        print(f"\n| policy, {len(rows)} seeds | none | weak | strong | mean |\n" + "|---" * 5 + "|")
        best = found[np.arange(len(rows)), found.mean(-1).argmax(1)]
        named = {f"trained at {x}": found[:, i] for i, x in enumerate(TRAINED)}
        named |= {"the best single one": best, "Exp3-IX among them": exp3, "hindsight": found.max(1)}
        for name, of in named.items():
            print(f"| {name} | " + " | ".join(told(x) for x in (*of.T, of.mean(1))) + " |")
        print("members of the non-dominated set:", [row["members"] for row in rows])


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

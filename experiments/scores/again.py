"""Are ten rows of ours, drawn at random and measured again with other seeds, where the table has them?

    python experiments/scores/again.py [--count 10] [--draw 1] [--minutes 5]

Drawn from ids whose row took at most so many minutes of training. As many seeds as the row has, none of them its own.
Told are whether the new value lies inside the row's interval, and whether the two intervals meet. Writes again.json
beside this file after each id and goes on where it was stopped, or where the row is another one by now; prints the
table of README.md.
"""

import argparse
import json
import random
from pathlib import Path

import hashes
import jax
from learners import learned
from references import average

from jaxrl import registry, scores
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
FIRST = 1000  # seed; the rows' own are below 10


def measure(id: str) -> dict:
    """The row of an id again."""
    name, settings = hashes.learner(id)
    score = scores.of(id)
    seeds = score.ours.about["seeds"]
    found = learned(id, name, settings, score.cap, (seeds, seeds), FIRST)
    values = found.returns / found.lengths if average(id) else found.returns
    return {"value": float(iqm(values)), "interval": [float(x) for x in bootstrap_interval(values)], "seeds": seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--draw", type=int, default=1, help="seed of the draw")
    parser.add_argument("--minutes", type=float, default=5)
    args = parser.parse_args()
    path = HERE / "again.json"
    file = json.loads(path.read_text()) if path.exists() else {}
    rows = {id: scores.of(id).ours for id in scores.ids() if registry.is_available(id)}
    if str(args.draw) not in file:  # a draw stays what it was when there are more rows
        minutes = {id: row.about["seconds"] * row.about["seeds"] / 60 for id, row in rows.items() if row}
        short = sorted(id for id in minutes if minutes[id] <= args.minutes)
        own = [id for id in short if "source" not in rows[id].about]  # those of experiments/results are that study's
        print(f"{len(own)} ids to draw from\n")
        file[str(args.draw)] = {id: {} for id in random.Random(args.draw).sample(own, args.count)}
    found = file[str(args.draw)]
    print("| id | algorithm | seeds | of record | again | inside | intervals meet |\n|---|---|---|---|---|---|---|")
    for id, new in found.items():
        old = rows[id]
        row = [old.about["code"], old.about["learner"]]
        if new.get("row") != row:
            new = found[id] = {**measure(id), "row": row, "where": environment_of_run()}
            path.write_text(json.dumps(file, indent=1) + "\n")
            jax.clear_caches()
        inside = old.interval[0] <= new["value"] <= old.interval[1]
        meet = old.interval[0] <= new["interval"][1] and new["interval"][0] <= old.interval[1]
        new |= {"inside": inside, "meet": meet}
        both = (old.value, *old.interval), (new["value"], *new["interval"])
        cells = [id, old.what, str(new["seeds"]), *("{:.4g} ({:.4g} to {:.4g})".format(*x) for x in both)]
        print(f"| {' | '.join(cells)} | {'yes' if inside else 'no'} | {'yes' if meet else 'no'} |", flush=True)
    path.write_text(json.dumps(file, indent=1) + "\n")
    for name in ("inside", "meet"):
        print(f"{name}: {sum(row[name] for row in found.values())} of {len(found)}")


if __name__ == "__main__":
    main()

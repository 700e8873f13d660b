"""Does `jaxrl train ENV` learn more than random actions, on twenty ids drawn at random?

    python experiments/scores/drawn.py [--count 20] [--draw 0]

Each id by the command as a newcomer types it, one seed, with the settings of record: its policy's mean return of 128
episodes, and whether that is above the interval of random's score. Writes drawn.json beside this file after each id
and goes on where it was stopped, or where the task's or the learner's code or settings are others; prints the table of
README.md.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hashes
import references

from jaxrl import registry, scores
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent


def train(id: str) -> dict:
    """What the command's summary says, and its seconds, compiling included."""
    with tempfile.TemporaryDirectory() as folder:
        out, begin = Path(folder) / "run", time.perf_counter()
        command = [sys.executable, "-m", "jaxrl", "train", id, "--seeds", "1", "--out", str(out), "--no-progress"]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = round(time.perf_counter() - begin)
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1:], "seconds": seconds}
        evaluated = json.loads((out / "evaluations.jsonl").read_text().splitlines()[-1])
        algo = json.loads((out / "config.json").read_text())["algorithm"]
        score = evaluated["return"][0] / (evaluated["length"][0] if references.average(id) else 1)
        return {"algo": algo, "steps": evaluated["step"], "score": score, "seconds": seconds}


def made_of(id: str) -> dict[str, str]:
    """Hashes of the task and of the learner of record."""
    ours = scores.of(id).ours
    algo = ours.what if ours else registry.family_algo(id)
    settings = registry.settings(algo, id) or registry.Tuned(0, {}, {})
    return {"code": hashes.of(id), "learner": hashes.of_learner(algo, settings)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--draw", type=int, default=0, help="seed of the draw")
    args = parser.parse_args()
    path = HERE / "drawn.json"
    file = json.loads(path.read_text()) if path.exists() else {}
    if str(args.draw) not in file:  # a draw stays what it was when there are more ids
        ids = sorted(id for id in registry.environments() if registry.is_available(id))
        file[str(args.draw)] = {id: {"error": "not yet"} for id in random.Random(args.draw).sample(ids, args.count)}
    found = file[str(args.draw)]
    print("| id | algorithm | steps | score | random, 95 % | above | s |\n|---|---|---|---|---|---|---|")
    for id, row in found.items():
        if "error" in row or any(row.get(name) != x for name, x in made_of(id).items()):
            found[id] = {**train(id), **made_of(id), "where": environment_of_run()}
            path.write_text(json.dumps(file, indent=1) + "\n")
        row, chance = found[id], scores.of(id).random
        if "error" in row:
            print(f"| {id} | {' '.join(row['error'])} | | | | no | {row['seconds']} |", flush=True)
            continue
        low, high = chance.interval or (chance.value, chance.value)
        row["above"] = row["score"] > high  # of random's mean: the policy's own noise is not counted
        cells = [id, row["algo"], f"{row['steps']:,}", f"{row['score']:.4g}", f"{low:.4g} to {high:.4g}"]
        print(f"| {' | '.join(cells)} | {'yes' if row['above'] else 'no'} | {row['seconds']} |", flush=True)
    path.write_text(json.dumps(file, indent=1) + "\n")
    print(f"{sum(row.get('above', False) for row in found.values())} of {len(found)} above random")


if __name__ == "__main__":
    main()

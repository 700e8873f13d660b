"""What is random worth on every id, what is good, and what did our learners get? Writes jaxrl/scores.toml.

    python experiments/scores/run.py random [--only "Maze*"]   # returns of random actions; goes on where it was stopped
    python experiments/scores/run.py reference                 # best returns, or what counts as solved
    python experiments/scores/run.py ours                      # the rows of experiments/results
    python experiments/scores/run.py learn [--only "Maze*"]    # of all other ids, by their family's recipe
    python experiments/scores/run.py page                      # docs/scores.md
    python experiments/scores/run.py same ppo_rnn              # after a change of its code that changes no number

Rows whose environment's, or learner's, code or settings have changed since (`hashes.py`) are measured again; `same`
keeps those of an algorithm that computes what it did, by `tools/fingerprints.py`.
"""

import argparse
import datetime
import fnmatch
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import hashes
import jax
import numpy as np
import optima
import references
from learners import learned
from page import PAGE, page
from references import BEST, average, averaged

import jaxrl
from jaxrl import registry, scores
from jaxrl.environment import NO_LIMIT
from jaxrl.envs.grid.maze import kit
from jaxrl.evaluation import episodes
from jaxrl.host.cli.experiment import ENDLESS
from jaxrl.host.data.recording import at_random
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "experiments" / "results" / "results.json"
BATCH, MOST, SECONDS = 64, 2048, 3
"""Episodes at once; at most in all; no further batch after so many seconds."""
LEVELS = 256
"""Levels whose best returns are averaged."""
SOLVED = {
    "Acrobot-v1": -100,
    "Reacher-v5": -3.75,
    "InvertedDoublePendulum-v5": 9100,
    "HalfCheetah-v5": 4800,
    "Hopper-v5": 3800,
    "Ant-v5": 6000,
}
"""The returns from which Gymnasium calls a task solved, `reward_threshold` in the registry of version 1.4."""
EXACT = {
    "GridWorld-*": None,
    "Darkroom-v0": None,
    "DelayedChain-v0": None,
    "Maze-*": kit.optimal_value,
}
"""Ids whose best return is known exactly, by their own `levels.optimal_value` (None) or by this function."""
SEARCHED = ("MiniGrid-", "BabyAI-")
"""Prefixes of ids whose best returns are searched for (`optima.py`)."""
OTHER_TASK = "*-MinAtar"
"""Of experiments/results, rows without sticky actions and with another time limit."""


def random_score(id: str) -> dict:
    # A program that runs for seconds is compiled with few optimisations, but for physics, which is slow.
    jax.config.update("jax_disable_most_optimizations", ".physics." not in str(registry.environments()[id].target))
    env, params = jaxrl.make(id)
    limit = int(np.max(np.asarray(params.max_steps)))
    cap = ENDLESS if limit == NO_LIMIT else limit
    act = at_random(env, params).act

    @jax.jit
    def batch(key):
        stats = episodes(act, (), key, env, params, num_episodes=BATCH, max_steps=cap)
        return stats.returns, stats.lengths

    found, began = [], 0.0
    while len(found) < MOST // BATCH and (len(found) < 2 or time.perf_counter() - began < SECONDS):
        returns, lengths = batch(jax.random.fold_in(jax.random.key(0), len(found)))
        began = began or time.perf_counter()  # the first one was compiled
        found.append((np.asarray(returns, float).reshape(BATCH, -1).mean(1), np.asarray(lengths)))
    returns, lengths = map(np.concatenate, zip(*found, strict=True))
    row = told(*averaged(returns, lengths)) if average(id) else mean(returns)
    return {**row, "episodes": returns.size, "cap": cap}


def reference_score(id: str) -> dict | None:
    """The best return that is known, or else that of who is accepted as good; None where random actions get more."""
    if (found := references.reference(id)) is not None:
        return found | told(found["value"], found.get("interval"))
    if id.startswith(SEARCHED):
        found = optima.optimum(id)
        return None if found is None else best_of(found["returns"])
    exact = [value for pattern, value in EXACT.items() if fnmatch.fnmatch(id, pattern)]
    if exact:
        env, params = jaxrl.make(id)
        best = exact[0] or env.levels.optimal_value
        if best is None:  # of objects that come back elsewhere none is known
            return None
        if not draws(env, params):
            return {**told(float(jax.jit(best)(params))), "what": BEST}
        levels = jax.vmap(env.levels.generate, (0, None))(jax.random.split(jax.random.key(0), LEVELS), params)
        return best_of(jax.jit(jax.vmap(best))(levels))
    if id in SOLVED:
        return {**told(SOLVED[id]), "what": "solved", "source": "reward_threshold of Gymnasium 1.4"}
    return None


def best_of(returns) -> dict:
    """The row of the best returns of drawn levels."""
    returns = np.asarray(returns, float)
    return {**mean(returns), "what": BEST, "levels": returns.size}


def mean(returns: np.ndarray) -> dict:
    return told(returns.mean(), bootstrap_interval(returns, np.mean))


def draws(env, params) -> bool:
    """Whether each reset draws a level: then params are no level, and have other leaves or other sizes."""
    if env.levels.generate is None:
        return False
    level = jax.eval_shape(env.levels.generate, jax.random.key(0), params)
    return jax.tree.structure(level) != jax.tree.structure(jax.eval_shape(lambda x: x, params))


def told(value: float, interval: tuple[float, float] | None = None) -> dict:
    row = {"value": digits(value), "date": datetime.date.today()}
    return row if interval is None else {**row, "interval": [digits(x) for x in interval]}


def digits(x: float) -> float:
    return float(f"{x:.4g}")


def learners() -> dict[str, dict]:
    """By id the best of the algorithms of experiments/results, by the lower end of the interval: a few lucky seeds are
    not enough.
    """
    best = {}
    for name, found in json.loads(RESULTS.read_text()).items():
        algo, id = name.split("/")
        row = told(iqm(found["returns"]), bootstrap_interval(found["returns"]))
        row |= {"what": algo, "steps": found["total_steps"], "seeds": len(found["returns"])}
        row |= {"seconds": found["run_seconds_a_seed"], "date": datetime.date.fromisoformat(found["date"])}
        row |= {"source": "docs/results.md"}
        if not fnmatch.fnmatch(id, OTHER_TASK) and (id not in best or row["interval"][0] > best[id]["interval"][0]):
            best[id] = row
    return best


def read() -> dict[str, dict]:
    return tomllib.loads(scores.FILE.read_text()) if scores.FILE.exists() else {}


ORDER = "value interval what steps seeds episodes levels batches seconds source code learner date".split()
HEAD = """# Scores of record by environment id, read by jaxrl.scores, made by `make baselines`: returns, undiscounted,
# or with `average` the average reward of a step.
# cap: steps after which an episode was cut. random: uniform actions, mean of episodes. reference: the best there is, or
# what counts as solved. ours: the best of our learners, IQM of seeds. Intervals: 95 %. code: a hash of the task's;
# learner: of the algorithm's and its settings. no_reference: the code for which none was found."""


def write(table: dict[str, dict]) -> None:
    lines = [HEAD]
    for id in sorted(table, key=str.lower):
        lines += ["", f"[{json.dumps(id)}]", f"cap = {table[id]['cap']}"]
        if average(id):
            lines.append("average = true")
        if "no_reference" in table[id]:
            lines.append(f"no_reference = {json.dumps(table[id]['no_reference'])}")
        for kind in ("random", "reference", "ours"):
            if row := table[id].get(kind):
                values = {name: row[name] for name in ORDER if name in row}
                words = {name: str(x) if isinstance(x, datetime.date) else json.dumps(x) for name, x in values.items()}
                lines.append(f"{kind} = {{ {', '.join(f'{name} = {word}' for name, word in words.items())} }}")
    new = scores.FILE.with_name("new-scores.toml")
    new.write_text("\n".join(lines) + "\n")
    new.replace(scores.FILE)


def measure(kind: str, ids: list[str]) -> None:
    """Rows of a kind, each written when it is there; ids without one, or with one of other code."""
    began, failed, left = time.process_time(), [], [id for id in ids if hashes.stale(id, kind, read().get(id, {}))]
    for i, id in enumerate(left):
        try:
            row = {"random": random_score, "reference": reference_score, "ours": learned_score}[kind](id)
        except Exception as error:  # the others are measured all the same
            failed.append(id)
            print(f"{id}: {error!r}", flush=True)
            continue
        table = read()  # again: another process may have added to it
        if kind != "random" and id not in table:
            continue
        rows = table.setdefault(id, {})
        if kind == "reference":
            rows.pop("no_reference", None)
        if row is None:
            rows.pop(kind, None)
            rows["no_reference"] = hashes.of(id)
        else:
            rows |= {"cap": row.pop("cap")} if "cap" in row else {}
            rows[kind] = {**row, "code": hashes.of(id)}
        write(table)
        jax.clear_caches()
        minutes = (time.process_time() - began) / (i + 1) * (len(left) - i - 1) / 60
        found = "no reference" if row is None else f"{row['value']} {row.get('interval', '')}"
        print(f"{id:32} {found} {minutes:.0f} CPU minutes left", flush=True)
    if failed:
        raise SystemExit(f"Not measured: {' '.join(failed)}")


def learned_score(id: str) -> dict:
    name, settings = hashes.learner(id)
    found = learned(id, name, settings, read()[id]["cap"])
    values = found.returns / found.lengths if average(id) else found.returns
    row = {**told(iqm(values), bootstrap_interval(values)), "what": name, "steps": settings.total_steps}
    row |= {"seeds": len(values), "seconds": digits(found.seconds)}
    return {**row, "learner": hashes.of_learner(name, settings)}


def keep(algo: str) -> None:
    """Renews the hashes of rows whose algorithm has other code, and computes what is stored of it (`fingerprints.py`:
    small learners, to a relative 1e-9), with the settings of these cases.
    """
    table = read()
    ids = [id for id, rows in table.items() if hashes.other_code(id, rows) and rows["ours"]["what"] == algo]
    cases = [algo, *(f"{algo}{mark}*" for mark in "+@")]
    stored = json.loads((ROOT / "tests" / "golden" / "fingerprints.json").read_text())["cases"]
    if not any(fnmatch.fnmatchcase(x, case) for x in stored for case in cases):
        raise SystemExit(f"{algo} has no stored fingerprint: measure its rows again.")
    command = [sys.executable, "tools/fingerprints.py", "compare", "tests/golden/fingerprints.json", "--only", *cases]
    if ids and subprocess.run(command, cwd=ROOT).returncode:
        raise SystemExit(f"{algo} computes other numbers than before: measure its rows again.")
    changed = {table[id]["ours"]["learner"]: hashes.of_learner(*hashes.learner(id)) for id in ids}
    for id in ids:
        table[id]["ours"]["learner"] = changed[table[id]["ours"]["learner"]]
    write(table)
    for file in (HERE / "again.json", HERE / "drawn.json"):  # rows of the same learners
        words = file.read_text()
        for old, new in changed.items():
            words = words.replace(f'"{old}"', f'"{new}"')
        file.write_text(words)
    print(f"{len(ids)} rows of {algo} are kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["random", "reference", "ours", "learn", "page", "same"])
    parser.add_argument("algo", nargs="?", help="of `same`")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of ids")
    args = parser.parse_args()
    if args.part == "page":
        PAGE.write_text(page())
    elif args.part == "same":
        keep(args.algo or parser.error("same: of which algorithm?"))
    elif args.part == "ours":
        table, best = read(), learners()
        write({id: {**row, "ours": best[id]} if id in best else row for id, row in table.items()})
    else:
        ids = [id for id in registry.environments() if any(fnmatch.fnmatch(id, x) for x in args.only)]
        measure({"learn": "ours"}.get(args.part, args.part), [id for id in ids if registry.is_available(id)])


if __name__ == "__main__":
    main()

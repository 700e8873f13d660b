"""Does a transformer pretrained on other tasks explore like Thompson sampling, or learn as what it was distilled from?

    python experiments/in_context/run.py [--only gaussian linear darkroom permuted] [--train] [--tasks 256]

Two bandits and two kinds of dark room, each with a network trained on best actions (DPT) and one trained on learning
histories (AD). Pretrains where there are no weights yet (`--train`: anyway), evaluates on fresh tasks, and writes
results.json and a figure for each.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from measure import figure, levels_of, offline, offline_room, online, online_rival, summary
from pretrain import load, pretrain
from tasks import TASKS, Task

from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
EPISODES, COPIES = 40, 2  # of a room, and tasks of each held-out goal or permutation
OFFLINE = 200  # steps of the context, two episodes
AT = [0, 1, 2, 5, 10, 20, 50, 100, 200, 499]  # context lengths of the offline comparison


class Network(NamedTuple):
    """What pretraining left."""

    task: Task
    weights: object
    curve: list
    seconds: float


def bandit(networks: dict[str, Network], tasks: int, keys) -> tuple[dict, dict]:
    """Cumulative regret, (T, E) each, and what of it goes into the table."""
    task = networks["DPT"].task
    rounds, levels = int(task.params.max_steps), levels_of(task, keys[0], tasks)
    runs = {
        name: online(n.task, n.task.algorithm(rounds, 8), n.weights, levels, keys[1], rounds)
        for name, n in networks.items()
    }
    runs |= {name: online_rival(rival, levels, keys[2], rounds) for name, rival in task.rivals.items()}
    regret = {name: x["regret"].cumsum(0) for name, x in runs.items()}
    result = {"rounds": rounds, "tasks": tasks, "regret": {name: summary(x[-1]) for name, x in regret.items()}}
    # The same tasks, so their means vary together: a bootstrap over tasks.
    draw = np.random.default_rng(0).integers(0, tasks, (2000, tasks))
    result["ratio"] = {}
    for name in networks:
        for rival in task.rivals:
            ours, theirs = regret[name][-1], regret[rival][-1]
            interval = np.quantile(ours[draw].mean(1) / theirs[draw].mean(1), [0.025, 0.975]).round(3)
            ratio = round(float(ours.mean() / theirs.mean()), 3)
            result["ratio"][f"{name} / {rival}"] = {"mean": ratio, "interval": interval.tolist()}
    return result, regret


def rooms(networks: dict[str, Network], keys) -> tuple[dict, dict]:
    """Return of each episode, (episodes, E), on goals or permutations that were never seen in pretraining."""
    task = networks["DPT"].task
    levels = jax.tree.map(lambda x: jnp.repeat(x, COPIES, 0), task.held_out)
    steps = EPISODES * int(task.params.max_steps)
    runs, after = {}, {}
    for name, n in networks.items():
        algo = n.task.algorithm(n.task.context, 8)
        runs[name] = online(n.task, algo, n.weights, levels, keys[1], steps)
        for mode, greedy in (("greedy", True), ("sampled", False)):
            after[f"{name}, {mode}"] = offline_room(task, algo, n.weights, levels, keys[3], OFFLINE, greedy)
    runs |= {name: online_rival(rival, levels, keys[2], steps) for name, rival in task.rivals.items()}
    returns = {name: x["reward"].reshape(EPISODES, -1, x["reward"].shape[1]).sum(1) for name, x in runs.items()}
    best = np.asarray(jax.vmap(task.env.env.optimal_value)(levels))
    returns["optimal"] = np.broadcast_to(best, returns["DPT"].shape)
    table = {name: summary(x) for name, x in returns.items()}
    late = {name: summary(x[-10:].mean(0)) for name, x in returns.items()}
    offline_table = {name: summary(x) for name, x in after.items()}
    return {"tasks": len(best), "return": table, "last ten": late, "offline": offline_table}, returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--tasks", type=int, default=256, help="fresh bandits of the evaluation")
    args = parser.parse_args()
    file = HERE / "results.json"
    for name in args.only:
        task, networks = TASKS[name](), {}
        for kind, twin, stem in (("DPT", task, name), ("AD", task.distilled(), f"{name}_ad")):
            saved = HERE / "weights" / f"{stem}.npz"
            if args.train or not saved.exists():
                pretrain(twin, saved)
            networks[kind] = Network(twin, *load(twin, saved))
        keys, where = jax.random.split(jax.random.key(2), 4), environment_of_run()
        if task.held_out is None:
            result, runs = bandit(networks, args.tasks, keys)
            titles = "online", "round", "regret"
        else:
            result, runs = rooms(networks, keys)
            titles = "held-out tasks", "episode", "return"
        panels = [(*titles, {k: (np.arange(1, len(v) + 1), v) for k, v in runs.items()})]
        if name == "gaussian":
            config, weights = task.algorithm(500, 8).config, networks["DPT"].weights
            loss = offline(task, config, weights, levels_of(task, keys[0], 2048), keys[3], AT)
            result["offline"] = {"context": AT, **{k: summary(v) for k, v in loss.items()}}
            panels.append(("offline", "steps in the context", "suboptimality", {k: (AT, v) for k, v in loss.items()}))
        curves = {kind: np.asarray(n.curve) for kind, n in networks.items()}
        entropy = {kind: (curve[:, 1] / 1e6, curve[:, 2]) for kind, curve in curves.items()}
        panels.append(("pretraining", "million steps", "cross-entropy [nats]", entropy))
        figure(HERE / f"{name}.png", panels)
        result["pretraining"] = {
            kind: {"steps": int(n.curve[-1][1]), "cpu_seconds": round(n.seconds), "loss": n.curve[-1][2]}
            for kind, n in networks.items()
        }
        result["date"], result["device"] = where["started"][:10], f"{where['device']}, {where['processors']} cores"
        results = json.loads(file.read_text()) if file.exists() else {}
        results[name] = result | {"versions": {k: where["versions"][k] for k in ("python", "jax", "jaxlib")}}
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(name, results[name], flush=True)


if __name__ == "__main__":
    main()

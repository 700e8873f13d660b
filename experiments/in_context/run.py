"""Does a transformer pretrained on other tasks explore like Thompson sampling? Two bandits and a dark room.

    python experiments/in_context/run.py [--only gaussian linear darkroom] [--train] [--tasks 256]

Pretrains where there are no weights yet (`--train`: anyway), evaluates on fresh tasks, and writes results.json and a
figure for each.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from measure import figure, levels_of, offline, online, online_rival, summary
from pretrain import load, pretrain
from tasks import TASKS, Task, goals

from jaxrl.host.run_folder import environment_of_run

HERE = Path(__file__).parent
EPISODES, COPIES, CONTEXT = 40, 2, 200  # of Darkroom: episodes a task, tasks a held-out goal, steps remembered
AT = [0, 1, 2, 5, 10, 20, 50, 100, 200, 499]  # context lengths of the offline comparison


def bandit(task: Task, weights, tasks: int, keys) -> tuple[dict, dict]:
    """Cumulative regret, (T, E) each, and what of it goes into the table."""
    rounds, levels = int(task.params.max_steps), levels_of(task, keys[0], tasks)
    runs = {"DPT": online(task, task.algorithm(rounds, 8), weights, levels, keys[1], rounds)}
    runs |= {name: online_rival(rival, levels, keys[2], rounds) for name, rival in task.rivals.items()}
    regret = {name: x["regret"].cumsum(0) for name, x in runs.items()}
    result = {"rounds": rounds, "tasks": tasks, "regret": {name: summary(x[-1]) for name, x in regret.items()}}
    sampling = regret["Thompson sampling" if "Thompson sampling" in regret else "LinTS"][-1]
    # The same tasks, so their means vary together: a bootstrap over tasks.
    draw = np.random.default_rng(0).integers(0, tasks, (2000, tasks))
    ratio = regret["DPT"][-1][draw].mean(1) / sampling[draw].mean(1)
    result["ratio_to_thompson"] = round(float(regret["DPT"][-1].mean() / sampling.mean()), 3)
    result["ratio_interval"] = np.quantile(ratio, [0.025, 0.975]).round(3).tolist()
    return result, regret


def rooms(task: Task, weights, keys) -> tuple[dict, dict]:
    """Return of each episode, (episodes, E), on goals that were never the goal in pretraining."""
    levels = jax.vmap(lambda goal: task.params.replace(goal=goal))(jnp.repeat(goals(held_out=True), COPIES))
    steps = EPISODES * int(task.params.max_steps)
    runs = {"DPT": online(task, task.algorithm(CONTEXT, 8), weights, levels, keys[1], steps)}
    runs |= {name: online_rival(rival, levels, keys[2], steps) for name, rival in task.rivals.items()}
    returns = {name: x["reward"].reshape(EPISODES, -1, x["reward"].shape[1]).sum(1) for name, x in runs.items()}
    best = np.asarray(jax.vmap(task.env.env.optimal_value)(levels))
    returns["optimal"] = np.broadcast_to(best, returns["DPT"].shape)
    return {"tasks": len(best), "return": {name: summary(x) for name, x in returns.items()}}, returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--tasks", type=int, default=256, help="fresh bandits of the evaluation")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for name in args.only:
        task, saved = TASKS[name](), HERE / "weights" / f"{name}.npz"
        if args.train or not saved.exists():
            pretrain(task, saved)
        weights, curve, seconds = load(task, saved)
        keys, where = jax.random.split(jax.random.key(2), 4), environment_of_run()
        if name == "darkroom":
            result, runs = rooms(task, weights, keys)
            panels = [
                ("held-out goals", "episode", "return", {k: (np.arange(1, len(v) + 1), v) for k, v in runs.items()})
            ]
        else:
            result, runs = bandit(task, weights, args.tasks, keys)
            panels = [("online", "round", "regret", {k: (np.arange(1, len(v) + 1), v) for k, v in runs.items()})]
        if name == "gaussian":
            loss = offline(task, task.algorithm(500, 8).config, weights, levels_of(task, keys[0], 2048), keys[3], AT)
            result["offline"] = {"context": AT, **{k: summary(v) for k, v in loss.items()}}
            panels.append(("offline", "steps in the context", "suboptimality", {k: (AT, v) for k, v in loss.items()}))
        tokens, cross_entropy = np.asarray(curve)[:, 1] / 1e6, np.asarray(curve)[:, 2]
        panels.append(("pretraining", "million steps", "cross-entropy [nats]", {"": (tokens, cross_entropy)}))
        figure(HERE / f"{name}.png", panels)
        result["pretraining"] = {"steps": int(curve[-1][1]), "cpu_seconds": round(seconds), "loss": curve[-1][2]}
        result["date"], result["device"] = where["started"][:10], f"{where['device']}, {where['processors']} cores"
        results[name] = result | {"versions": {k: where["versions"][k] for k in ("python", "jax", "jaxlib")}}
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(name, results[name], flush=True)


if __name__ == "__main__":
    main()

"""What do the offline learners reach on data of our own, and what after so many episodes of tuning?

    python experiments/offline_returns/run.py [--only Hopper-v5 ...] [--seeds 10] [--settings 1]

Writes results.json (a learner at a time, so that an interrupted run loses nothing), results.png and the tables of
README.md. `--picture`: the figure and the tables again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrl
from jaxrl.data import datasets
from jaxrl.environment import strongly_typed
from jaxrl.envs.classic.pendulum import Pendulum
from jaxrl.evaluation import evaluate
from jaxrl.host.data import dataset_recipes
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told, tuned_online

HERE = Path(__file__).parent
EPISODES = 64
AFTER = (1, 8, 50, 200)  # episodes of tuning in the table


class Data(NamedTuple):
    recipe: str
    steps: int
    gradient_steps: int
    algo: str = "auto"
    published: dict[str, float] = {}  # of D4RL's set of that name, as CORL has them
    batch_size: int = 64
    learning_rate: float = 1e-3


DEGREES = "Pendulum-v1, degrees"
IN_DEGREES = np.float32([1, 1, 180 / np.pi])


class PendulumInDegrees(Pendulum):
    """Its angular velocity in degrees per second."""

    def observe(self, key, state, params):
        return super().observe(key, state, params) * IN_DEGREES


DATA = {
    "Pendulum-v1": Data("medium-replay", 10_000, 10_000),
    DEGREES: Data("medium-replay", 10_000, 10_000),
    "MountainCarContinuous-v0": Data("medium-replay", 10_000, 10_000, "ppo"),
    "InvertedPendulum-v5": Data("medium-replay", 10_000, 10_000, "ppo"),
    "Hopper-v5": Data(
        "medium",
        100_000,
        100_000,
        "ppo",
        {"bc": 53.5, "td3_bc": 60.4, "iql": 67.5, "cql": 59.1, "awac": 63.2, "rebrac": 102.3, "edac": 101.7},
        256,
        3e-4,
    ),
}
HIDDEN = (64, 64)
CONFIG = {
    "edac": {"num_critics": 5},
    "td3_bc raw": {"normalize_obs": False},
    "iql normalised": {"normalize_obs": True},
}
SETTINGS: dict[str, list[dict[str, float]]] = {
    "bc": [{}],
    "td3_bc": [{"alpha": x} for x in (2.5, 1.0, 10.0)],
    "rebrac": [{"actor_penalty": x, "critic_penalty": x} for x in (0.01, 0.1, 0.001)],
    "iql": [{"expectile": x, "beta": 3.0} for x in (0.7, 0.9, 0.5)],
    "awac": [{"temperature": x} for x in (1.0, 0.3, 3.0)],
    "cql": [{"min_q_weight": x} for x in (5.0, 1.0, 0.2)],
    "edac": [{"diversity": x} for x in (1.0, 0.0, 5.0)],
}
SETTINGS |= {name: SETTINGS[name.split()[0]] for name in ("td3_bc raw", "iql normalised")}
"""The first are the table's."""


def task(env_id: str) -> tuple[Any, Any]:
    """`(env, params)`."""
    env, params = jaxrl.make(env_id.partition(",")[0])
    return (PendulumInDegrees(), params) if env_id == DEGREES else (env, params)


def measure(env_id: str, name: str, dataset: Any, seeds: int, settings: list[dict[str, float]]) -> dict[str, Any]:
    """Train and evaluate every setting and seed of a learner in one program: returns (settings, seeds, EPISODES)."""
    env, params = task(env_id)
    module, data = jaxrl.get_algo(name.split()[0]), DATA[env_id]
    shared = {"hidden": HIDDEN, "batch_size": data.batch_size, "num_updates": 100}
    config = module.Config(**{**shared, **CONFIG.get(name, {})})
    algo = module.make(env, config, replay=datasets.stored(dataset, env.action_space(params)))
    hypers = [strongly_typed(module.Hyper(learning_rate=data.learning_rate, **setting)) for setting in settings]
    hyper = jax.tree.map(lambda *x: np.repeat(np.stack(x), seeds, 0), *hypers)

    def run(arguments):
        key, hyper = arguments
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, data.gradient_steps, hyper, params)
        return evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=EPISODES, greedy=True).returns

    keys = jax.random.wrap_key_data(
        np.tile(jax.random.key_data(jax.random.split(jax.random.key(0), seeds)), (len(hypers), 1))
    )
    begin = time.perf_counter()
    # One after the other: on a CPU a batch of small matrix products gains nothing.
    returns = np.asarray(jax.jit(lambda x: jax.lax.map(run, x))((keys, hyper)), float)
    return {
        "settings": settings,
        "returns": returns.reshape(len(hypers), seeds, EPISODES).round(2).tolist(),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def score(returns: Any, reference: dict[str, float]) -> np.ndarray:
    """Between uniform actions (0) and the best that is known (1)."""
    return (np.asarray(returns) - reference["random"]) / (reference["best"] - reference["random"])


def report(results: dict[str, Any]) -> None:
    """The tables and the figure."""
    panels = {}
    for env_id, found in results["data"].items():
        published = DATA[env_id].published
        learners = {name: found["learners"][name] for name in SETTINGS if name in found["learners"]}
        scores = {name: score(row["returns"], found["reference"]) for name, row in learners.items()}
        tuned = {name: tuned_online(100 * x.reshape(-1, EPISODES)).mean(0) / 100 for name, x in scores.items()}
        mean, random, best = (found["reference"][x] for x in ("mean", "random", "best"))
        print(f"\n{env_id}, {DATA[env_id].recipe}: {mean:.0f} a mean episode, uniform {random:.0f}, best {best:.0f}\n")
        extra = ["CORL"] if published else []
        print(
            "| "
            + " | ".join(["", "score, IQM", "95 % interval", "return", *(f"tuned, {n}" for n in AFTER), *extra])
            + " |"
        )
        print("|" + "---|" * (4 + len(AFTER) + len(extra)))
        for name, x in scores.items():
            seeds = x[0].mean(-1)
            returns = np.mean(found["learners"][name]["returns"][0])
            cells = [name, told(seeds, cells=True), f"{returns:,.0f}"]
            cells += [f"{tuned[name][n - 1]:.2f}" for n in AFTER]
            print(
                "| " + " | ".join([*cells, *([f"{published[name.split()[0]] / 100:.2f}"] if published else [])]) + " |"
            )
        panels[f"{env_id}, {DATA[env_id].recipe}"] = {n: (np.arange(1, 201), x[None]) for n, x in tuned.items()}
    curves_by_task(panels, HERE / "results.png", "score", "episodes of tuning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--learners", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--settings", type=int, default=3, help="how many of each learner")
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"data": {}}
    for env_id in [] if args.picture else args.only:
        data, (env, params) = DATA[env_id], jaxrl.make(env_id.partition(",")[0])
        dataset, about = dataset_recipes.make(env, params, data.recipe, data.steps, algo=data.algo, say=print)
        if env_id == DEGREES:
            dataset = dataset.replace(obs=dataset.obs * IN_DEGREES, next_obs=dataset.next_obs * IN_DEGREES)
        of = {"reference": {**about["reference"], "mean": float(datasets.Episodes(dataset).total.mean())}}
        found = results["data"].setdefault(env_id, {"learners": {}})
        found.update(of)
        for name in args.learners:
            found["learners"][name] = measure(env_id, name, dataset, args.seeds, SETTINGS[name][: args.settings])
            print(env_id, name, found["learners"][name]["seconds"], flush=True)
            where = environment_of_run()
            results["where"] = {key: where[key] for key in ("started", "device", "processors", "versions")}
            file.write_text(json.dumps(results) + "\n")
    report(results)


if __name__ == "__main__":
    main()

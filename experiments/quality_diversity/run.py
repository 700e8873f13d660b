"""How much of the hard maze does each find? Coverage and the best reward of each area, by learner.

    python experiments/quality_diversity/run.py [--evaluations 50000] [--seeds 10] [--steps 250] [--only NAME ...]
    python experiments/quality_diversity/run.py --task far_sight ...     # of the maze, by lasers that reach through it
    python experiments/quality_diversity/run.py --task curling [--steps 500] ...     # of the table: Curling-v0
    python experiments/quality_diversity/run.py --task arm ...           # of RedundantArm-v0, which has three areas

Goes on where it stopped: what results.json has at this budget is not run again. Prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import cma_me, map_elites, novelty_search, serene, stax, taxons
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.quality_diversity import elites

LEARNERS = {
    "random": (map_elites, {}, {}),
    "cma_es": (cma_me, {"num_emitters": 1}, {}),
    "novelty_search": (novelty_search, {}, {}),
    "map_elites": (map_elites, {}, {}),
    "cma_me": (cma_me, {"num_emitters": 5}, {}),
    "cma_mae": (cma_me, {"num_emitters": 5, "soft": True}, {"lowest_fitness": -1.0}),  # no reward is below 0
    "serene": (serene, {}, {}),
    "taxons": (taxons, {}, {}),
    "taxons_by_novelty": (taxons, {}, {"surprise_share": 0.0}),
    "random_codes": (taxons, {"trained": False}, {"surprise_share": 0.0}),
    "stax": (stax, {}, {}),
}


STEPS = {"maze": 250, "far_sight": 250, "curling": 500, "arm": 250}
LAST_ONE = {"num_frames": 1}
# Settings of learners on a task. TAXONS' paper has the last image; ten readings along the way tell how it turned, too.
OF_TASK = {"far_sight": dict.fromkeys(("taxons", "taxons_by_novelty", "random_codes", "stax"), LAST_ONE)}


def task(name: str, steps: int):
    """`(env, params, descriptor, hidden)`, SERENE's. In the maze, below its 2,000 steps the wheels are as much faster,
    at most kheperax's 0.025."""
    if name == "curling":
        env, params = jaxrl.make("Curling-v0")
        return env, params.replace(max_steps=jnp.int32(steps)), ("ball x", "ball y"), (5, 5, 5)
    if name == "arm":
        env, params = jaxrl.make("RedundantArm-v0")
        return env, params.replace(max_steps=jnp.int32(steps)), ("tip x", "tip y"), (5, 5)
    env, params = jaxrl.make("HardMaze-v0")
    params = params.replace(max_steps=jnp.int32(steps), max_speed=jnp.float32(min(0.025, 40 / 3 / steps)))
    if name == "far_sight":
        params = params.replace(laser_range=jnp.float32(1.0))
    return env, params, ("x", "y"), (5, 5)


def areas_of(archive, areas: np.ndarray) -> list[float]:
    """The best reward found in each area; 0 where it was never entered at the end of an episode."""
    fitness, place = np.asarray(archive.fitness), np.asarray(archive.descriptor)
    inside = np.linalg.norm(place[:, None] - areas[:, :2], axis=-1) <= areas[:, 2]
    return [round(float(np.max(fitness, where=inside[:, i], initial=0)), 3) for i in range(len(areas))]


def climbed(algo, state, anew):
    """A generation of CMA-ES on the reward alone; it restarts at the network `anew` where all members paid the same."""
    state, rollout = algo.collect(state)
    archive, _ = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
    emitter = jax.tree.map(lambda x: x[0], state.search.emitters)
    order, number = jnp.argsort(-rollout.fitness), jnp.int32(len(rollout.fitness) // 2)
    told = cma_me.tell(emitter, state.search.noise, order, number)
    over = cma_me.exhausted(told, rollout.fitness, jnp.zeros_like(order, bool))
    begun = cma_me.fresh(anew, state.hyper.sigma, "full")
    emitters = jax.tree.map(lambda x, y: jnp.where(over, x, y)[None], begun, told)
    key, draw_key = jax.random.split(state.key)
    population, search = algo.init.__self__.drawn(draw_key, emitters, state.search.restarts + over)
    return state.replace(key=key, population=population, search=search, archive=archive)


def measure(where: str, name: str, evaluations: int, seeds: int, steps: int) -> dict:
    """Every seed of one learner, in turn."""
    env, params, descriptor, hidden = task(where, steps)
    module, settings, numbers = LEARNERS[name]
    settings = settings | OF_TASK.get(where, {}).get(name, {})
    size = 204 if name in ("serene", "stax") else 200
    config = dict(population_size=size, num_steps=steps, hidden=hidden, descriptor=descriptor, cells=(50,))
    algo = module.make(env, module.Config(**config, **settings))
    hyper = module.Hyper(**numbers)

    def run(key):
        def generation(state, key):
            if name not in ("random", "cma_es"):
                return algo.update(state)[0], None
            start = algo.init(key, hyper, params)  # networks as they are initialised
            if name == "cma_es":
                return climbed(algo, state, start.search.emitters.mean[0]), None
            return algo.update(state.replace(population=start.population))[0], None

        init_key, *keys = jax.random.split(key, 1 - (-evaluations // size))
        return jax.lax.scan(generation, algo.init(init_key, hyper, params), jnp.stack(keys))[0].archive

    program = jax.jit(run).lower(jax.random.key(0)).compile()
    begin = time.perf_counter()
    found = [jax.block_until_ready(program(jax.random.key(seed))) for seed in range(seeds)]
    return {
        "budget": [evaluations, seeds, steps],
        "coverage": [round(float(archive.coverage), 4) for archive in found],
        "areas": [areas_of(archive, np.asarray(params.areas)) for archive in found],
        "seconds_a_seed": round((time.perf_counter() - begin) / seeds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag, usual in (("--evaluations", 50_000), ("--seeds", 10), ("--steps", None)):
        parser.add_argument(flag, type=int, default=usual)
    parser.add_argument("--task", default="maze", choices=STEPS)
    parser.add_argument("--only", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    args, file = parser.parse_args(), Path(__file__).with_name("results.json")
    budget = [args.evaluations, args.seeds, args.steps or STEPS[args.task]]
    results = json.loads(file.read_text()) if file.exists() else {}
    print("| learner | coverage, mean (least to most) | seeds that entered all areas | best in each, mean | s/seed |")
    print("|" + "---|" * 5)
    for name in args.only:
        key = f"{args.task}/{name}/{args.evaluations}"
        row = results.get(key)
        if row is None or row["budget"] != budget:
            where = {k: x for k, x in environment_of_run().items() if k in ("started", "device", "versions")}
            results[key] = row = measure(args.task, name, *budget) | {"where": where}
            file.write_text(json.dumps(results, indent=1) + "\n")
        coverage, areas = np.array(row["coverage"]), np.array(row["areas"])
        best = " and ".join(f"{x:.2f}" for x in areas.mean(0))
        told = f"{coverage.mean():.3f} ({coverage.min():.3f} to {coverage.max():.3f})"
        entered = f"{(areas > 0).all(1).sum()} of {len(areas)}"
        print(f"| {name} | {told} | {entered} | {best} | {row['seconds_a_seed']} |", flush=True)


if __name__ == "__main__":
    main()

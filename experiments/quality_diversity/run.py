"""How much of the hard maze does each find? Coverage and the best reward of each area, by learner.

    python experiments/quality_diversity/run.py [--evaluations 50000] [--seeds 10] [--steps 250] [--only NAME ...]
    python experiments/quality_diversity/run.py --task slow_maze ...     # by SERENE's 2,000 slow steps
    python experiments/quality_diversity/run.py --task far_sight ...     # of the maze, by lasers that reach through it
    python experiments/quality_diversity/run.py --task curling [--steps 500] ...     # of the table: Curling-v0
    python experiments/quality_diversity/run.py --task arm ...           # of RedundantArm-v0, which has three areas
    python experiments/quality_diversity/run.py --task half_cheetah ...  # of SparseHalfCheetah-v0, which has two bands

Goes on where it stopped: what results.json has at this budget is not run again. Prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from searches import LEARNERS, OF_TASK, STEPS, climbed, task

from jaxrl.host.run.run_folder import environment_of_run


def areas_of(archive, areas: np.ndarray) -> list[float]:
    """The best reward found in each area; 0 where it was never entered at the end of an episode."""
    fitness, place = np.asarray(archive.fitness), np.asarray(archive.descriptor)
    inside = np.linalg.norm(place[:, None] - areas[:, :-1], axis=-1) <= areas[:, -1]
    return [round(float(np.max(fitness, where=inside[:, i], initial=0)), 3) for i in range(len(areas))]


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

"""Quality diversity on a planar arm of 100 joints: MAP-Elites beside QDax's, CMA-MAE beside that of pyribs.

    taskset -c 0 python benchmarks/quality_diversity.py [--qdax PYTHON] [--generations 500] [--rounds 3]
    taskset -c 0 python benchmarks/quality_diversity.py --cma-mae [--ribs PYTHON] [--generations 500] [--rounds 3]

PYTHON is that of an environment with qdax 0.5.0, or with ribs 0.12.0 and jax, which runs this file with `--inside`: the
two take turns. Coverage and QD score (fitness above -1) are of a 50 x 50 grid over the unit square, seconds of a CPU.
MAP-Elites has 1,024 children a generation by the iso-line emitter (0.005 and 0.05) and one program for all generations,
in both libraries. CMA-MAE has 15 emitters of 36 genomes that begin as a straight arm with a deviation of 0.1, and
thresholds that begin at -1 and go a hundredth of the way; pyribs' archives and strategies are NumPy's.
"""

import argparse
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp

JOINTS, BATCH, CELLS, ISO, LINE = 100, 1024, 50, 0.005, 0.05
EMITTERS, EACH, SIGMA, RATE = 15, 36, 0.1, 0.01


def timed(run, start):
    """`(compile seconds, run seconds, result)` of a program, by the process's own clock."""
    begin = time.process_time()
    program = jax.jit(run).lower(*start).compile()
    compiled = time.process_time()
    result = jax.block_until_ready(program(*start))
    again = time.process_time()
    jax.block_until_ready(program(*start))
    return compiled - begin, min(again - compiled, time.process_time() - again), result


def arm(genome):
    """Fitness and where the tip is, of one arm."""
    angle = jnp.cumsum((2 * genome - 1) * jnp.pi)
    tip = jnp.stack([jnp.cos(angle).mean(), jnp.sin(angle).mean()])
    return -jnp.std(genome), (tip + 1) / 2


def map_elites_ours(generations: int, seed: int) -> dict[str, float]:
    from jaxrl.algos import map_elites
    from jaxrl.quality_diversity import elites

    hyper = map_elites.Hyper(iso_sigma=jnp.float32(ISO), line_sigma=jnp.float32(LINE))

    def run(key):
        def generation(carry, key):
            archive, population = carry
            fitness, descriptor = jax.vmap(arm)(population)
            archive, _ = elites.insert(archive, population, fitness, descriptor)
            return (archive, jnp.clip(map_elites.emit(key, archive, hyper, BATCH), 0, 1)), None

        start_key, key = jax.random.split(key)
        start = elites.grid((0, 0), (1, 1), (CELLS, CELLS), JOINTS), jax.random.uniform(start_key, (BATCH, JOINTS))
        return jax.lax.scan(generation, start, jax.random.split(key, generations))[0][0]

    compiling, running, archive = timed(run, (jax.random.key(seed),))
    return row(generations * BATCH, compiling, running, archive.coverage, archive.qd_score(-1.0))


def cma_mae_ours(generations: int, seed: int) -> dict[str, float]:
    import flax.linen as nn

    import jaxrl
    from jaxrl.algos import cma_me
    from jaxrl.quality_diversity.behaviour import Rollout
    from jaxrl.rollout import Ends

    class Straight(nn.Module):
        """A genome of JOINTS numbers, 0.5 each; what a policy would do with them is not asked."""

        @nn.compact
        def __call__(self, obs):
            self.param("joints", nn.initializers.constant(0.5), (JOINTS,))
            return jnp.zeros((*obs.shape[:-1], 20))

    env, _ = jaxrl.make("RedundantArm-v0")
    size = EMITTERS * EACH
    box = {"descriptor_low": (0.0, 0.0), "descriptor_high": (1.0, 1.0), "cells": (CELLS,)}
    config = cma_me.Config(population_size=size, num_emitters=EMITTERS, soft=True, **box)
    algo = cma_me.make(env, config, network=Straight())
    hyper = cma_me.Hyper(sigma=SIGMA, alpha=RATE, lowest_fitness=-1.0)
    ends = Ends(jnp.zeros((1, size), bool), jnp.zeros((1, size)), jnp.zeros((1, size), jnp.int32))

    def run(key):
        def generation(state, _):
            fitness, tip = jax.vmap(arm)(state.population)
            return algo.learn(state, Rollout(state.population, fitness, tip, ends, None, None))[0], None

        return jax.lax.scan(generation, algo.init(key, hyper), length=generations)[0].archive

    compiling, running, archive = timed(run, (jax.random.key(seed),))
    return row(generations * size, compiling, running, archive.coverage, archive.qd_score(-1.0))


def cma_mae_ribs(generations: int, seed: int) -> dict[str, float]:
    import numpy as np
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    grid = {"solution_dim": JOINTS, "dims": (CELLS, CELLS), "ranges": [(0, 1), (0, 1)]}
    archive = GridArchive(**grid, learning_rate=RATE, threshold_min=-1.0)
    best = GridArchive(**grid, qd_score_offset=-1.0)
    strategy = {"ranker": "imp", "selection_rule": "mu", "restart_rule": "basic", "batch_size": EACH}
    start = np.full(JOINTS, 0.5)
    emitters = [
        EvolutionStrategyEmitter(archive, x0=start, sigma0=SIGMA, seed=1000 * seed + i, **strategy)
        for i in range(EMITTERS)
    ]
    scheduler, begin = Scheduler(archive, emitters, result_archive=best), time.process_time()
    for _ in range(generations):
        genomes = scheduler.ask()
        angle = np.cumsum((2 * genomes - 1) * np.pi, 1)
        tip = np.stack([np.cos(angle).mean(1), np.sin(angle).mean(1)], 1)
        scheduler.tell(-np.std(genomes, 1), (tip + 1) / 2)
    running = time.process_time() - begin
    return row(generations * EMITTERS * EACH, 0.0, running, best.stats.coverage, best.stats.qd_score)


def map_elites_qdax(generations: int, seed: int) -> dict[str, float]:
    from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites
    from qdax.tasks.arm import arm_scoring_function

    def variation(x, y, key):
        return isoline_variation(x, y, key, iso_sigma=ISO, line_sigma=LINE, minval=0.0, maxval=1.0)

    emitter = MixingEmitter(None, variation, variation_percentage=1.0, batch_size=BATCH)
    algorithm = MAPElites(arm_scoring_function, emitter, lambda repertoire: {})
    centroids = compute_euclidean_centroids(grid_shape=(CELLS, CELLS), minval=0.0, maxval=1.0)

    def run(key):
        start_key, init_key, key = jax.random.split(key, 3)
        start = jax.random.uniform(start_key, (BATCH, JOINTS))
        repertoire, state, _ = algorithm.init(start, centroids, init_key)
        (repertoire, *_), _ = jax.lax.scan(
            algorithm.scan_update, (repertoire, state, key), None, length=generations - 1
        )
        return repertoire.fitnesses

    compiling, running, fitness = timed(run, (jax.random.PRNGKey(seed),))
    filled = fitness > -jnp.inf
    return row(generations * BATCH, compiling, running, filled.mean(), jnp.sum(jnp.where(filled, fitness + 1, 0)))


def row(evaluations, compiling, running, coverage, qd_score) -> dict[str, float]:
    return {
        "evaluations a CPU second": round(evaluations / running),
        "compile CPU s": round(compiling, 2),
        "coverage": round(float(coverage), 4),
        "QD score": round(float(qd_score), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cma-mae", action="store_true", help="CMA-MAE instead of MAP-Elites")
    parser.add_argument("--qdax", help="a Python that imports qdax")
    parser.add_argument("--ribs", help="a Python that imports ribs")
    parser.add_argument("--generations", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    ours, theirs, peer, python = map_elites_ours, map_elites_qdax, "QDax", args.qdax
    if args.cma_mae:
        ours, theirs, peer, python = cma_mae_ours, cma_mae_ribs, "pyribs", args.ribs
    if args.inside is not None:
        print(json.dumps(theirs(args.generations, args.inside)))
        return
    for seed in range(args.rounds):
        print(f"{'jaxrl':7}", ours(args.generations, seed), flush=True)
        if python:
            command = [python, __file__, *sys.argv[1:], "--inside", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            print(f"{peer:7}", json.loads(done.stdout.splitlines()[-1]), flush=True)


if __name__ == "__main__":
    main()

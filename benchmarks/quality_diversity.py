"""MAP-Elites on a planar arm: evaluations a second, compile time, coverage and QD score, beside QDax's.

    taskset -c 0 python benchmarks/quality_diversity.py [--qdax PYTHON] [--generations 500] [--rounds 3]

PYTHON is that of an environment with qdax 0.5.0, which runs this file with `--inside`: the two take turns. Both have an
arm of 100 joints, 1,024 children a generation by the iso-line emitter (0.005 and 0.05), a 50 x 50 grid over the unit
square and one program for all generations. QD score is of fitness above -1.
"""

import argparse
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp

JOINTS, BATCH, CELLS, ISO, LINE = 100, 1024, 50, 0.005, 0.05


def timed(run, start):
    """`(compile seconds, run seconds, result)` of a program, by the process's own clock."""
    begin = time.process_time()
    program = jax.jit(run).lower(*start).compile()
    compiled = time.process_time()
    result = jax.block_until_ready(program(*start))
    again = time.process_time()
    jax.block_until_ready(program(*start))
    return compiled - begin, min(again - compiled, time.process_time() - again), result


def ours(generations: int, seed: int) -> dict[str, float]:
    from jaxrl.algos import map_elites
    from jaxrl.quality_diversity import elites

    hyper = map_elites.Hyper(iso_sigma=jnp.float32(ISO), line_sigma=jnp.float32(LINE))

    def arm(genome):
        angle = jnp.cumsum((2 * genome - 1) * jnp.pi)
        tip = jnp.stack([jnp.cos(angle).mean(), jnp.sin(angle).mean()])
        return -jnp.std(genome), (tip + 1) / 2

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
    return row(generations, compiling, running, archive.coverage, archive.qd_score(-1.0))


def theirs(generations: int, seed: int) -> dict[str, float]:
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
    return row(generations, compiling, running, filled.mean(), jnp.sum(jnp.where(filled, fitness + 1, 0)))


def row(generations, compiling, running, coverage, qd_score) -> dict[str, float]:
    return {
        "evaluations a CPU second": round(generations * BATCH / running),
        "compile CPU s": round(compiling, 2),
        "coverage": round(float(coverage), 4),
        "QD score": round(float(qd_score), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qdax", help="a Python that imports qdax")
    parser.add_argument("--generations", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        print(json.dumps(theirs(args.generations, args.inside)))
        return
    for seed in range(args.rounds):
        print("jaxrl", ours(args.generations, seed), flush=True)
        if args.qdax:
            command = [args.qdax, __file__, "--generations", str(args.generations), "--inside", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            print("QDax ", json.loads(done.stdout.splitlines()[-1]), flush=True)


if __name__ == "__main__":
    main()

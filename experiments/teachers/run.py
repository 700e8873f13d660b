"""How much of a space of tasks does a student master under each teacher of continuous parameters?

    python experiments/teachers/run.py [--seeds 20] [--only riac/useless ...]

Writes results.json and results.png beside this file and prints the table of README.md. The student is the toy one of
Portelas et al. (2019), `jaxrl.envs.tabular.hyper_cubes`; all seeds of a teacher are one program.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import picture

from jaxrl.algos.curricula import alp_gmm, covar_gmm, oracle_teacher, random_teacher, riac
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.envs.tabular.hyper_cubes import MASTERY, HyperCubes
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

FILE = Path(__file__).with_name("results.json")
CUBES = HyperCubes(cells=10, dimensions=2)
EPISODES, POINTS, SHOWN = 60_000, 60, (10_000, 20_000, 40_000, 60_000)
SPACES = {"plain": 0, "useless": 10}  # coordinates that change nothing
TEACHERS = ("random", "oracle", "riac", "covar_gmm", "alp_gmm")


def teacher(name, D):
    """Settings of the authors' code; the oracle's expert moves along the diagonal once a window is mastered."""

    def level_at(params, x):
        return x

    if name == "oracle":
        hyper = oracle_teacher.Hyper(threshold=MASTERY / 100, step=(0.1, 0.1, *[0.0] * (D - 2)))
        return oracle_teacher.make(level_at, oracle_teacher.Config(D), hyper)
    if name == "random":
        return random_teacher.make(level_at, random_teacher.Config(D))
    module = {"riac": riac, "covar_gmm": covar_gmm, "alp_gmm": alp_gmm}[name]
    config = module.Config(D, **({"max_regions": 1024} if name == "riac" else {}))
    return module.make(level_at, config, module.Hyper(return_low=0.0, return_high=1.0))


def curves(name, useless, seeds):
    """Mastered share of the cells (seeds, POINTS), and CPU seconds of compiling and of running."""
    cur = teacher(name, CUBES.dimensions + useless)

    def episode(carry, key):
        competence, cstate = carry
        sample_key, update_key = jax.random.split(key)
        batch, cstate = cur.sample(sample_key, cstate, jnp.ones(1, bool))
        competence, reward = CUBES.episodes(competence, batch.note)
        seen = Outcomes(reward, reward, reward, reward, reward, jnp.ones(1, jnp.int32))
        return (competence, cur.update(update_key, cstate, batch, seen)), None

    def block(carry, key):
        carry, _ = jax.lax.scan(episode, carry, jax.random.split(key, EPISODES // POINTS))
        return carry, CUBES.mastered(carry[0])

    def run(key):
        init_key, key = jax.random.split(key)
        return jax.lax.scan(block, (CUBES.initial(), cur.init(init_key, cur.hyper, ())), jax.random.split(key, POINTS))[
            1
        ]

    keys, begin = jax.random.split(jax.random.key(0), seeds), time.process_time()
    program = jax.jit(jax.vmap(run)).lower(keys).compile()
    compiled = time.process_time()
    return np.asarray(program(keys), float), compiled - begin, time.process_time() - compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs = [f"{name}/{space}" for space in SPACES for name in TEACHERS]
    parser.add_argument("--only", nargs="*", default=pairs, choices=pairs)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    for pair in args.only:
        name, space = pair.split("/")
        mastered, compile_s, run_s = curves(name, SPACES[space], args.seeds)
        report = json.loads(FILE.read_text()) if FILE.exists() else {}
        report[pair] = {
            "curves": np.round(mastered, 2).tolist(),
            "cpu_seconds": {"compile": round(compile_s, 1), "run": round(run_s, 1)},
            "where": environment_of_run(),
        }
        FILE.write_text(json.dumps({p: report[p] for p in pairs if p in report}) + "\n")
    report = json.loads(FILE.read_text())
    print("| space | teacher | " + " | ".join(f"{n:,} (95 %)" for n in SHOWN) + " | episodes / CPU s |\n|" + "---|" * 7)
    for pair, r in report.items():
        cells = [*reversed(pair.split("/"))]
        for n in SHOWN:
            at = np.array(r["curves"])[:, n * POINTS // EPISODES - 1]
            cells.append(told(at, ".3f"))
        speed = len(r["curves"]) * EPISODES / r["cpu_seconds"]["run"]
        print("| " + " | ".join(cells) + f" | {speed:,.0f} |")
    picture(report, EPISODES, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()

"""`python -m jaxrl.zoo RUN NAME [--seed 0]`: the policy of a run goes into the zoo, with what it gets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl import zoo
from jaxrl.evaluation import evaluate
from jaxrl.host.cli.experiment import episode_cap
from jaxrl.host.run.recipe import load_run, read_recipe
from jaxrl.host.run.run_folder import RunFolder

EPISODES = 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name", help="<algorithm>/<environment id>")
    parser.add_argument("--seed", type=int, help="of the run; default: the one of the highest return")
    parser.add_argument("--command", required=True, help="that made the run")
    args = parser.parse_args()
    found = zoo.policies_of(args.run)
    cap = episode_cap(found.params, found.max_steps)

    def judged(policy: Any, key: Any) -> Any:
        return evaluate(found.algo, policy, key, found.env, found.params, num_episodes=EPISODES, max_steps=cap)

    # One stream to choose the seed by, and another to say what it gets.
    choose, say = (jax.random.key(i) for i in (1, 2))
    program = jax.jit(jax.vmap(judged, (0, None)))
    seed = int(np.argmax(program(found.policies, choose).returns.mean(1))) if args.seed is None else args.seed
    stats = jax.tree.map(lambda x: np.asarray(x)[seed], program(found.policies, say))
    if "made" in read_recipe(args.run):
        parser.error(f"{args.run} was put together in Python: the zoo keeps what names and numbers say.")
    recipe, config = read_recipe(args.run), RunFolder(args.run).read_config()
    told = {
        "recipe": {name: x for name, x in recipe.items() if name != "run"},
        "command": args.command,
        "seed": seed,
        "of_seeds": found.seeds,
        "versions": config["versions"],
        "steps": config["total_steps"],
        "episodes": EPISODES,
        "max_steps": cap,
        "return": float(stats.returns.mean()),
        "standard_error": float(stats.returns.std() / EPISODES**0.5),
        "acts": found.algo.deployed,
    }
    archives = getattr(load_run(recipe, args.run)[1], zoo.ARCHIVE, None)  # of quality diversity
    policy, archive = jax.tree.map(lambda x: np.asarray(x)[seed], (found.policies, archives))
    path = zoo.save(policy, zoo.FOLDER / f"{args.name}.npz", told, archive)
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB, return {told['return']:.2f} ± {told['standard_error']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

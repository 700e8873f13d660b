"""One process of gym-electric-motor, timed: steps of a task from a Python loop, with zero and with random actions.

Run by `motor.py` in an environment with gym-electric-motor. Time in resets is counted apart. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", default="Cont-CC-PMSM-v0")
    parser.add_argument("--steps", type=int, default=8000, help="of one timed run")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")

    import gym_electric_motor as gem
    import numpy as np

    env = gem.make(args.id).unwrapped
    random = np.random.default_rng(0)
    space = env.action_space
    shape = getattr(space, "shape", ())
    result = {}
    for kind in ("zero", "random"):
        wall, whole = [], []
        for _ in range(args.repeats):
            if hasattr(space, "n"):
                actions = random.integers(0, space.n if kind == "random" else 1, args.steps)
            else:
                actions = random.uniform(-1, 1, (args.steps, *shape)) * (kind == "random")
            env.reset()
            start, resets = time.perf_counter(), 0.0
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    at = time.perf_counter()
                    env.reset()
                    resets += time.perf_counter() - at
            seconds = time.perf_counter() - start
            wall.append(args.steps / (seconds - resets))
            whole.append(args.steps / seconds)
        result[f"{kind} steps"] = statistics.median(wall)
        result[f"{kind} with resets"] = statistics.median(whole)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

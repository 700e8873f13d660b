"""Times EnvPool in its own process; run by `native.py` with the Python of EnvPool's environment.

Prints one JSON line: environment steps a second of wall clock and of processor time, the better of its two ways of
stepping, all at once or the first half that is ready. Actions are drawn before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any


def rates(id: str, num_envs: int, threads: int, batch: int, seconds: float) -> dict[str, float]:
    """Of `num_envs` environments, `batch` of which are returned at a time."""
    import envpool  # pyright: ignore[reportMissingImports]
    import numpy as np

    options = {"num_envs": num_envs, "batch_size": batch, "num_threads": threads, "seed": 0}
    env: Any = envpool.make(id, env_type="gymnasium", **options)
    rng = np.random.default_rng(0)
    space = env.action_space
    if hasattr(space, "n"):
        draws = rng.integers(0, space.n, (64, batch)).astype(space.dtype)
    elif hasattr(space, "nvec"):
        draws = rng.integers(0, space.nvec, (64, batch, *space.shape)).astype(space.dtype)
    else:
        draws = rng.uniform(space.low, space.high, (64, batch, *space.shape)).astype(space.dtype)

    def steps(count: int) -> None:
        for i in range(count):
            if batch == num_envs:
                env.step(draws[i % 64])
            else:
                env.send(draws[i % 64], env.recv()[-1]["env_id"])

    if batch == num_envs:
        env.reset()
    else:
        env.async_reset()
    steps(50)
    count = 50
    while True:  # as many steps as take that long
        wall, cpu = time.perf_counter(), time.process_time()
        steps(count)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if wall > seconds / 2:
            return {"wall": count * batch / wall, "cpu": count * batch / cpu, "num_envs": num_envs, "batch": batch}
        count = int(count * min(20, max(2, seconds / wall)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    tried = [rates(args.id, n, args.threads, batch, args.seconds) for n in args.num_envs for batch in (n, n // 2)]
    print(json.dumps(max(tried, key=lambda found: found["wall"])))


if __name__ == "__main__":
    main()

"""Streaming learners: steps per second (environment, two predictions, gradient, trace, update) of 1 to 1,024 streams.

One jitted `train` of every stream by `vmap`, after a call that is not counted; and the seconds to trace and compile it.

Run: `python benchmarks/streaming.py [--streams 1 64 1024] --out streaming.json`.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
from common import print_table, save, time_program

import jaxrl
from jaxrl.algos.streaming import stream_ac, stream_q, stream_td

# name: (module, environment, hidden, share of the steps)
LEARNERS: dict[str, Any] = {
    "stream_q, 32": (stream_q, "CartPole-v1", (32, 32), 1.0),
    "stream_ac, 32": (stream_ac, "CartPole-v1", (32, 32), 0.5),
    "stream_ac, 128": (stream_ac, "Pendulum-v1", (128, 128), 0.1),
    "stream_td, 128": (stream_td, "Pendulum-v1", (128, 128), 0.1),
}


def measure(name: str, streams: int, steps: int, repeats: int) -> dict[str, Any]:
    """`steps` in all, at least 100 of each stream."""
    module, env_id, hidden, share = LEARNERS[name]
    algo = module.make(jaxrl.make(env_id)[0], module.Config(num_steps=100, hidden=hidden))
    each = max(round(share * steps / streams / 100), 1) * 100
    program = jax.vmap(lambda key: jaxrl.train(algo, key, each)[1]["loss"])
    times = time_program(program, jax.random.split(jax.random.key(0), streams), repeats=repeats)
    return {"learner": name, "streams": streams, "steps_per_second": streams * each / times["run_s"], **times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 64, 1024])
    parser.add_argument("--steps", type=int, default=200_000, help="of all streams together in one timed call")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="streaming.json")
    args = parser.parse_args()
    rows = [measure(name, n, args.steps, args.repeats) for name in LEARNERS for n in args.streams]
    table = [
        [r["learner"], f"{r['streams']:,}", f"{r['steps_per_second']:,.0f}", f"{r['compile_s']:.1f}"] for r in rows
    ]
    print_table("streams on one machine", ["learner", "streams", "steps/s in all", "compile s"], table)
    save(args.out, {"streaming": rows})


if __name__ == "__main__":
    main()

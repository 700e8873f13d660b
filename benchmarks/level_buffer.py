"""What choosing and storing levels costs, against an update of the published maze student.

For each curriculum the milliseconds of `sample` and `update` with a batch of 32 mazes (drawing them included), and
their share of an update of recurrent PPO with 32 environments x 256 steps, 5 epochs, an LSTM of 256.

Run: `python benchmarks/level_buffer.py`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import print_table, save
from maze_ppo_rnn import own_side

import jaxrl
from jaxrl.algos.curricula import accel, plr
from jaxrl.curriculum.protocol import Curriculum, Outcomes

ENV, PARAMS = jaxrl.make("Maze-v0")
BATCH = 32


def curricula(sizes: list[int]) -> dict[str, tuple[Curriculum, int]]:
    """By name, with the levels in its buffer, which replays half of the time."""
    found = {}
    for size in sizes:
        found[f"PLR, {size:,} levels"] = plr.make(ENV.generate, plr.Config(size)), size
        found[f"ACCEL, {size:,} levels"] = accel.make(ENV.generate, ENV.mutate, accel.Config(size)), size
    return found


def cycles(cur: Curriculum, size: int, length: int):
    """A program of `length` batches, each scored at random, and a state whose `size` places are all taken."""

    def cycle(state, key):
        sample_key, score_key, update_key = jax.random.split(key, 3)
        batch, state = cur.sample(sample_key, state, jnp.ones(BATCH, bool))
        score = jax.random.uniform(score_key, (BATCH,))
        seen = Outcomes(score, score, score, score, score, jnp.ones(BATCH, jnp.int32))
        return cur.update(update_key, state, batch, seen), None

    program = jax.jit(lambda state, key: jax.lax.scan(cycle, state, jax.random.split(key, length))[0], donate_argnums=0)
    state, i = jax.jit(cur.init)(jax.random.key(0), PARAMS), 0
    state = state.replace(hyper=state.hyper.replace(replay_prob=jnp.zeros(())))
    while np.isinf(state.buffer.score).any():
        state, i = program(state, jax.random.key(i)), i + 1
    state = state.replace(hyper=state.hyper.replace(replay_prob=jnp.full((), 0.5)))
    return program, program(state, jax.random.key(i))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4000, 100_000])
    parser.add_argument("--cycles", type=int, default=20, help="batches a timed run")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--updates", type=int, default=4, help="of the student, a timed run")
    parser.add_argument("--out", default="level_buffer.json")
    args = parser.parse_args()
    runs = {name: cycles(*chosen, args.cycles) for name, chosen in curricula(args.sizes).items()}
    times = {name: [] for name in runs}
    for i in range(args.repeats):  # turn by turn, so that other work on the machine meets all alike
        for name, (program, state) in runs.items():
            begin = time.perf_counter()
            state = jax.block_until_ready(program(state, jax.random.key(-1 - i)))
            times[name].append((time.perf_counter() - begin) / args.cycles)
            runs[name] = program, state
    update = own_side(32, 256, args.updates, 3, "dr", 0.0)["run_s"] / args.updates
    seconds = {name: statistics.median(found) for name, found in times.items()}
    rows = [[name, f"{1e3 * s:.1f}", f"{100 * s / update:.2f} %"] for name, s in seconds.items()]
    title = f"A batch of {BATCH} mazes beside an update of the student, {1e3 * update:.0f} ms"
    print_table(title, ["", "ms", "share of an update"], rows)
    save(args.out, {"update_s": update, "batch_s": seconds})


if __name__ == "__main__":
    main()

"""Gradients of GRU, LSTM and dense layers over sequences, against what XLA makes of the plain definitions.

`jaxrl.nn.networks` writes out the backward pass of its recurrent layers and multiplies all rows of a sequence at once.

Run: `python benchmarks/recurrent_gradients.py`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
from common import print_table, save

from jaxrl.nn.networks import Dense
from jaxrl.nn.recurrent import gru, lstm


def recurrent(cell: str, steps: int, batch: int, size: int):
    """`{side: gradient program}` and its arguments."""
    layer, gates = (lstm, 4) if cell == "lstm" else (gru, 3)
    keys = jax.random.split(jax.random.key(0), 3)
    projected = jax.random.normal(keys[0], (steps, batch, gates * size))
    kernel, bias = 0.05 * jax.random.normal(keys[1], (size, gates * size)), jnp.zeros(4 * size)
    start = jax.random.bernoulli(keys[2], 0.01, (steps, batch))
    zero = jnp.zeros((batch, size))
    carry = (zero, zero) if cell == "lstm" else zero

    def gradient(layer):
        def loss(projected, kernel, bias):
            return jnp.square(layer(carry, projected, kernel, bias, start)[1]).mean()

        return jax.jit(jax.grad(loss, (0, 1, 2)))

    return {"plain": gradient(layer.fun), "jaxrl": gradient(layer)}, (projected, kernel, bias)


def dense(steps: int, batch: int, size: int):
    """The same for a dense layer."""
    x = jax.random.normal(jax.random.key(0), (steps, batch, size))

    def gradient(module):
        return jax.jit(jax.grad(lambda weights, x: jnp.square(module.apply(weights, x)).mean(), (0, 1)))

    layers = {"plain": nn.Dense(size), "jaxrl": Dense(size)}
    return {name: gradient(layer) for name, layer in layers.items()}, (layers["plain"].init(jax.random.key(1), x), x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", default="recurrent_gradients.json")
    args = parser.parse_args()
    shape = args.steps, args.batch
    cases = {
        "LSTM of 256": recurrent("lstm", *shape, 256),
        "GRU of 256": recurrent("gru", *shape, 256),
        "dense layer of 1,024": dense(*shape, 1024),
    }
    rows, report = [], {}
    for name, (programs, values) in cases.items():
        times = {side: [] for side in programs}
        for program in programs.values():
            jax.block_until_ready(program(*values))
        for _ in range(args.repeats):
            for side, program in programs.items():
                begin = time.perf_counter()
                jax.block_until_ready(program(*values))
                times[side].append(time.perf_counter() - begin)
        seconds = report[name] = {side: statistics.median(found) for side, found in times.items()}
        ratio = seconds["jaxrl"] / seconds["plain"]
        rows.append([name, f"{1e3 * seconds['plain']:.1f}", f"{1e3 * seconds['jaxrl']:.1f}", f"{ratio:.2f}"])
    title = f"Forward and backward over {args.steps} steps x {args.batch}, ms"
    print_table(title, ["", "plain", "jaxrl", "jaxrl / plain"], rows)
    save(args.out, {"seconds": report})


if __name__ == "__main__":
    main()

"""What a cell's sequence costs, forward and backward: measured on this CPU, and by the compilers of a TPU and a GPU.

    python benchmarks/cells.py [--lengths 128 1024 8192] [--cells gru s5]     # milliseconds here
    JAX_PLATFORMS=cpu python benchmarks/cells.py --for tpu-v5e                # ahead of time, with the extra `tpu`
    JAX_PLATFORMS=cpu python benchmarks/cells.py --for h100                   # with the extra `cuda`

Of a TPU the table has the compiler's estimate of the time, of both the kernels that are run and the temporary memory.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
from common import print_table, save

from jaxrl.host.ahead.compilation import compile_for
from jaxrl.nn.cells import CELLS, initial_carry, layer

WINDOW = {"attention": 64, "frames": 3}


def gradient(cell: str, length: int, batch: int, size: int):
    """`(program, arguments)` of a sequence: gradients of a loss of all outputs, in which one step in 100 is a start."""
    window = WINDOW.get(cell, 1)
    module = layer(cell, size, window=window)
    carry = initial_carry(cell, size, window, (batch,))
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(keys[0], (length, batch, size))
    start = jax.random.bernoulli(keys[1], 0.01, (length, batch))
    weights = module.init(keys[2], carry, inputs[:1], start[:1])

    def loss(weights, inputs, carry, start):
        return jnp.square(module.apply(weights, carry, inputs, start)[1]).mean()

    return jax.jit(jax.grad(loss, (0, 1))), (weights, inputs, carry, start)


def measured(program, arguments, repeats: int) -> tuple[float, float]:
    """Median milliseconds of a call, and seconds of compiling."""
    begin = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    compiled, times = time.perf_counter() - begin, []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times), compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 1024, 8192])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=CELLS)
    parser.add_argument("--for", dest="target", default="", metavar="MACHINE", help="as of `jaxrl compile`")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    rows, report = [], {}
    for cell in args.cells:
        row = [f"`{cell}`"]
        for length in args.lengths:
            program, arguments = gradient(cell, length, args.batch, args.size)
            if not args.target:
                ms, compiled = measured(program, arguments, args.repeats)
                report[f"{cell} {length}"] = {"ms": ms, "compile_s": compiled}
                row.append(f"{ms:.1f}")
                continue
            found = compile_for(program, arguments, args.target)
            mib = found.memory.temporaries / 2**20
            us = None if found.estimated_seconds is None else 1e6 * found.estimated_seconds
            report[f"{cell} {length}"] = {"us": us, "kernels": found.kernels_run, "temporaries_mib": mib}
            row.append((f"{us:,.0f} us, " if us else "") + f"{found.kernels_run:,} kernels, {mib:.1f} MiB")
        rows.append(row)
        print(row, flush=True)
    title = f"Gradient of a sequence, batch {args.batch}, size {args.size}, {args.target or 'ms on this CPU'}"
    print_table(title, ["cell", *(f"{length:,} steps" for length in args.lengths)], rows)
    save(args.out or f"cells_{args.target or 'cpu'}.json", report)


if __name__ == "__main__":
    main()

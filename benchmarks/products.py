"""How much of a core's peak a network's own matrix products reach: 64 wide with 256 rows, one or a batch of them.

What bounds `off_policy.py --own ... 64 256 ... 8`: where a batch runs no faster an item than one, seeds add nothing.

Run: `python benchmarks/products.py`.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
from common import print_table, time_program


def gflops(batch: int, rows: int, width: int, chain: int, repeats: int) -> float:
    """GFLOP/s of `chain` products of (rows, width) by (width, width) after one another, `batch` side by side."""
    weights = jnp.full((batch, width, width), 1 / width)

    def run(x):
        return jax.lax.scan(lambda x, _: (jnp.einsum("bij,bjk->bik", x, weights), None), x, length=chain)[0]

    seconds = time_program(run, jnp.ones((batch, rows, width)), repeats=repeats)["run_s"]
    return 2e-9 * batch * rows * width**2 * chain / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    peak = gflops(1, 1536, 1536, 1, args.repeats)
    rows = [["1 of 1,536 x 1,536", f"{peak:.0f}", "100%"]]
    for batch in (1, 2, 8, 16):
        rate = gflops(batch, 256, 64, 300, args.repeats)
        rows.append([f"{batch} of 256 x 64 by 64 x 64", f"{rate:.0f}", f"{rate / peak:.0%}"])
    print_table("float32 products", ["", "GFLOP/s", "of the peak"], rows)


if __name__ == "__main__":
    main()

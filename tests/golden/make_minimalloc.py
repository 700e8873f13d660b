"""Writes envs/allocation/minimalloc.npz: the eleven problems of MiniMalloc (Apache-2.0), as rows of lower, upper, size.

    git clone https://github.com/google/minimalloc
    python tests/golden/make_minimalloc.py minimalloc/benchmarks/challenging envs/allocation/minimalloc.npz

Moffitt (2023), "MiniMalloc: a lightweight memory allocator for hardware-accelerated machine learning", ASPLOS, commit
9f5cf810fec4494df473c23cffd0567989e81b69. The capacity of all of them is 1,048,576, as their names say.
"""

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    folder, out = Path(sys.argv[1]), sys.argv[2]
    problems = {}
    for path in sorted(folder.glob("*.1048576.csv")):
        rows = np.genfromtxt(path, delimiter=",", names=True, dtype=np.int64)
        problems[path.name[0]] = np.stack([rows["lower"], rows["upper"], rows["size"]], 1).astype(np.int32)
    assert list(problems) == list("ABCDEFGHIJK"), list(problems)
    np.savez_compressed(out, **problems)


if __name__ == "__main__":
    main()

"""Gradient-boosted trees beside gbrl: prediction of an ensemble, and the fit of one tree, in alternating processes.

Oblivious trees of depth 4 on four features with three outputs, 250 quantiles a feature, the cosine score; random rows
and gradients on both sides. gbrl is pip's, on the CPU; its threads are one unless told, as they wait for each other by
turning, which takes far longer on a machine with other work.

Run: `python benchmarks/trees.py --peer-python VENV/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import sys

from common import alternate, print_table, run_driver, save, time_program

ROWS = (1, 8, 64, 512)
FITS = (64, 512)


def own_side(num_trees: int, repeats: int) -> dict[str, float]:
    """Time our functions in this process."""
    import jax

    from jaxrl.nn import trees

    x_key, tree_key, *keys = jax.random.split(jax.random.key(0), 4)

    def grown(key):
        x_key, grad_key = jax.random.split(key)
        x = jax.random.normal(x_key, (16, 4))
        return trees.fit(x, jax.random.normal(grad_key, (16, 3)), trees.candidates(x), 4).scaled(-0.03)

    ensemble = trees.empty(num_trees, 4, 3)
    ensemble = trees.add(ensemble, jax.jit(jax.vmap(grown))(jax.random.split(tree_key, num_trees)))
    result = {}
    for rows in ROWS:
        x = jax.random.normal(x_key, (rows, 4))
        result[f"predict {rows}"] = time_program(trees.predict, ensemble, x, repeats=repeats)["run_s"]
    for rows in FITS:
        x, grads = (jax.random.normal(key, (rows, n)) for key, n in zip(keys, (4, 3), strict=True))
        timed = time_program(lambda x, g: trees.fit(x, g, trees.candidates(x), 4), x, grads, repeats=repeats)
        result[f"fit {rows}"] = timed["run_s"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with gbrl")
    parser.add_argument("--trees", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side, alternating")
    parser.add_argument("--repeats", type=int, default=21, help="timed calls a process")
    parser.add_argument("--threads", default="1", help="OMP_NUM_THREADS of gbrl")
    parser.add_argument("--out", default="trees.json")
    parser.add_argument("--own", action="store_true", help="time our side here (internal)")
    args = parser.parse_args()
    sizes = ("--trees", str(args.trees), "--repeats", str(args.repeats))
    if args.own:
        print(json.dumps(own_side(args.trees, args.repeats)))
        return
    if not args.peer_python:
        parser.error("--peer-python is needed; README.md here says how to make it")
    asked = ("--rows", *map(str, ROWS), "--fits", *map(str, FITS))
    threads = {"OMP_NUM_THREADS": args.threads}
    times = alternate(
        {
            "gbrl": lambda: run_driver(args.peer_python, "peer_gbrl.py", *sizes, *asked, env=threads),
            "jaxrl": lambda: run_driver(sys.executable, "trees.py", "--own", *sizes),
        },
        args.rounds,
    )
    rows = []
    for what in times["jaxrl"]:
        gbrl, ours = times["gbrl"][what], times["jaxrl"][what]
        rows.append((what, f"{1e3 * gbrl:.2f}", f"{1e3 * ours:.2f}", f"{gbrl / ours:.2f}"))
    print_table(f"{args.trees} trees, milliseconds", ("rows", "gbrl", "jaxrl", "gbrl / jaxrl"), rows)
    save(args.out, {"trees": args.trees, "threads_of_gbrl": args.threads, "times": times})


if __name__ == "__main__":
    main()

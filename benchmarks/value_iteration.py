"""Value iteration of 10,000 random MDPs (50 states, 5 actions) against NumPy loops over them.

Two NumPy references, each with vectorised sweeps and a Python loop over MDPs and sweeps: `textbook` stops by the
contraction bound gamma / (1 - gamma) max|change|, `bounds` by MacQueen's bounds, as `jaxrl.exact.solvers` does.
All three guarantee the same accuracy. NumPy is timed on a sample of the MDPs and scaled up.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import print_table, save

from jaxrl.exact.mdp import DenseMDP
from jaxrl.exact.solvers import value_iteration


def textbook(transition: np.ndarray, reward: np.ndarray, gamma: float, tol: float) -> tuple[np.ndarray, int]:
    value, sweeps, error = np.zeros(len(reward), np.float32), 0, np.inf
    while error > tol:
        new = (reward + gamma * (transition @ value)).max(1)
        error = gamma / (1 - gamma) * np.abs(new - value).max()
        value, sweeps = new, sweeps + 1
    return value, sweeps


def bounds(transition: np.ndarray, reward: np.ndarray, gamma: float, tol: float) -> tuple[np.ndarray, int]:
    value, sweeps, ahead = np.zeros(len(reward), np.float32), 0, gamma / (1 - gamma)
    while True:
        new = (reward + gamma * (transition @ value)).max(1)
        change = new - value
        low, high = change.min(), change.max()
        value, sweeps = new, sweeps + 1
        if ahead * (high - low) / 2 <= tol:
            return value + ahead * (high + low) / 2, sweeps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mdps", type=int, default=10_000)
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--actions", type=int, default=5)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--sample", type=int, default=30, help="MDPs that the NumPy loops solve")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    N, S, A = args.mdps, args.states, args.actions
    rng = np.random.default_rng(0)
    transition = rng.standard_exponential((N, S, A, S), np.float32)
    transition /= transition.sum(-1, keepdims=True)
    reward = rng.random((N, S, A), np.float32)
    mdps = DenseMDP(jnp.asarray(transition), jnp.asarray(reward), jnp.full((N, S), 1 / S))
    solve = jax.jit(lambda m: jax.lax.map(lambda m: value_iteration(m, args.gamma, args.tol), m))
    ours = jax.block_until_ready(solve(mdps))

    seconds: dict[str, list[float]] = {"jaxrl": [], "textbook": [], "bounds": []}
    for _ in range(args.repeats):
        start = time.perf_counter()
        jax.block_until_ready(solve(mdps))
        seconds["jaxrl"].append(time.perf_counter() - start)
        for name, fn in (("textbook", textbook), ("bounds", bounds)):
            sample = args.sample if name == "textbook" else 10 * args.sample
            start = time.perf_counter()
            found = [fn(transition[i], reward[i], args.gamma, args.tol) for i in range(sample)]
            seconds[name].append((time.perf_counter() - start) * N / sample)
            error = max(np.abs(found[i][0] - ours.value[i]).max() for i in range(sample))
            assert error < 2 * args.tol, f"{name} differs by {error}"
    median = {name: statistics.median(x) for name, x in seconds.items()}
    head = ("solver", "seconds", "jaxrl is faster by")
    rows = [(name, f"{x:.2f}", f"{x / median['jaxrl']:.1f}") for name, x in median.items()]
    print_table(f"{N:,} MDPs, {S} states, {A} actions, gamma {args.gamma}, within {args.tol}", head, rows)
    if args.out:
        save(args.out, {"settings": vars(args), "seconds": median})


if __name__ == "__main__":
    main()

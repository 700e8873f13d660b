"""What Adam's form costs an update: optax's on all weights as one vector or on their tree, and a plain one on a vector.

PPO with 4 environments and DQN on CartPole-v1, SAC on Pendulum-v1, each at its default settings. "plain" is a short
Adam whose square root has a guarded derivative at zero; `optim.adam` is optax's with an `eps_root` for that. Scans of
updates, one program each, alternating in one process. `--derivatives` prints which ones are finite at a gradient of
zero and how far the steps are from those of optax's defaults.

Run: `python benchmarks/optimizers.py --repeats 15`, with `--derivatives` for the second table.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import print_table

import jaxrl
from jaxrl.algos import dqn, ppo, sac
from jaxrl.nn import optim
from jaxrl.nn.optim import EPS_ROOT

CASES = {
    "PPO, 4 environments, CartPole-v1": (ppo, "CartPole-v1", 5),
    "DQN, CartPole-v1": (dqn, "CartPole-v1", 200),
    "SAC, Pendulum-v1": (sac, "Pendulum-v1", 20),
}


def plain_adam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam as an optax transformation, with the derivative of the square root at zero guarded by two `where`s."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.int32(0), zeros, zeros)

    def update(grads, state, params=None):
        count = state.count + 1
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        m_scale, v_scale = 1 / (1 - b1**count), 1 / (1 - b2**count)

        def step(m, v):
            v = v * v_scale
            root = jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1)), 0)
            return -learning_rate * (m * m_scale) / (root + eps)

        return jax.tree.map(step, mean, square), optax.ScaleByAdamState(count, mean, square)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


VARIANTS = {  # function, on one vector
    "plain, vector": (plain_adam, True),
    "optax, vector": (optim.adam, True),
    "optax, vector, eps_root=0": (optax.adam, True),
    "optax, tree": (optim.adam, False),
}


def program(module: Any, env_id: str, updates: int, variant: str) -> tuple[Any, Any]:
    """`(compiled scan of updates, state after a first run of it)`."""
    function, flat = VARIANTS[variant]
    flattened = optim.ELEMENTWISE if flat else {k: v for k, v in optim.ELEMENTWISE.items() if k != "adam"}
    with mock.patch.dict(optim.OPTIMIZERS, adam=function), mock.patch.object(optim, "ELEMENTWISE", flattened):
        algo = module.make.__wrapped__(jaxrl.make(env_id)[0])  # not a cached one with another Adam
        hyper = module.Hyper()
        hyper = hyper.replace(learning_starts=0) if hasattr(hyper, "learning_starts") else hyper
        state = jax.jit(algo.init)(jax.random.key(0), hyper)

        def run(state):
            return jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=updates)[0]

        compiled = jax.jit(run).lower(state).compile()
    return compiled, jax.block_until_ready(compiled(state))


def times(repeats: int) -> list[list[str]]:
    """Median microseconds an update, and the median over rounds of the ratio to the first variant."""
    rows = []
    for title, (module, env_id, updates) in CASES.items():
        programs = {name: program(module, env_id, updates, name) for name in VARIANTS}
        seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for _ in range(repeats):
            for name, (run, state) in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(run(state))
                seconds[name].append((time.perf_counter() - start) / updates)
        first = seconds[next(iter(VARIANTS))]
        for name, taken in seconds.items():
            ratio = statistics.median(b / a for a, b in zip(first, taken, strict=True))
            micros = 1e6 * statistics.median(taken), 1e6 * min(taken)
            rows.append([title, name, f"{micros[0]:.0f}", f"{micros[1]:.0f}", f"{ratio:.2f}"])
    return rows


def derivatives() -> list[list[str]]:
    """Two steps of size-g gradients, g = 0 and 1e-22 ... 100: NaNs and infinities, and distance to optax's steps."""
    sizes = jnp.concatenate([jnp.zeros(1), 10.0 ** jnp.arange(-22.0, 3.0)])

    def moved(gradient, transformation):
        state = transformation.init(gradient)
        first, state = transformation.update(gradient, state)
        return first + transformation.update(gradient, state)[0]

    variants = {"plain": plain_adam, "optax, eps_root=0": optax.adam}
    variants |= {f"optax, eps_root={x}": functools.partial(optax.adam, eps_root=x) for x in (1e-16, EPS_ROOT, 1e-32)}
    rows = []
    for eps in (1e-8, 1e-5):
        expected = jax.vmap(functools.partial(moved, transformation=optax.adam(1.0, eps=eps)))(sizes)
        for name, make_adam in variants.items():
            f = functools.partial(moved, transformation=make_adam(1.0, eps=eps))
            values = [
                jax.vmap(g)(sizes) for g in (f, jax.grad(f), jax.grad(jax.grad(f)), jax.grad(jax.grad(jax.grad(f))))
            ]
            broken = [f"{int(np.sum(~np.isfinite(x)))}" for x in values[1:]]
            rows.append([f"{eps:.0e}", name, *broken, f"{np.max(np.abs(values[0] - expected)):.1e}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--derivatives", action="store_true")
    args = parser.parse_args()
    if args.derivatives:
        head = [
            "eps",
            "Adam",
            "first derivative not finite",
            "second",
            "third",
            "largest distance to optax.adam, learning rates",
        ]
        print_table("26 gradients, 0 and 1e-22 to 100, float32", head, derivatives())
        return
    head = ["update", "Adam", "us, median", "us, least", "against the first"]
    print_table("Time of an update", head, times(args.repeats))


if __name__ == "__main__":
    main()

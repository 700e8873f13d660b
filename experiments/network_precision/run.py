"""What do networks lose that multiply in bfloat16, as a TPU does by default? Tuned agents, ten seeds, both ways.

    python experiments/network_precision/run.py [--seeds 10] [--only ppo/CartPole-v1 ...]

A TPU rounds both factors of a float32 product to bfloat16 and sums in float32. Here the factors of every layer's three
products, forward, by its inputs and by its weights, are rounded so on whatever machine this runs on. Writes
results.json beside this file, row by row, and prints the table of README.md.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.registry import tuned

FILE = Path(__file__).with_name("results.json")
PAIRS = (
    "ppo/CartPole-v1",
    "ppo/Acrobot-v1",
    "ppo/Pendulum-v1",
    "pqn/CartPole-v1",
    "a2c/CartPole-v1",
    "sac/Pendulum-v1",
)
EXACT = jax.lax.dot_general
ROWS = (((1,), (0,)), ((), ()))


def rounded(x):
    """The nearest bfloat16, as a float32. A cast there and back may be taken away by the compiler, this is not."""
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


@jax.custom_vjp
def product(x, kernel):
    return EXACT(rounded(x), rounded(kernel), ROWS)


def forward(x, kernel):
    return product(x, kernel), (x, kernel)


def backward(kept, dy):
    x, kernel, dy = *map(rounded, kept), rounded(dy)
    return EXACT(dy, kernel, (((1,), (1,)), ((), ()))), EXACT(x, dy, (((0,), (0,)), ((), ())))


product.defvjp(forward, backward)


def as_a_tpu(x, kernel, dimension_numbers, **settings):
    """`jax.lax.dot_general` as flax's and our layers call it."""
    contracted, batch = dimension_numbers
    assert kernel.ndim == 2 and tuple(contracted[0]) == (x.ndim - 1,) and not batch[0], dimension_numbers
    return product(x.reshape(-1, x.shape[-1]), kernel).reshape(*x.shape[:-1], -1)


def returns(pair: str, seeds: int) -> list[float]:
    """Mean return of 128 episodes of each seed's final policy."""
    name, id = pair.split("/")
    module, settings = jaxrl.get_algo(name), tuned(name, id)
    env, params = jaxrl.make(id)
    params = strongly_typed(params)
    algo = module.make(env, module.Config(**settings.config))

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, settings.total_steps, module.Hyper(**settings.hyper), params)
        return evaluate(algo, algo.policy(state), env, params, eval_key, 128).returns.mean()

    keys = jax.random.split(jax.random.key(0), seeds)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(run, keys))(keys), float).round(2).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(PAIRS), choices=list(PAIRS))
    args = parser.parse_args()
    for how, dot in (("float32", EXACT), ("bfloat16", as_a_tpu)):
        jax.lax.dot_general = dot
        jax.clear_caches()
        for pair in args.only:
            found = returns(pair, args.seeds)
            report = json.loads(FILE.read_text()) if FILE.exists() else {}
            report.setdefault(pair, {})[how] = {"returns": found, "where": environment_of_run()}
            FILE.write_text(json.dumps(report, indent=1) + "\n")
    report = json.loads(FILE.read_text())
    print("| | steps | float32 | bfloat16 |\n|---|---|---|---|")
    for pair in (pair for pair in PAIRS if pair in report):
        cells = []
        for how in ("float32", "bfloat16"):
            x = np.asarray(report[pair][how]["returns"])
            low, high = bootstrap_interval(x)
            cells.append(f"{iqm(x):.1f} ({low:.1f} to {high:.1f}), lowest {x.min():.1f}")
        steps = tuned(*pair.split("/")).total_steps
        print(f"| {pair.replace('/', ', ')} | {steps:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

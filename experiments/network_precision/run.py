"""What do networks lose where a TPU multiplies float32 matrices in bfloat16?

    python experiments/network_precision/run.py [--seeds 10]

Trains with the tuned settings, once as a CPU multiplies and once with both factors of every product of default
precision rounded to bfloat16 and summed in float32, gradients' products too, as a TPU's matrix unit does by default.
Products that ask for full precision (environments, solvers, indices: `jaxrl.math.precise`) are left alone, as there.
Writes results.json and prints the table of README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src.interpreters import mlir
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p

from jaxrl.host.cli.experiment import experiment
from jaxrl.host.cli.train import TrainFlags
from jaxrl.host.run.fit import fit
from jaxrl.host.run.recipe import build
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
RUNS = {  # algorithm and task: steps a seed
    ("ppo", "CartPole-v1"): 500_000,
    ("ppo", "Acrobot-v1"): 500_000,
    ("ppo", "Pendulum-v1"): 300_000,
    ("dqn", "CartPole-v1"): 200_000,
    ("pqn", "Acrobot-v1"): 500_000,
    ("sac", "Pendulum-v1"): 10_000,
}
EXACT = (lax.Precision.HIGHEST,) * 2


def round_products() -> None:
    """From here on this process lowers products of default precision to those of rounded factors."""
    for primitive in (dot_general_p, conv_general_dilated_p):

        def rounded(*factors: Any, primitive: Any = primitive, precision: Any, **how: Any) -> Any:
            if precision is None or tuple(precision) == (lax.Precision.DEFAULT,) * 2:
                # Not a conversion there and back, which XLA would take away.
                factors = tuple(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7) for x in factors)
            return primitive.bind(*factors, precision=EXACT, **how)

        # jax has no public way to ask for the rule that is there; a study may look.
        plain = mlir._platform_specific_lowerings["cpu"][primitive].rule
        through = mlir.lower_fun(rounded, multiple_results=False)

        def rule(ctx: Any, *factors: Any, plain: Any = plain, through: Any = through, **how: Any) -> Any:
            exact = how["precision"] is not None and tuple(how["precision"]) == EXACT
            floats = all(x.dtype == np.float32 for x in ctx.avals_in)
            return (plain if exact or not floats else through)(ctx, *factors, **how)

        mlir.register_lowering(primitive, rule, platform="cpu")


def product_error() -> float:
    """How far the product of two random 64 x 64 matrices is from that in float64, relative: 1e-7 or 1e-3."""
    a, b = np.random.default_rng(0).normal(size=(2, 64, 64)).astype(np.float32)
    exact = a.astype(float) @ b.astype(float)
    return float(abs(jax.jit(jax.numpy.dot)(a, b) - exact).max() / abs(exact).max())


def returns(algo: str, task: str, steps: int, seeds: int) -> list[float]:
    """Final greedy returns, mean of 128 episodes each."""
    _, recipe = experiment("train", [algo, task], TrainFlags)
    made, hyper, _, params = build(recipe)
    result = fit(
        made,
        jax.random.key(0),
        steps,
        hyper=hyper,
        env_params=params,
        num_seeds=seeds,
        eval_every=steps,
        progress=False,
    )
    return np.asarray(result.evaluations[-1]["return"], float).ravel().tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[], help="as in ppo/CartPole-v1")
    args = parser.parse_args()
    seeds, only = args.seeds, args.only
    file = HERE / "results.json"
    report = json.loads(file.read_text()) if file.exists() else {"results": {}}
    report |= {"seeds": seeds, "where": environment_of_run()}
    for rounding in (False, True):
        if rounding:
            round_products()
            jax.clear_caches()
        error = product_error()
        assert (error > 1e-4) == rounding, error
        for (algo, task), steps in RUNS.items():
            name = f"{algo}/{task}"
            if only and name not in only:
                continue
            begin = time.perf_counter()
            row = report["results"].setdefault(name, {"steps": steps})
            row["bfloat16" if rounding else "float32"] = returns(algo, task, steps, seeds)
            file.write_text(json.dumps(report, indent=1) + "\n")
            print(f"{name} rounded={rounding}: {time.perf_counter() - begin:.0f} s", flush=True)
    print("| run | steps a seed | float32 (95 %) | bfloat16 factors (95 %) |\n|---|---|---|---|")
    for name, row in report["results"].items():
        cells = []
        for kind in ("float32", "bfloat16"):
            cells.append(told(row[kind], ".1f"))
        print(f"| {name} | {row['steps']:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

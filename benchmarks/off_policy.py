"""SAC and TD3 on Pendulum-v1, one gradient step a step, against SBX 0.28.0 in alternating processes.

256x256 networks, batch 256, one environment, one seed; then 64x64 networks, one seed and eight vmapped. Also the share
of the peak FLOP/s that the gradient steps' matrix products use, the peak being a large product's in the same process.

Run: `python benchmarks/off_policy.py --peer-python VENV/bin/python --out off_policy.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from common import alternate, print_table, run_driver, save, time_program

OBS, ACTIONS = 3, 1  # Pendulum-v1's


def flops(name: str, hidden: int, batch: int) -> float:
    """Floating-point operations of a gradient step's matrix products, a mean over TD3's two kinds of step."""

    def product(inputs: int, outputs: int) -> float:  # one pass of a two-layer network for a batch
        return 2.0 * batch * (inputs * hidden + hidden * hidden + hidden * outputs)

    critic, actor = product(OBS + ACTIONS, 1), product(OBS, ACTIONS if name == "td3" else 2 * ACTIONS)
    # A pass, its gradient in the weights and its gradient in the inputs cost the same.
    critics = 2 * critic + actor + 2 * 3 * critic  # target values at the actor's actions, then the regression
    if name == "td3":
        return critics + (3 * actor + 2 * critic) / 2  # the first critic, every other step
    return critics + 3 * actor + 2 * 2 * critic


def peak(size: int = 1536) -> float:
    """FLOP/s of a large float32 product, the best of several."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((size, size))
    square = jax.jit(lambda x: x @ x)
    square(x).block_until_ready()
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        square(x).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def own_side(name: str, hidden: int, batch: int, steps: int, seeds: int) -> dict[str, float]:
    """Time our training run in this process: milliseconds an environment step of all seeds."""
    import jax

    import jaxrl

    module = jaxrl.get_algo(name)
    env, _ = jaxrl.make("Pendulum-v1")
    algo = module.make(env, module.Config(hidden=(hidden, hidden), batch_size=batch))
    hyper = module.Hyper(learning_starts=100)

    def run(key):
        state, metrics = jaxrl.train(algo, key, steps, hyper)
        return state.weights, metrics["episode_return"]

    key = jax.random.key(0)
    before = peak()
    program, keys = (run, key) if seeds == 1 else (jax.vmap(run), jax.random.split(key, seeds))
    times = time_program(program, keys, repeats=1)
    return {
        "ms": times["run_s"] / steps * 1e3,
        "compile_s": times["compile_s"],
        "share": seeds * flops(name, hidden, batch) * steps / times["run_s"] / max(before, peak()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with sbx-rl==0.28.0; without it only our side is timed")
    parser.add_argument("--algos", nargs="*", default=["sac", "td3"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--small-batch", type=int, default=256, help="batch of the 64x64 networks")
    parser.add_argument("--out", default="off_policy.json")
    parser.add_argument("--own", nargs=5, metavar=("ALGO", "HIDDEN", "BATCH", "STEPS", "SEEDS"), help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(args.own[0], *map(int, args.own[1:]))))
        return

    def side(name: str, hidden: int, seeds: int):
        batch = 256 if hidden == 256 else args.small_batch
        if seeds:
            options = ("--own", name, str(hidden), str(batch), str(args.steps), str(seeds))
            return lambda: run_driver(sys.executable, "off_policy.py", *options)
        options = ("--algo", name, "--hidden", str(hidden), "--batch-size", str(batch), "--steps", str(args.steps))
        return lambda: run_driver(args.peer_python, "peer_sbx.py", *options, env={"JAX_PLATFORMS": "cpu"})

    results, rows = {}, []
    for name in args.algos:
        for hidden, seeds in ((256, (1,)), (64, (1, 8))):
            sides = {f"jaxrl x{n}": side(name, hidden, n) for n in seeds}
            if args.peer_python:
                sides = {"SBX": side(name, hidden, 0), **sides}
            times = results[f"{name} {hidden}x{hidden}"] = alternate(sides, args.rounds)
            for label, result in times.items():
                count = 8 if label.endswith("x8") else 1
                summed = count / result["ms"] * 1e3
                ratios = [f"{result['compile_s']:.1f}", f"{result['share']:.0%}"] if "share" in result else ["", ""]
                for other in ("SBX", "jaxrl x1"):
                    ratios.append(f"{summed * times[other]['ms'] / 1e3:.2f}" if other in times else "")
                rows.append([f"{name} {hidden}x{hidden}", label, f"{summed:,.0f}", *ratios])
    head = ["", "side", "steps/s, all seeds", "compile s", "share of peak FLOP/s", "/ SBX", "/ jaxrl x1"]
    print_table(f"Pendulum-v1, one gradient step a step, {args.steps:,} steps", head, rows)
    save(args.out, {"steps": args.steps, "small_batch": args.small_batch, "times": results})


if __name__ == "__main__":
    main()

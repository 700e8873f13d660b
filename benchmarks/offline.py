"""Gradient steps of offline learners against PyTorch: CORL's files and d3rlpy 2.8.1, in alternating processes.

100,000 transitions of HalfCheetah's shapes (17 numbers and 6 actions), standard normal; networks of 256 x 256 (edac and
rebrac three layers, edac ten critics), batches of 256, one seed, all cores. Then 64-wide networks: one seed, and four
in one program over as many devices as cores. Milliseconds a gradient step, the batch's draw included; minutes of
a million follow. Also the share of the peak FLOP/s that ours use, the peak being a large product's in the same process:
what is left to win.

Run: `python benchmarks/offline.py --torch VENV/bin/python --corl CHECKOUT --out results/offline.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from common import alternate, print_table, run_driver, save

PEERS = {
    "iql": ("CORL", "d3rlpy"),
    "td3_bc": ("CORL", "d3rlpy"),
    "rebrac": ("d3rlpy",),  # CORL's is of JAX
    "edac": ("CORL",),
}


def own_side(name: str, hidden: int, seeds: int, steps: int) -> dict[str, float]:
    """Ours in this process: milliseconds a gradient step of all seeds."""
    import jax
    import numpy as np
    from off_policy import peak

    import jaxrl
    from jaxrl.data import datasets

    rng, size = np.random.default_rng(0), 100_000
    obs, next_obs = rng.normal(size=(2, size, 17)).astype(np.float32)
    last = np.arange(size) % 1000 == 999
    action, reward = rng.uniform(-1, 1, (size, 6)).astype(np.float32), rng.normal(size=size).astype(np.float32)
    env, params = jaxrl.make("HalfCheetah-v5")
    memory = datasets.stored(
        datasets.Dataset(obs, action, reward, last & False, last, next_obs), env.action_space(params)
    )
    module, updates = jaxrl.get_algo(name), 100

    def of(updates):
        layers = len(module.Config().hidden)
        config = module.Config(hidden=(hidden,) * layers, num_updates=updates, batch_size=256)
        return module.make(env, config, replay=memory)

    algo = of(updates)

    def run(state):
        return jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, None, steps // updates)[0]

    key = jax.random.key(0)
    single = jax.eval_shape(algo.init, key)
    # XLA counts the body of a loop once: of a program of one gradient step.
    flops = jax.jit(lambda s: of(1).update(s)[0]).lower(single).compile().cost_analysis()["flops"]
    if seeds == 1:
        program, state = run, jax.jit(algo.init)(key)
    else:  # of a device, its part of the seeds: as `jaxrl train --mesh seeds=2`
        mesh, part = jax.make_mesh((jax.device_count(),), ("seeds",)), jax.sharding.PartitionSpec("seeds")
        program = jax.shard_map(jax.vmap(run), mesh=mesh, in_specs=part, out_specs=part, check_vma=False)
        state = jax.jit(jax.vmap(algo.init))(jax.random.split(key, seeds))
        state = jax.device_put(state, jax.sharding.NamedSharding(mesh, part))
    begin = time.perf_counter()
    compiled = jax.jit(program).lower(state).compile()
    compile_s = time.perf_counter() - begin
    state = jax.block_until_ready(compiled(state))
    before, begin = peak(), time.perf_counter()
    jax.block_until_ready(compiled(state))
    seconds = (time.perf_counter() - begin) / steps
    share = seeds * flops / seconds / max(before, peak())
    return {"ms": seconds * 1e3, "compile_s": compile_s, "gflop": flops / 1e9, "share": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="python of a venv with torch and d3rlpy; without it only our side is timed")
    parser.add_argument("--corl", help="a checkout of corl-team/CORL; without it d3rlpy alone")
    parser.add_argument("--algos", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--out", default="offline.json")
    parser.add_argument("--own", nargs=4, metavar=("ALGO", "HIDDEN", "SEEDS", "STEPS"), help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(args.own[0], *map(int, args.own[1:]))))
        return

    def own(name: str, hidden: int, seeds: int):
        options = ("--own", name, str(hidden), str(seeds), str(args.steps))
        env = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={min(seeds, os.cpu_count() or 1)}"}
        return lambda: run_driver(sys.executable, "offline.py", *options, env=env)

    def peer(library: str, name: str):
        corl = ("--corl", args.corl) if library == "CORL" else ()
        options = ("--library", library, "--algo", name, "--steps", str(args.steps), *corl)
        return lambda: run_driver(args.torch, "peer_offline.py", *options)

    results, rows = {}, []
    for name in args.algos:
        libraries = [x for x in PEERS[name] if args.torch and (x != "CORL" or args.corl)]
        wide = alternate({"jaxrl": own(name, 256, 1), **{x: peer(x, name) for x in libraries}}, args.rounds)
        narrow = alternate({"one": own(name, 64, 1), "four": own(name, 64, 4)}, args.rounds)
        results[name] = {"steps": args.steps, "256": wide, "64": narrow}
        minutes = {side: f"{times['ms'] / 60 * 1e3:.1f}" for side, times in wide.items()}
        ratios = [f"{wide[x]['ms'] / wide['jaxrl']['ms']:.2f}" if x in wide else "" for x in ("CORL", "d3rlpy")]
        cells = [minutes.get(x, "") for x in ("jaxrl", "CORL", "d3rlpy")]
        four = narrow["four"]["ms"] / narrow["one"]["ms"]
        rows.append(
            [
                name,
                *cells,
                *ratios,
                f"{wide['jaxrl']['share']:.0%}",
                f"{wide['jaxrl']['compile_s']:.0f}",
                f"{narrow['one']['ms']:.2f}",
                f"{four:.2f}",
            ]
        )
        save(args.out, {"times": results})
    head = ["", "jaxrl, minutes a million", "CORL", "d3rlpy", "CORL / jaxrl", "d3rlpy / jaxrl"]
    head += ["of the peak", "compile s", "64 wide, ms", "four seeds / one"]
    print_table(f"Offline, batches of 256, {args.steps:,} steps timed", head, rows)


if __name__ == "__main__":
    main()

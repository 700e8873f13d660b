"""PPO and SAC on MuJoCo's tasks, beside Brax's own PPO and SBX's SAC: steps a second and returns.

    python benchmarks/physics_learning.py ppo --peer-python BRAX/bin/python
    python benchmarks/physics_learning.py sac --peer-python SBX/bin/python

Our settings are those of `jaxrl/tuned.toml`, our returns the ten seeds of experiments/results, our steps a second those
of one seed, compiled beforehand, by its CPU time. Brax trains in our environments (`to_brax`), SBX in Gymnasium's of
the same ids, with the same networks, numbers of environment steps and gradient steps, and batches. Run it under
`taskset -c 0`: every process then has one core. Writes results/physics_learning.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from common import machine, print_table, run_driver

HERE = Path(__file__).parent
OUT = HERE / "results" / "physics_learning.json"
IDS = ["InvertedPendulum-v5", "Reacher-v5", "Hopper-v5", "HalfCheetah-v5"]
# Of Brax's PPO, which does not scale rewards by itself: the better of 1 and 0.1 on Hopper and HalfCheetah, 300k steps.
REWARD_SCALING = {"InvertedPendulum-v5": 1.0, "Reacher-v5": 1.0, "Hopper-v5": 0.1, "HalfCheetah-v5": 0.1}


def own_side(algo_name: str, id: str) -> dict[str, float]:
    """Time our training of one seed in this process."""
    import jax

    import jaxrl
    from jaxrl.registry import tuned

    module = jaxrl.get_algo(algo_name)
    settings: Any = tuned(algo_name, id)
    steps = {"ppo": 200_000, "sac": 20_000}[algo_name]
    env, params = jaxrl.make(id)
    algo = module.make(env, module.Config(**settings.config))

    def run(key):
        state, metrics = jaxrl.train(algo, key, steps, module.Hyper(**settings.hyper), params)
        return state.weights, metrics["episode_return"]

    begin = time.perf_counter()
    program = jax.jit(run).lower(jax.random.key(0)).compile()
    compiled = time.perf_counter()
    seconds = []
    for _ in range(2):
        start = time.process_time()  # of the processor, as another process may share the core
        jax.block_until_ready(program(jax.random.key(0)))
        seconds.append(time.process_time() - start)
    return {"steps_per_second": steps / min(seconds), "compile_s": compiled - begin}


def peer_side(algo: str, id: str, python: str, seeds: int) -> dict[str, Any]:
    """Train the peer's seeds with our settings, translated."""
    from jaxrl.registry import tuned

    settings: Any = tuned(algo, id)
    config, hyper = settings.config, settings.hyper
    common = {"--env": id, "--seeds": seeds, "--learning-rate": hyper["learning_rate"]}
    common["--gamma"] = hyper.get("gamma", 0.99)
    if algo == "sac":
        steps = {"--algo": "sac", "--steps": settings.total_steps, "--learning-starts": hyper["learning_starts"]}
        sizes = {"--hidden": config["hidden"][0], "--batch-size": config["batch_size"]}
        options, driver = {**common, **steps, **sizes}, "peer_sbx.py"
    else:
        steps = {"--total-steps": settings.total_steps, "--reward-scaling": REWARD_SCALING[id]}
        sizes = {"--num-envs": config["num_envs"], "--rollout": config["num_envs"] * config["num_steps"]}
        sizes |= {"--num-minibatches": config["num_minibatches"], "--num-epochs": config["num_epochs"]}
        options, driver = {**common, **steps, **sizes}, "peer_brax_ppo.py"
    words = [str(x) for pair in options.items() for x in pair]
    result = run_driver(python, driver, *words, env={"JAX_PLATFORMS": "cpu"})
    return {"steps_per_second": 1e3 / result["ms"], **result} if "ms" in result else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algo", choices=["ppo", "sac"])
    parser.add_argument("--peer-python", help="of a venv with brax==0.14.2 and jax==0.7.2, or with sbx-rl==0.28.0")
    parser.add_argument("--ids", nargs="*", default=IDS, choices=IDS)
    parser.add_argument("--seeds", type=int, default=3, help="of the peer")
    parser.add_argument("--own", metavar="ID", help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(args.algo, args.own)))
        return
    for id in args.ids:
        own = run_driver(sys.executable, Path(__file__).name, args.algo, "--own", id)
        case: dict[str, Any] = {"ours": own, "machine": machine()}
        if args.peer_python:
            case["peer"] = peer_side(args.algo, id, args.peer_python, args.seeds)
        results = json.loads(OUT.read_text()) if OUT.exists() else {}  # read again: a run of the other may have added
        results[f"{args.algo}/{id}"] = case
        OUT.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        print(id, case, flush=True)
    table(json.loads(OUT.read_text()))


def table(results: dict[str, Any]) -> None:
    """What docs/benchmarks.md shows."""
    ours = json.loads((HERE.parent / "results" / "results.json").read_text())
    rows = []
    for pair, case in results.items():
        speed, peer = case["ours"]["steps_per_second"], case.get("peer", {})
        returns, theirs = ours[pair]["returns"], peer.get("returns", [])
        cells = [pair, f"{ours[pair]['total_steps']:,}", f"{speed:,.0f}", f"{case['ours']['compile_s']:.0f}"]
        cells += [f"{sum(returns) / len(returns):,.1f} ({min(returns):,.1f} to {max(returns):,.1f})"]
        if peer:
            cells += [f"{peer['steps_per_second']:,.0f}", f"{speed / peer['steps_per_second']:.2f}"]
            cells += [", ".join(f"{x:,.1f}" for x in theirs), ", ".join(f"{x:,.1f}" for x in peer.get("greedy", []))]
        rows.append(cells)
    head = ["", "steps", "ours, steps/s", "compiles, s", "return, mean of 10 (range)", "peer, steps/s", "ratio"]
    print_table("PPO beside Brax's, SAC beside SBX's", [*head, "peer's returns", "by the mode"], rows)


if __name__ == "__main__":
    main()

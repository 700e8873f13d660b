"""Times gradient steps of another library's offline learner in its own process; run by `offline.py`.

`--library d3rlpy`: iql, td3_bc, rebrac of an installed d3rlpy. `--library CORL`: iql, td3_bc, edac of the files in
`--corl`, a checkout of corl-team/CORL, whose imports of simulators and loggers are stood in for. Data are standard
normal. Prints one JSON line: milliseconds a gradient step, its batch's draw included.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np


def of_d3rlpy(name: str, data: dict[str, np.ndarray], batch_size: int) -> Callable[[], Any]:
    import d3rlpy  # pyright: ignore[reportMissingImports]

    kind = {"iql": "IQLConfig", "td3_bc": "TD3PlusBCConfig", "rebrac": "ReBRACConfig"}[name]
    algo = getattr(d3rlpy.algos, kind)(batch_size=batch_size).create(device="cpu:0")
    ends = np.arange(len(data["rewards"])) % 1000 == 999
    dataset = d3rlpy.dataset.MDPDataset(
        data["observations"], data["actions"], data["rewards"], np.zeros(len(ends)), ends.astype(np.float32)
    )
    algo.build_with_dataset(dataset)
    return lambda: algo.update(dataset.sample_transition_batch(batch_size))


def of_corl(name: str, data: dict[str, np.ndarray], batch_size: int, folder: pathlib.Path) -> Callable[[], Any]:
    import torch  # pyright: ignore[reportMissingImports]

    for missing in ("d4rl", "gym", "pyrallis", "wandb"):
        stub: Any = types.ModuleType(missing)
        stub.wrap, stub.Env, stub.trange = (lambda: lambda f: f), object, range
        sys.modules[missing] = stub
    spec: Any = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    states, actions = data["observations"].shape[1], data["actions"].shape[1]
    buffer = module.ReplayBuffer(states, actions, len(data["rewards"]))
    buffer.load_d4rl_dataset(data)

    def adam(network: Any) -> Any:
        return torch.optim.Adam(network.parameters(), lr=3e-4)

    if name == "iql":
        q, v = module.TwinQ(states, actions), module.ValueFunction(states)
        actor = module.GaussianPolicy(states, actions, 1.0)
        trainer = module.ImplicitQLearning(1.0, actor, adam(actor), q, adam(q), v, adam(v))
    elif name == "td3_bc":
        actor, *critics = module.Actor(states, actions, 1.0), *(module.Critic(states, actions) for _ in range(2))
        both = [x for critic in critics for x in (critic, adam(critic))]
        trainer = module.TD3_BC(1.0, actor, adam(actor), *both)
    else:
        actor, critic = module.Actor(states, actions, 256), module.VectorizedCritic(states, actions, 256, 10)
        trainer = module.EDAC(actor, adam(actor), critic, adam(critic))
    update = trainer.update if name == "edac" else trainer.train
    return lambda: update(buffer.sample(batch_size))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=["d3rlpy", "CORL"], required=True)
    parser.add_argument("--algo", required=True)
    parser.add_argument("--corl", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--shape", type=int, nargs=3, default=(100_000, 17, 6), help="transitions, numbers of each part"
    )
    args = parser.parse_args()
    size, states, actions = args.shape
    rng = np.random.default_rng(0)
    data = {
        "observations": rng.normal(size=(size, states)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (size, actions)).astype(np.float32),
        "rewards": rng.normal(size=size).astype(np.float32),
        "next_observations": rng.normal(size=(size, states)).astype(np.float32),
        "terminals": np.zeros(size, np.float32),
    }
    if args.library == "CORL":
        step = of_corl(args.algo, data, args.batch_size, args.corl / "algorithms" / "offline")
    else:
        step = of_d3rlpy(args.algo, data, args.batch_size)
    for _ in range(100):
        step()
    start = time.perf_counter()
    for _ in range(args.steps):
        step()
    print(json.dumps({"ms": (time.perf_counter() - start) / args.steps * 1e3}))


if __name__ == "__main__":
    main()

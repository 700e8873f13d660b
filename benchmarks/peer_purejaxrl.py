"""Times purejaxrl's PPO in its own process; run by `ppo_vs_purejaxrl.py` with the Python of purejaxrl's environment.

Prints one JSON line: seconds to compile, seconds a run. No file of purejaxrl is changed; its `wrappers.py` imports
Brax and Navix for environments that are not used here, so empty modules stand in for them.
"""

from __future__ import annotations

import argparse
import json
import sys
from unittest import mock

from common import time_program


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--purejaxrl", required=True, help="checkout of luchris429/purejaxrl")
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()

    for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
        sys.modules[name] = mock.MagicMock()
    sys.path.insert(0, f"{args.purejaxrl}/purejaxrl")

    import flax.linen.initializers as initializers
    import jax

    if args.seeds > 1:
        # Several batched QR decompositions in one CPU program deadlock jaxlib 0.10.2 (they did here, in the first run);
        # the network's initialisation is no part of what is timed, so scaled normal weights stand in.
        initializers.orthogonal = lambda scale: initializers.variance_scaling(scale**2, "fan_in", "normal")

    from ppo import make_train  # pyright: ignore[reportMissingImports]

    config = {  # ppo.py's own, without its callback that prints every episode
        "LR": 2.5e-4,
        "NUM_ENVS": args.num_envs,
        "NUM_STEPS": 128,
        "TOTAL_TIMESTEPS": args.total_steps,
        "UPDATE_EPOCHS": 4,
        "NUM_MINIBATCHES": 4,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ENV_NAME": "CartPole-v1",
        "ANNEAL_LR": True,
        "DEBUG": False,
    }
    train = make_train(config)

    def run(key):
        out = train(key)
        info = out["metrics"]  # reduced inside, as ours are, rather than returned whole
        done = info["returned_episode"]
        last = done & (jax.numpy.arange(len(done)) >= 0.9 * len(done)).reshape(-1, 1, 1)
        returns = (info["returned_episode_returns"] * last).sum() / last.sum()
        return out["runner_state"][0].params, returns

    key = jax.random.PRNGKey(0)
    function, key = (run, key) if args.seeds == 1 else (jax.vmap(run), jax.random.split(key, args.seeds))
    print(json.dumps(time_program(function, key, repeats=args.repeats)))


if __name__ == "__main__":
    main()

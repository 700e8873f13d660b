"""Times SBX's SAC or TD3 in its own process; run by `off_policy.py` with the Python of SBX's environment.

Prints one JSON line: milliseconds an environment step, one gradient step each, on Pendulum-v1.
"""

from __future__ import annotations

import argparse
import json
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=["sac", "td3"], required=True)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()

    import sbx  # pyright: ignore[reportMissingImports]

    model = getattr(sbx, args.algo.upper())(
        "MlpPolicy",
        "Pendulum-v1",
        learning_starts=100,
        batch_size=args.batch_size,
        buffer_size=100_000,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [args.hidden, args.hidden]},
    )
    model.learn(400)  # compiles
    start = time.perf_counter()
    model.learn(args.steps, reset_num_timesteps=False)
    print(json.dumps({"ms": (time.perf_counter() - start) / args.steps * 1e3}))


if __name__ == "__main__":
    main()

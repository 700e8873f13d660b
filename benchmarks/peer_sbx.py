"""Times SBX's SAC or TD3 in its own process; run by `off_policy.py` and `physics_learning.py` with the Python of SBX's
environment.

Prints one JSON line. Pendulum-v1: milliseconds an environment step, one gradient step each. Any other `--env`, which is
Gymnasium's: also the mean return of each seed's greedy policy after `--steps` steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=["sac", "td3"], required=True)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--seeds", type=int, default=1, help="with --env; one after the other")
    parser.add_argument("--episodes", type=int, default=32, help="with --env; evaluated of each seed")
    parser.add_argument("--learning-starts", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    args = parser.parse_args()

    import sbx  # pyright: ignore[reportMissingImports]

    def agent(seed):
        return getattr(sbx, args.algo.upper())(
            "MlpPolicy",
            args.env,
            seed=seed,
            learning_rate=args.learning_rate,
            gamma=args.gamma,
            tau=args.tau,
            learning_starts=args.learning_starts,
            batch_size=args.batch_size,
            buffer_size=100_000,
            train_freq=1,
            gradient_steps=1,
            policy_kwargs={"net_arch": [args.hidden, args.hidden]},
        )

    first = args.learning_starts + 300  # steps in which it compiles; an agent shares no program with another one
    if args.env == "Pendulum-v1":
        model = agent(0)
        model.learn(first)
        start = time.perf_counter()
        model.learn(args.steps, reset_num_timesteps=False)
        print(json.dumps({"ms": (time.perf_counter() - start) / args.steps * 1e3}))
        return

    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]

    times, returns = [], []
    for seed in range(args.seeds):
        model = agent(seed)
        model.learn(first)
        start = time.perf_counter()
        model.learn(args.steps - first, reset_num_timesteps=False)
        times.append((time.perf_counter() - start) / (args.steps - first) * 1e3)
        mean, _ = evaluate_policy(model, model.get_env(), args.episodes, deterministic=True, warn=False)
        returns.append(round(float(mean), 2))
        print(args.env, seed, returns[-1], times[-1], file=sys.stderr)
    print(json.dumps({"ms": statistics.median(times), "returns": returns}))


if __name__ == "__main__":
    main()

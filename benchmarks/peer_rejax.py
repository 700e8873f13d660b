"""Times rejax's DQN in its own process; run by `dqn_vs_rejax.py` with the Python of rejax's environment.

Prints one JSON line: seconds to compile, seconds a run. The settings are rejax's own for CartPole
(`configs/gymnax/cartpole.yaml`), its evaluation replaced by nothing.
"""

from __future__ import annotations

import argparse
import json

from common import time_program


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()

    import jax
    import rejax  # pyright: ignore[reportMissingImports]

    algo = rejax.get_algo("dqn").create(
        env="CartPole-v1",
        agent="DuelingQNetwork",
        agent_kwargs={"activation": "swish"},
        num_envs=10,
        buffer_size=50_000,
        fill_buffer=5_000,
        batch_size=100,
        max_grad_norm=10,
        learning_rate=0.001,
        num_epochs=5,
        total_timesteps=args.total_steps,
        eval_freq=args.total_steps,
        skip_initial_evaluation=True,
        polyak=0.98,
        eps_start=1,
        eps_end=0.05,
        exploration_fraction=0.5,
        gamma=0.99,
        ddqn=True,
        normalize_observations=False,
    )
    algo = algo.replace(eval_callback=lambda algo, train_state, key: ())

    def run(key):
        return algo.train(key)[0].q_ts.params

    print(json.dumps(time_program(run, jax.random.PRNGKey(0), repeats=args.repeats)))


if __name__ == "__main__":
    main()

"""Trains Brax's own PPO on a task of jaxrl in its own process; run by `physics_learning.py` with the Python of Brax's
environment, in which jaxrl is importable too (brax 0.14.2 does not run with jax 0.10).

Prints one JSON line: returns of each seed (as it explores, and by its mode), steps a second without compiling, and
seconds until the first half of the training is compiled and done.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--unroll", type=int, default=16, help="steps of one trajectory, over which it bootstraps")
    parser.add_argument("--rollout", type=int, default=2048, help="steps of all environments between updates")
    parser.add_argument("--num-minibatches", type=int, default=32)
    parser.add_argument("--num-epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--reward-scaling", type=float, default=1.0)
    args = parser.parse_args()

    import jax
    import jax.numpy as jnp
    from brax.training.agents.ppo import networks, train
    from flax import linen as nn

    import jaxrl
    from jaxrl.environment import NO_LIMIT
    from jaxrl.interop.brax import to_brax
    from jaxrl.wrappers import RescaleAction

    # Brax compiles each call of `train` anew: later seeds find the first one's programs here.
    folder = tempfile.mkdtemp()
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    env, params = jaxrl.make(args.env)
    length = int(params.max_steps)
    env = to_brax(RescaleAction(env), params.replace(max_steps=jnp.int32(NO_LIMIT)))
    factory = functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=(64, 64),
        value_hidden_layer_sizes=(64, 64),
        activation=nn.tanh,
    )
    explored, greedy, speeds, first = [], [], [], []
    for seed in range(args.seeds):
        history = []
        begin = time.perf_counter()
        # Three evaluations: before, after half of the steps, which is compiled in it, and at the end.
        make_policy, weights, _ = train.train(
            env,
            num_timesteps=args.total_steps,
            episode_length=length,
            num_envs=args.num_envs,
            unroll_length=args.unroll,
            batch_size=args.rollout // args.unroll // args.num_minibatches,
            num_minibatches=args.num_minibatches,
            num_updates_per_batch=args.num_epochs,
            learning_rate=args.learning_rate,
            discounting=args.gamma,
            gae_lambda=0.95,
            clipping_epsilon=0.2,
            entropy_cost=0.0,
            max_grad_norm=0.5,
            reward_scaling=args.reward_scaling,
            normalize_observations=True,
            network_factory=factory,
            num_evals=3,
            num_eval_envs=128,
            seed=seed,
            progress_fn=lambda step, metrics, history=history: history.append((step, time.perf_counter(), metrics)),
        )
        print(
            [(s, round(t - begin), round(float(m["eval/episode_reward"]), 1)) for s, t, m in history], file=sys.stderr
        )
        explored.append(round(float(history[-1][2]["eval/episode_reward"]), 2))
        speeds.append(float(history[-1][2]["training/sps"]))
        first.append(history[1][1] - begin)
        greedy.append(round(evaluated(env, make_policy(weights, deterministic=True), length), 2))
    result = {"returns": explored, "greedy": greedy, "steps_per_second": sorted(speeds)[len(speeds) // 2]}
    print(json.dumps({**result, "first_half_s": first[0], "steps": int(history[-1][0]), "jax": jax.__version__}))


def evaluated(env, policy, length: int) -> float:
    """Mean return of 128 episodes."""
    import jax
    from brax.envs.wrappers.training import EvalWrapper, wrap

    env = EvalWrapper(wrap(env, episode_length=length))

    @jax.jit
    def run(key):
        def step(state, key):
            return env.step(state, policy(state.obs, key)[0]), None

        reset_key, key = jax.random.split(key)
        state = env.reset(jax.random.split(reset_key, 128))
        state, _ = jax.lax.scan(step, state, jax.random.split(key, length))
        return state.info["eval_metrics"].episode_metrics["reward"].mean()

    return float(run(jax.random.PRNGKey(1)))


if __name__ == "__main__":
    main()

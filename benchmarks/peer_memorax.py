"""Times memorax's recurrent PPO and R2D2 in their own process; run by `memory_vs_memorax.py` with the Python of its
environment.

Prints one JSON line: seconds to compile, seconds a run, and the greedy policy's mean return for each seed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from common import time_seeds


def agent_of(algo: str, task: str, cell: str, total_steps: int) -> Any:
    """Memorax's agent at the settings of `memory_vs_memorax.py`."""
    import flashbax  # pyright: ignore[reportMissingImports]
    import flax.linen as nn
    import optax
    from memorax import algorithms, buffers  # pyright: ignore[reportMissingImports]
    from memorax.environments import environment  # pyright: ignore[reportMissingImports]
    from memorax.networks import (  # pyright: ignore[reportMissingImports]
        MLP,
        RNN,
        FeatureExtractor,
        LRUCell,
        Memoroid,
        MinGRUCell,
        Network,
        heads,
    )

    env, env_params = environment.make(f"gymnax::{task}")
    if task == "MemoryChain-bsuite":
        env_params = env_params.replace(memory_length=10)
    num_actions = env.action_space(env_params).n
    torso = {
        "gru": lambda: RNN(cell=nn.GRUCell(features=64)),
        "min_gru": lambda: Memoroid(cell=MinGRUCell(features=64)),
        "lru": lambda: Memoroid(cell=LRUCell(features=64, hidden_dim=64)),
    }[cell]()
    features = FeatureExtractor(observation_extractor=MLP(features=(64,)))
    if algo == "ppo":
        config = algorithms.PPOConfig(
            name="PPO",
            num_envs=32,
            num_eval_envs=128,
            num_steps=128,
            gamma=0.99,
            gae_lambda=0.95,
            num_minibatches=4,
            update_epochs=4,
            normalize_advantage=True,
            clip_coef=0.2,
            clip_vloss=True,
            ent_coef=0.01,
            vf_coef=0.5,
        )
        actor = Network(features, torso, heads.Categorical(num_actions))
        critic = Network(features, torso, heads.VNetwork())
        optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))
        return algorithms.PPO(config, env, env_params, actor, critic, optimizer, optimizer)
    config = algorithms.R2D2Config(
        name="R2D2",
        learning_rate=1e-3,
        num_envs=16,
        num_eval_envs=128,
        buffer_size=51_200,
        gamma=0.99,
        tau=1.0,
        target_network_frequency=1600,
        batch_size=32,
        start_e=1.0,
        end_e=0.05,
        exploration_fraction=0.5,
        learning_starts=2048,
        train_frequency=16,
        burn_in_length=10,
        sequence_length=30,
        n_step=3,
    )
    replay = dict(
        sample_batch_size=config.batch_size,
        sample_sequence_length=config.sequence_length,
        add_batch_size=config.num_envs,
        priority_exponent=config.priority_exponent,
    )
    if algo == "r2d2_flashbax":
        steps = config.buffer_size // config.num_envs
        buffer = flashbax.make_prioritised_trajectory_buffer(
            period=1, min_length_time_axis=config.sequence_length, max_length_time_axis=steps, **replay
        )
    else:
        least = config.batch_size * config.sequence_length
        buffer = buffers.make_prioritised_episode_buffer(
            max_length=config.buffer_size, min_length=least, add_sequences=True, **replay
        )
    return algorithms.R2D2(
        config,
        env,
        env_params,
        q_network=Network(features, torso, heads.DiscreteQNetwork(num_actions)),
        optimizer=optax.chain(optax.clip_by_global_norm(40.0), optax.adam(1e-3, eps=1e-5)),
        buffer=buffer,
        epsilon_schedule=optax.linear_schedule(1.0, 0.05, total_steps // 2),
        beta_schedule=optax.constant_schedule(config.importance_sampling_exponent),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--cell", required=True)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--starts", action="store_true", help="instead: at which steps R2D2's sequences begin")
    args = parser.parse_args()

    import jax
    import jax.numpy as jnp

    agent = agent_of(args.algo, args.task, args.cell, args.total_steps)
    warmup = getattr(agent.cfg, "learning_starts", 0)
    if args.starts:  # of 256 draws, after 150 steps of each environment
        key, state = agent.warmup(*agent.init(jax.random.key(0)), 150 * agent.cfg.num_envs)
        draw = jax.vmap(lambda key: agent.buffer.sample(state.buffer_state, key).indices)
        steps = draw(jax.random.split(key, 8)) % (agent.cfg.buffer_size // agent.cfg.num_envs)
        print(json.dumps(jnp.unique(steps).tolist()))
        return

    def train(key):
        key, state = agent.init(key)
        key, state = agent.warmup(key, state, warmup)
        return agent.train(key, state, args.total_steps - warmup)[1]

    def evaluate(state):
        # Of each of 128 slots the first episode, as `jaxrl.evaluate` counts. No episode of the tasks is longer.
        steps = 500 if args.task == "CartPole-v1" else 11
        _, transitions = agent.evaluate(jax.random.key(1), state, steps)
        first = jnp.cumsum(transitions.done, 0) - transitions.done == 0
        return jnp.sum(transitions.reward.reshape(first.shape) * first, 0).mean()

    print(json.dumps(time_seeds(train, evaluate, args.seeds)))


if __name__ == "__main__":
    main()

"""Times memorax's recurrent PPO in its own process; run by `memory_vs_memorax.py` with the Python of its environment.

Prints one JSON line: seconds to compile, seconds a run.
"""

from __future__ import annotations

import argparse
import json

from common import time_program


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", required=True)
    parser.add_argument("--total-steps", type=int, default=524_288)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()

    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax
    from memorax.algorithms import PPO, PPOConfig  # pyright: ignore[reportMissingImports]
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

    env, env_params = environment.make("gymnax::CartPole-v1")
    config = PPOConfig(
        name="PPO",
        num_envs=32,
        num_eval_envs=32,
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
    torso = {
        "gru": lambda: RNN(cell=nn.GRUCell(features=64)),
        "min_gru": lambda: Memoroid(cell=MinGRUCell(features=64)),
        "lru": lambda: Memoroid(cell=LRUCell(features=64, hidden_dim=64)),
    }[args.cell]()
    features = FeatureExtractor(observation_extractor=MLP(features=(64,)))
    actor = Network(features, torso, heads.Categorical(env.action_space(env_params).n))
    critic = Network(features, torso, heads.VNetwork())
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
    agent = PPO(config, env, env_params, actor, critic, optimizer, optimizer)

    def run(key):
        key, state = agent.init(key)
        _, state, transitions = agent.train(key, state, args.total_steps)
        # Of the last tenth, the mean time between ends of episodes: CartPole's return.
        done = transitions.done.reshape(-1)[-(args.total_steps // 10) :]
        return state.actor_params, done.size / jnp.maximum(done.sum(), 1)

    print(json.dumps(time_program(run, jax.random.key(0), repeats=args.repeats)))


if __name__ == "__main__":
    main()

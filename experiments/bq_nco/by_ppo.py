"""Without a solution to learn from: the same policy over the rest of a knapsack of 50 items, by PPO.

    python experiments/bq_nco/by_ppo.py [--steps 1000000] [--seeds 3]

Goes on where it stopped: a seed is a row of ppo.json beside this file. Tests are of the sizes of those of run.py, on
other instances.
"""

import argparse
import json
import time
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from rests import CAPACITY, RestActor, gaps
from run import TESTS

import jaxrl
from jaxrl.algos import ppo
from jaxrl.envs.routing.knapsack import Knapsack
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
CONFIG = ppo.Config(num_envs=128, num_steps=32, num_epochs=4, num_minibatches=8, clip_value=False)
HYPER = ppo.Hyper(learning_rate=1e-3, gamma=1.0, gae_lambda=0.95, ent_coef=0.003, max_grad_norm=0.5)


class RestActorCritic(nn.Module):
    """Logits of the items, and what those that will be taken are worth: each item's value times a probability."""

    def setup(self):
        self.policy, self.taken = RestActor(24, 2), RestActor(24, 2)

    def actor(self, obs):
        return self.policy(obs)

    def critic(self, obs):
        return (nn.sigmoid(self.taken(obs)) * obs["items"][..., 0]).sum(-1)

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)


def learner(env):
    """PPO on `env`, of any number of items."""
    return ppo.make(env, CONFIG, network=RestActorCritic())


def trained(key, steps):
    """A policy that has played knapsacks of 50 items, of capacities from 0.3 to 25 as run.py's demonstrations have."""
    env = Knapsack(50, CAPACITY)
    capacity = jnp.geomspace(300, CAPACITY, CONFIG.num_envs).astype(jnp.int32)  # an environment each
    params = jax.vmap(lambda c: env.default_params.replace(capacity=c))(capacity)
    algo = learner(jaxrl.vectorize(env, CONFIG.num_envs, batched_params=True))
    return algo.policy(jaxrl.train(algo, key, steps, HYPER.replace(anneal_steps=steps), params)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--steps", 1_000_000), ("--tested", 256), ("--seeds", 3)):
        parser.add_argument(name, type=int, default=default)
    args, file = parser.parse_args(), HERE / "ppo.json"
    results = json.loads(file.read_text()) if file.exists() else {"seeds": {}}
    for seed in range(args.seeds):
        name = f"{seed}, {args.steps} steps, {args.tested} tested"
        if name in results["seeds"]:
            continue
        train_key, test_key = jax.random.split(jax.random.key(seed))
        began = time.process_time()
        policy = jax.block_until_ready(jax.jit(lambda key: trained(key, args.steps))(train_key))
        row = {"training_cpu_seconds": round(time.process_time() - began, 1)}
        for test, (items, capacity) in TESTS.items():
            judge = jax.jit(lambda policy, key, n=items, c=capacity: gaps(learner, policy, n, c, args.tested, key))
            found = [np.asarray(x).round(4).tolist() for x in judge(policy, test_key)]
            row[test] = dict(zip(("learned", "greedy"), found, strict=True))
            more = np.subtract(*found)  # paired by instance
            means = {who: round(float(np.mean(x)), 3) for who, x in row[test].items()}
            print(
                f"{seed} {test} {means}, {more.mean():.3f} (+-{1.96 * more.std() / len(more) ** 0.5:.3f})", flush=True
            )
        results["seeds"][name] = row
        file.write_text(json.dumps({**results, **environment_of_run()}) + "\n")


if __name__ == "__main__":
    main()

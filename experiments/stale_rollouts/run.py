"""What do stale rollouts cost PPO, and does a decoupled objective mend it? A queue between acting and learning.

    python experiments/stale_rollouts/run.py [--only "CartPole-v1, 16, decoupled"]

Writes results.json beside this file after each cell, and prints the table of README.md; what the file holds already is
not run again.
"""

import argparse
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
SEEDS = 10
TASKS = {"CartPole-v1": 200_000, "Acrobot-v1": 300_000}  # environment steps
AGES = 0, 4, 16, 64  # updates from a rollout's weights to the update that learns from it
CONFIG = ppo.Config(num_envs=8, num_steps=32, clip_value=False)
HYPER = ppo.Hyper(learning_rate=1e-3, ent_coef=0.01)


def decoupled(weights, batch, *parts):
    """The decoupled objective of Hilton et al. (2022): clipped around the proximal weights, those of just before the
    update, each step weighted by how much more likely they are to do what was done than the weights that acted.

    `batch.log_prob` (B, 2) has the log-probabilities of the weights that acted and of the proximal ones.
    """
    acted, proximal = batch.log_prob[:, 0], batch.log_prob[:, 1]

    def policy_loss(log_prob, old_log_prob, advantage, clip_eps, mask):
        return ppo.policy_loss(log_prob, old_log_prob, jnp.exp(proximal - acted) * advantage, clip_eps, mask)

    return ppo.loss(weights, batch._replace(log_prob=proximal), *parts, policy_loss)


def coupled(weights, batch, *parts):
    """PPO's loss as it is, around the weights that acted."""
    return ppo.loss(weights, batch._replace(log_prob=batch.log_prob[:, 0]), *parts)


ARMS = {"coupled": coupled, "decoupled": decoupled}


def trained(id, age, arm, seeds=SEEDS):
    """`(seeds, updates)` mean returns of the episodes that ended in each update, NaN where none did."""
    env, params = jaxrl.make(id)
    algo = ppo.make(env, CONFIG, loss=ARMS[arm])
    rule = algo.init.__self__

    def refreshed(state, rollout):
        """With the present policy's log-probabilities beside the old ones. Values stay as old as they are."""
        present = rule.distribution(state.weights, rollout.obs, None).log_prob(rollout.action)
        log_prob = jnp.stack([rollout.log_prob, present], -1)
        return rollout._replace(log_prob=log_prob)

    def update(carry, _):
        state, queue = carry
        state, fresh = algo.collect(state)
        queue = jax.tree.map(lambda q, x: jnp.concatenate([q[1:], x[None]]), queue, fresh)
        oldest = jax.tree.map(lambda q: q[0], queue)
        state, _ = algo.learn(state, refreshed(state, oldest))
        return (state, queue), fresh.ends.metrics()["episode_return"]

    def run(key):
        state = algo.init(key, HYPER.replace(anneal_steps=TASKS[id]), params)
        # All of the weights that nothing has changed yet; the first is never learned from.
        state, queue = jax.lax.scan(lambda state, _: algo.collect(state), state, length=age + 1)
        return jax.lax.scan(update, (state, queue), None, TASKS[id] // algo.steps_per_update)[1]

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="CELL", help="one cell, as results.json names it")
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for id, age, arm in itertools.product(TASKS, AGES, ARMS):
        name = f"{id}, {age}, {arm}"
        if name not in found and args.only in (None, name):
            returns = trained(id, age, arm)
            last = np.nanmean(returns[:, -returns.shape[1] // 10 :], 1), np.nanmean(returns, 1)
            found[name] = {"last": last[0].round(2).tolist(), "all": last[1].round(2).tolist()}
            found |= environment_of_run()
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(name, iqm(last[0]), iqm(last[1]), flush=True)
    print(
        "| task | age | coupled, last tenth | decoupled | difference | coupled, all | decoupled |\n" + "|---" * 7 + "|"
    )
    for id, age in itertools.product(TASKS, AGES):
        arms = [found.get(f"{id}, {age}, {arm}") for arm in ARMS]
        if all(arms):
            (last, whole) = (np.array([row[key] for row in arms]) for key in ("last", "all"))
            cells = [*map(told, last), told(last[1] - last[0]), *map(told, whole)]
            print(f"| {id} | {age} | " + " | ".join(cells) + " |")


def told(values):
    low, high = bootstrap_interval(values, iqm)
    return f"{iqm(values):.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()

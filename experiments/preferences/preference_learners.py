"""Two learners of a linear reward from the same pairs of segments, and what a learned reward is worth."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import tasks

from jaxrl.data.preferences import Teacher, labels
from jaxrl.exact import preference_rewards as rewards

STEPS, RATE, TEMPERATURE = 1000, 2.0, 1e-3  # those of the authors
NOISES = {"error-free": Teacher(ties=1e-6), "logistic": Teacher(temperature=1.0)}


def in_single(tree):
    """Learners compute in float32; only planning needs more."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, tree)


@functools.partial(jax.jit, static_argnames=("kind", "noise", "crossing", "count", "learner"))
def learned(keys, grids, successor, kind, noise, crossing, count, learner):
    """Weights, loss and accuracy of each grid; both learners see the same pairs, labels and first weights."""

    def of_grid(given):
        key, grid, successor = given
        pair_key, label_key, start_key = jax.random.split(key, 3)
        pairs, early = tasks.segments(pair_key, grid, count, crossing)
        true = grid["weights"]
        value = tasks.greedy(grid, true)[1]
        by = rewards.negative_regrets(true, pairs, value) if kind == "regret" else rewards.partial_returns(true, pairs)
        label, small = labels(label_key, by, NOISES[noise]).astype(jnp.float32), in_single(pairs)

        def scores(weights):
            if learner == "return":
                return rewards.partial_returns(weights, small)
            return rewards.negative_regrets(weights, small, rewards.soft_values(weights, successor, TEMPERATURE))

        start = jax.random.uniform(start_key, (tasks.FEATURES,), jnp.float32, -1, 1) / np.float32(tasks.FEATURES**0.5)
        found = rewards.fit(scores, label, start, RATE, STEPS)
        return found.weights, found.loss, jnp.mean(pairs.ended), early

    return jax.lax.map(of_grid, (keys, grids, successor))


@jax.jit
def judged(grids, weights):
    """Scaled returns of the best policies for learned rewards."""

    def of_grid(given):
        grid, weights = given
        return rewards.scaled_return(tasks.mdp_of(grid, grid["weights"]), tasks.greedy(grid, weights)[0], tasks.GAMMA)

    return jax.lax.map(of_grid, (grids, weights))

"""Learning a reward from pairs of steps of its own best policy, with and without the cross term, query by query."""

import functools

import jax
import jax.numpy as jnp
import optax
from bilevel_tasks import GAMMA

from jaxrl.exact import parl
from jaxrl.exact.preference_rewards import scaled_return
from jaxrl.exact.solvers import value_iteration

SWEEPS = 150  # of the value of the policy that acts
QUERIES, ROUNDS = 4, 300  # pairs that are labelled in a round
KEPT_STEPS = 5  # gradient steps a round where all pairs are kept; where only new ones count it is one
MOST_WEIGHT = 10.0  # of an old pair in the cross term


def sampled_loss(weights, task, pairs, labels, chances, counted, cross):
    """Of pairs (n, 2), numbers of steps: a function whose derivative estimates that of `parl.upper_loss`.

    Of the loss the derivative is that of the pairs that are `counted` (n,), old ones unweighted. The cross term is by
    the score function, the sum of (loss - its mean) times d log(rho(x) rho(y)), where a pair drawn by an older policy
    weighs as much as the present one would draw it more often than `chances` (n,), the chance then. As the mean is that
    of the same pairs, the term is a share 1/n too small in expectation: of four new pairs a quarter.
    """
    reward = task.features @ weights
    margin = reward.reshape(-1)[pairs[:, 1]] - reward.reshape(-1)[pairs[:, 0]]
    loss = labels * jax.nn.softplus(-margin) + (1 - labels) * jax.nn.softplus(margin)
    count = counted.sum()
    found = (counted * loss).sum() / count
    if cross:
        visits = parl.visits(task.mdp, parl.soft_optimal(task.mdp, reward, GAMMA, task.tau, SWEEPS)[0], GAMMA)
        log_chance = jnp.log(visits.reshape(-1) + 1e-12)[pairs].sum(-1)
        ratio = counted * jnp.minimum(jnp.exp(jax.lax.stop_gradient(log_chance - chances)), MOST_WEIGHT)
        fixed = jax.lax.stop_gradient(loss - (ratio * loss).sum() / ratio.sum())
        found = found + (ratio * fixed * log_chance).sum() / count
    return found


def chance_of(apart, noisy):
    """That the second step is called the better one, by how much it is: Bradley and Terry's, or error-free."""
    return jax.nn.sigmoid(apart) if noisy else 0.5 + 0.5 * jnp.sign(apart)


def worth(task, weights):
    """Of the greedy policy for a learned reward by the true one: uniform actions 0, the best 1."""
    policy = value_iteration(task.mdp.replace(reward=task.features @ weights), GAMMA, 1e-4, 300).policy
    return scaled_return(task.mdp, policy, GAMMA)


@functools.partial(jax.jit, static_argnames=("cross", "kept", "noisy"))
def learned(key, task, rate, cross, kept, noisy):
    """Worth (ROUNDS,) after each round, from no reward at all; each round asks QUERIES pairs of the policy's steps."""
    true, optimizer = task.mdp.reward.reshape(-1), optax.adam(rate)
    total = QUERIES * ROUNDS

    def step(carry, _):
        weights, state, seen, counted = carry
        gradient = jax.grad(sampled_loss)(weights, task, *seen, counted, cross)
        change, state = optimizer.update(gradient, state)
        return (optax.apply_updates(weights, change), state, seen, counted), None

    def a_round(carry, given):
        weights, state, seen = carry
        key, number = given
        policy = parl.soft_optimal(task.mdp, task.features @ weights, GAMMA, task.tau, SWEEPS)[0]
        log_chance = jnp.log(parl.visits(task.mdp, policy, GAMMA).reshape(-1) + 1e-12)
        draw_key, label_key = jax.random.split(key)
        pairs = jax.random.categorical(draw_key, log_chance, shape=(QUERIES, 2))
        chance = chance_of(true[pairs[:, 1]] - true[pairs[:, 0]], noisy)
        label = jnp.where(jax.random.uniform(label_key, (QUERIES,)) < chance, 1.0, 0.0) if noisy else chance
        new = pairs, label, log_chance[pairs].sum(-1)
        seen = jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, number * QUERIES, 0), seen, new)
        at = jnp.arange(total) // QUERIES
        counted = (at <= number if kept else at == number).astype(jnp.float32)
        (weights, state, *_), _ = jax.lax.scan(step, (weights, state, seen, counted), length=KEPT_STEPS if kept else 1)
        return (weights, state, seen), worth(task, weights)

    weights = jnp.zeros(task.features.shape[-1])
    seen = jnp.zeros((total, 2), jnp.int32), jnp.zeros(total), jnp.zeros(total)
    given = jax.random.split(key, ROUNDS), jnp.arange(ROUNDS)
    return jax.lax.scan(a_round, (weights, optimizer.init(weights), seen), given)[1]


@functools.partial(jax.jit, static_argnames=("cross", "noisy", "steps"))
def of_all_pairs(task, cross, noisy, steps=1000):
    """Worth and upper loss where the exact gradient of all pairs leads, no query drawn."""
    true, optimizer = task.mdp.reward.reshape(-1), optax.adam(0.03)
    label = chance_of(true[None, :] - true[:, None], noisy)

    def loss(weights, cross):
        return parl.upper_loss(weights, task.features, task.mdp, label, GAMMA, task.tau, cross)

    def step(carry, _):
        weights, state = carry
        change, state = optimizer.update(jax.grad(loss)(weights, cross), state)
        return (optax.apply_updates(weights, change), state), None

    start = jnp.zeros(task.features.shape[-1])
    weights = jax.lax.scan(step, (start, optimizer.init(start)), length=steps)[0][0]
    return worth(task, weights), loss(weights, False)

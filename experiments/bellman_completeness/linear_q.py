"""LinearQ: a chain whose optimal values a handful of ReLU units hold, and whose Bellman backups need ever more of them.

States are 0 to 3u + 2, actions 0 and 1. The optimal values are two hinges,

    Q(s, 0) = 2 relu(2u + 1 - s)        Q(s, 1) = relu(3u + 1.5 - s)

by which action 0 is best up to u, action 1 afterwards. The best action goes on to s + 1, the other one to one of the
last two states, to which one by the parity of s; rewards are what makes these values optimal. So the backup of any
other function zigzags over the states. Episodes begin at 0 and last 3(u + 1) steps; of the data three quarters are
optimal, and each of the others takes one wrong action, at a step of its own. The MDP and its data are those of the
authors' own code (repository zhaoyizhou1123/decision-transformer, toy/env/linearq.py).

"Q-learning" knows that the last state, which leads to itself, is worth nothing. "Q-learning without an end" does not,
and learns its value from itself; nothing ends in that code, either.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl.math import fast_key
from jaxrl.nn.networks import MLP

BATCH, UPDATES, PERIOD, RATE = 256, 10_000, 100, 3e-3  # PERIOD: gradient steps between copies to the target network


def tables(u: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(optimal values, rewards, next states)`, (S, 2) each; values are in units of the optimal return."""
    s = np.arange(3 * u + 3)
    q = np.stack([2 * np.maximum(2 * u + 1 - s, 0), np.maximum(3 * u + 1.5 - s, 0)], 1)
    ends = np.where(s % 2 == 0, 3 * u + 2, 3 * u + 1)
    zero = np.where(s <= u, s + 1, np.where(s <= 2 * u, ends, 3 * u + 2))
    one = np.where(s <= u, ends, np.minimum(s + 1, 3 * u + 2))
    after = np.stack([zero, one], 1)
    q = q / q.max()
    return q, q - q.max(1)[after], after


def units_needed(values: np.ndarray) -> int:
    """Units of one hidden layer that a network needs at least to have these values (S, A) at the states.

    Its outputs are piecewise linear with at most a kink a unit. Kinks where the slope rises and kinks where it falls
    are different ones, so there is one at least for each run of one sign in an action's second differences.
    """
    bends = np.sign(np.diff(values, 2, axis=0).round(9)).T
    return max(int(np.sum(np.diff(row[row != 0]) != 0)) + 1 if row.any() else 0 for row in bends)


def returns(policy, reward, after):
    """What `policy(s, asked) -> action` earns from 0, where `asked` is what is left of the optimal return."""

    def step(carry, _):
        s, asked, total = carry
        a = policy(s, asked)
        r = reward[s, a]
        return (after[s, a], asked - r, total + r), None

    return jax.lax.scan(step, (0, 1.0, 0.0), length=len(reward))[0][2]


def data(u: int) -> tuple[np.ndarray, ...]:
    """`(state, action, return to go)` of every step, flat."""
    q, reward, after = tables(u)
    best, size = q.argmax(1), len(q)
    states, actions = np.zeros((2, 4 * size, size), int)
    for episode in range(4 * size):
        s = 0
        for t in range(size):
            a = 1 - best[s] if t == episode - 3 * size else best[s]
            states[episode, t], actions[episode, t], s = s, a, after[s, a]
    return_to_go = np.cumsum(reward[states, actions][:, ::-1], 1)[:, ::-1]
    return states.ravel(), actions.ravel(), return_to_go.ravel().astype(np.float32)


def measure(u: int, width: int, learner: str, seeds: int) -> dict:
    """Of networks of one hidden layer, each seed's share of the optimal return, and the error of its values."""
    q, reward, after = tables(u)
    state, action, return_to_go = (jnp.asarray(x) for x in data(u))
    reward, after, every = jnp.asarray(reward, jnp.float32), jnp.asarray(after), jnp.arange(len(q))
    network = MLP((width,), 2, "relu")

    def seen(s):
        return (2 * s / (len(q) - 1) - 1)[..., None]

    def values(weights, s):
        return network.apply(weights, seen(s))

    def logits(weights, s, asked):
        return network.apply(weights, jnp.concatenate([seen(s), asked[..., None]], -1))

    def loss(weights, target, row):
        s, a = state[row], action[row]
        if learner == "RCSL":
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits(weights, s, return_to_go[row]), a))
        ahead = jnp.max(values(target, after[s, a]), -1)
        if learner == "Q-learning":
            ahead = jnp.where(after[s, a] == len(q) - 1, 0, ahead)
        backup = reward[s, a] + ahead
        return jnp.mean((jnp.take_along_axis(values(weights, s), a[:, None], 1)[:, 0] - backup) ** 2)

    def run(key):
        init_key, key = jax.random.split(key)
        weights = network.init(init_key, jnp.zeros((1, 2 if learner == "RCSL" else 1)))
        weights = {"params": weights["params"]}
        optimizer = optax.adam(optax.cosine_decay_schedule(RATE, UPDATES))

        def period(carry, key):
            target = carry[0]

            def step(carry, row):
                weights, state = carry
                value, grads = jax.value_and_grad(loss)(weights, target, row)
                change, state = optimizer.update(grads, state)
                return (optax.apply_updates(weights, change), state), value

            rows = jax.random.randint(key, (PERIOD, BATCH), 0, len(state))
            carry, losses = jax.lax.scan(step, carry, rows)
            return carry, losses.mean()

        keys = jax.random.split(fast_key(key), UPDATES // PERIOD)
        (weights, _), losses = jax.lax.scan(period, (weights, optimizer.init(weights)), keys)
        if learner == "RCSL":
            earned = returns(lambda s, asked: logits(weights, s, asked).argmax(), reward, after)
            return {"return": earned, "loss": losses[-1]}
        found = values(weights, every)
        earned = returns(lambda s, asked: values(weights, s).argmax(), reward, after)
        return {"return": earned, "loss": losses[-1], "error": jnp.sqrt(jnp.mean((found - q) ** 2))}

    found = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))
    return {name: np.asarray(x, float).round(5).tolist() for name, x in found.items()}

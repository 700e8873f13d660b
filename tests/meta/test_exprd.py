"""Rewards designed for tables: against brute force, and that the optimal policy is what it was."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos.meta import exprd
from jaxrl.exact.mdp import DenseMDP

GAMMA = 0.9


def corridor(n=5, slip=0.1):
    """Left and right in a corridor; right in its last state pays 1 and ends."""
    transition, reward = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s in range(n):
        for a, (to, other) in enumerate([(s - 1, s + 1), (s + 1, s - 1)]):
            for target, p in ((to, 1 - slip), (other, slip)):
                if target == n:
                    reward[s, a] += p
                else:
                    transition[s, a, max(target, 0)] += p
    return DenseMDP(jnp.asarray(transition), jnp.asarray(reward), jnp.eye(n)[0])


def gaps_by_hand(mdp, policy, horizon, reward):
    """delta_h by rolling the definition out."""
    transition = np.asarray(mdp.transition, float)
    q = reward
    for _ in range(horizon):
        value = q[np.arange(len(q)), policy]
        q = reward + GAMMA * transition @ value
    return q[np.arange(len(q)), policy][:, None] - q


def test_gaps_are_the_definition_and_shaping_has_no_more_to_tell():
    mdp, rng = corridor(), np.random.default_rng(0)
    task = exprd.task_of(mdp, GAMMA, (0, 1, 3))
    assert (task.policy == 1).all() and task.worse[:, 0].all() and not task.worse[:, 1].any()
    reward = rng.normal(size=(5, 2))
    for h, matrix in zip((0, 1, 3), task.by_horizon, strict=True):
        by_hand = gaps_by_hand(mdp, task.policy, h, reward)
        np.testing.assert_allclose((matrix @ reward.ravel()).reshape(5, 2), by_hand, atol=1e-12)
    np.testing.assert_allclose(
        (task.last @ reward.ravel()).reshape(5, 2), gaps_by_hand(mdp, task.policy, 500, reward), atol=1e-9
    )
    assert exprd.informativeness(task, exprd.shaped(mdp, GAMMA)) > -1e-5
    assert exprd.informativeness(task, task.reward) < -0.1


def test_the_best_reward_of_two_states_is_that_of_brute_force():
    mdp = corridor(3)
    task = exprd.task_of(mdp, GAMMA, (0, 1))
    reward, value = exprd.best_reward(task, [1, 2], 1.0)
    np.testing.assert_allclose(exprd.informativeness(task, reward), value, atol=1e-9)
    least = np.where(task.worse, task.gaps, np.inf).min(1)
    rng, best = np.random.default_rng(0), -np.inf
    for _ in range(20_000):
        other = np.zeros((3, 2))
        other[1:] = rng.uniform(-1, 1, (2, 2))
        if ((task.last @ other.ravel()).reshape(3, 2)[:, 0] >= least).all():
            best = max(best, exprd.informativeness(task, other))
    assert best <= value + 1e-9 and best > value - 0.1


def test_few_states_and_the_same_policy():
    mdp = corridor(7)
    found = exprd.design(mdp, 2, GAMMA, (1, 3), max_reward=1.0)
    paying = np.flatnonzero(np.abs(found.reward).sum(1) > 1e-9)
    assert set(paying) <= {6, *found.states.tolist()} and len(found.states) == 2
    assert (np.diff(found.informativeness) > 1e-6).all() and np.abs(found.reward).max() <= 1
    designed = exprd.task_of(mdp.replace(reward=jnp.asarray(found.reward)), GAMMA, (1,))
    assert (designed.policy == 1).all()
    # The first state is the best one, and no pair is beaten.
    task = exprd.task_of(mdp, GAMMA, (1, 3))
    single = {s: exprd.best_reward(task, [s, 6], 1.0)[1] for s in range(6)}
    assert found.informativeness[1] == pytest.approx(max(single.values()))
    assert single[found.states[0]] == pytest.approx(max(single.values()))
    pairs = [exprd.best_reward(task, [i, j, 6], 1.0)[1] for i in range(6) for j in range(i)]
    assert found.informativeness[2] <= max(pairs) + 1e-9


def test_what_is_refused():
    mdp = corridor(3)
    with pytest.raises(ValueError, match="at least one, of 0 or more steps"):
        exprd.design(mdp, 1, GAMMA, ())
    with pytest.raises(ValueError, match="must not be negative"):
        exprd.design(mdp, -1)
    with pytest.raises(ValueError, match="Every action is optimal"):
        exprd.design(mdp.replace(reward=jnp.zeros((3, 2))), 1)
    task = exprd.task_of(mdp, GAMMA, (1,))
    with pytest.raises(ValueError, match="keeps the policy optimal"):
        exprd.best_reward(task, [0], 1e-3)

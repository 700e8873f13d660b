"""Starts at states of a dataset (DR-PO, Chang et al. 2024), exactly: the gradient reaches what is deep in a lock."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.exact import solvers
from jaxrl.exact.mdp import DenseMDP

DEPTH, ACTIONS, RATE = 8, 4, 2.0


def lock():
    """In each place one action goes on; the others end the episode, and the last one right pays 1."""
    right = np.random.default_rng(0).integers(0, ACTIONS, DEPTH)
    transition, reward = np.zeros((DEPTH, ACTIONS, DEPTH)), np.zeros((DEPTH, ACTIONS))
    for place in range(DEPTH - 1):
        transition[place, right[place], place + 1] = 1
    reward[-1, right[-1]] = 1
    return DenseMDP(*map(jnp.asarray, (transition, reward, np.eye(DEPTH)[0])))


def test_a_policy_gradient_from_states_of_a_demonstration_opens_a_lock_in_a_thirtieth_of_the_steps():
    """From the start every gradient is at most 4^-8; with half of the starts along the right way each place has a value
    of its own, and the last ones are learned first. 157 and 6,117 steps to a value of 0.5."""
    mdp = lock()

    def value(logits, starts):
        return starts @ solvers.evaluate_policy(mdp, jax.nn.softmax(logits), 1.0)

    def steps(starts, count):
        def step(logits, _):
            return logits + RATE * jax.grad(value)(logits, starts), value(logits, mdp.initial)

        return jax.lax.scan(step, jnp.zeros((DEPTH, ACTIONS)), None, count)[1]

    demonstration = jnp.full(DEPTH, 1 / DEPTH)
    mixed = np.asarray(jax.jit(lambda: steps((mdp.initial + demonstration) / 2, 8_000))())
    plain = np.asarray(jax.jit(lambda: steps(mdp.initial, 8_000))())
    assert [np.argmax(x > 0.5) for x in (mixed, plain)] == pytest.approx([157, 6117], rel=0.01)
    assert plain[4_000] < 1e-4 and mixed[200] > 0.9
    np.testing.assert_allclose(plain[0], float(ACTIONS) ** -DEPTH, rtol=1e-4)


def test_its_gradient_has_the_closed_form():
    """d value / d logits at the uniform policy, of the right action in place s: 4^-8 (1 - 1/4) from the start, and the
    sum over the places before it of 4^-(8 - place) / 8 more, halved."""
    mdp = lock()
    right = np.asarray(mdp.transition.sum(-1) + mdp.reward).argmax(1)

    def value(logits, starts):
        return starts @ solvers.evaluate_policy(mdp, jax.nn.softmax(logits), 1.0)

    starts = (mdp.initial + jnp.full(DEPTH, 1 / DEPTH)) / 2
    slope = np.asarray(jax.grad(value)(jnp.zeros((DEPTH, ACTIONS)), starts))[np.arange(DEPTH), right]
    ways = float(ACTIONS) ** -(DEPTH - np.arange(DEPTH))  # the value of each place
    expected = 0.75 * (ways[0] + np.cumsum(ways) / DEPTH) / 2
    np.testing.assert_allclose(slope, expected, rtol=1e-4)

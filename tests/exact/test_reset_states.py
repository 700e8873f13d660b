"""Starts at states of a dataset (DR-PO, Chang et al. 2024), exactly: the gradient reaches what is deep in a lock."""

import jax
import jax.numpy as jnp
import numpy as np

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


def test_a_policy_gradient_from_states_of_a_demonstration_opens_a_lock_that_it_does_not_open_from_the_start():
    """The first gradient of the first place is 4^-8 of a half; with half of the starts along the right way each place
    has one of its own, and the last ones are learned first."""
    mdp = lock()

    def value(logits, starts):
        return starts @ solvers.evaluate_policy(mdp, jax.nn.softmax(logits), 1.0)

    def steps(starts, count):
        def step(logits, _):
            return logits + RATE * jax.grad(value)(logits, starts), value(logits, mdp.initial)

        return jax.lax.scan(step, jnp.zeros((DEPTH, ACTIONS)), None, count)[1]

    demonstration = jnp.full(DEPTH, 1 / DEPTH)
    mixed = jax.jit(lambda: steps((mdp.initial + demonstration) / 2, 4_000))()
    plain = jax.jit(lambda: steps(mdp.initial, 4_000))()
    assert plain[-1] < 1e-3
    assert mixed[-1] > 0.9
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

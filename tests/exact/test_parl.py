"""The bi-level gradient of tables against finite differences in float64, and the term that is left out in turns."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.exact import parl
from jaxrl.exact.mdp import DenseMDP

S, A, F, GAMMA, TAU = 4, 2, 3, 0.8, 0.3


def task():
    rng = np.random.default_rng(0)
    transition = 0.95 * rng.dirichlet(np.ones(S), (S, A))  # a twentieth of the steps end
    features, true = rng.normal(size=(S, A, F)), rng.normal(size=F)
    initial = rng.dirichlet(np.ones(S))
    mdp = DenseMDP(jnp.asarray(transition), jnp.asarray(features @ true), jnp.asarray(initial))
    reward = (features @ true).reshape(-1)
    label = 1 / (1 + np.exp(-(reward[None, :] - reward[:, None])))
    return mdp, jnp.asarray(features), jnp.asarray(label), jnp.asarray(true), jnp.asarray(rng.normal(size=F))


def differences(f, x, eps=1e-5):
    return np.array([(f(x + eps * e) - f(x - eps * e)) / (2 * eps) for e in np.eye(len(x))])


def test_the_implicit_gradient_is_that_of_finite_differences():
    with jax.enable_x64(True):
        mdp, features, label, _, weights = task()

        @jax.jit
        def loss(w):
            return parl.upper_loss(w, features, mdp, label, GAMMA, TAU)

        found = jax.jit(jax.grad(loss))(weights)
        np.testing.assert_allclose(found, differences(loss, weights), rtol=1e-6, atol=1e-9)
        in_turns = jax.jit(jax.grad(lambda w: parl.upper_loss(w, features, mdp, label, GAMMA, TAU, cross=False)))(
            weights
        )
        data = parl.visits(mdp, parl.soft_optimal(mdp, features @ weights, GAMMA, TAU)[0], GAMMA).reshape(-1)

        def of_data(w):
            flat = (features @ w).reshape(-1)
            margin = flat[None, :] - flat[:, None]
            each = label * jax.nn.softplus(-margin) + (1 - label) * jax.nn.softplus(margin)
            return data @ each @ data

        np.testing.assert_allclose(in_turns, differences(of_data, weights), rtol=1e-6, atol=1e-9)
        assert np.abs(found - in_turns).max() > 1e-3 * np.abs(found).max()  # a thousand times the tolerance
        value = jax.jit(lambda w: parl.true_return(w, features, mdp, GAMMA, TAU))
        np.testing.assert_allclose(jax.grad(value)(weights), differences(value, weights), rtol=1e-6, atol=1e-9)


def test_the_lower_level_is_optimal_and_the_loss_least_at_the_truth():
    with jax.enable_x64(True):
        mdp, features, label, true, _ = task()
        reward = features @ true
        policy, value = parl.soft_optimal(mdp, reward, GAMMA, TAU)
        q = reward + GAMMA * mdp.transition @ value
        np.testing.assert_allclose(value, TAU * np.log(np.exp(q / TAU).sum(-1)), rtol=1e-10)
        np.testing.assert_allclose(value, (policy * (q - TAU * np.log(policy))).sum(-1), rtol=1e-10)
        found = parl.visits(mdp, policy, GAMMA)
        np.testing.assert_allclose(found.sum(), 1.0)
        # Labels are by the true reward, so the term of the loss vanishes there; the cross term need not.
        in_turns = jax.grad(lambda w: parl.upper_loss(w, features, mdp, label, GAMMA, TAU, cross=False))(true)
        np.testing.assert_allclose(in_turns, 0, atol=1e-12)

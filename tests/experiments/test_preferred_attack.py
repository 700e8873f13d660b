"""RAT: its outer gradient by finite differences, its divergence by integration, and nothing at strength 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def rat(of_study):
    return of_study("preferred_attack", "rat")[0]


def near(key, tree, scale):
    """The tree with normal noise on each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [x + scale * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)


def case(rat, dtype, strength=0.3, states=5):
    """`(omega, theta, obs, given)`: random weights of all, in this precision."""
    keys = jax.random.split(KEY, 6)
    obs = jax.vmap(lambda key: rat.ENV.reset(key, rat.PARAMS)[0])(jax.random.split(keys[0], states))
    weights = rat.NETWORK.init(KEY, obs[0])
    victim, intention = (rat.ppo.Policy(near(key, weights, 0.15), None) for key in keys[1:3])
    critic = rat.CRITIC.init(keys[3], jnp.zeros(4))
    given = rat.Given(victim, intention, critic, jnp.float32(strength))
    theta = rat.network(given).init(keys[4], obs[0])
    omega = near(keys[5], rat.WEIGHTS.init(keys[5], obs[0]), 0.5)

    def cast(x):
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, (omega, theta, obs, given))


def along(one, other):
    return sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.slow
def test_the_outer_gradient_is_that_of_finite_differences_and_of_the_chain_rule(rat):
    with jax.enable_x64(True):
        omega, theta, obs, given = case(rat, jnp.float64)
        rate = 0.5
        loss = jax.jit(lambda omega: rat.meta_loss(omega, theta, obs, given, rate))
        slope = jax.jit(jax.grad(loss))(omega)
        assert all(x.dtype == jnp.float64 and np.abs(x).max() > 0 for x in jax.tree.leaves(slope))
        for key in jax.random.split(KEY, 4):
            way = near(key, jax.tree.map(jnp.zeros_like, omega), 1.0)
            one, other = (loss(jax.tree.map(lambda x, d, h=h: x + h * d, omega, way)) for h in (1e-5, -1e-5))
            np.testing.assert_allclose(along(slope, way), (one - other) / 2e-5, rtol=1e-5, atol=1e-10)

        # -rate mean over states of grad w <grad J after the step, grad KL before it>
        inner = jax.jit(jax.grad(rat.inner_loss))(theta, omega, obs, given)
        after = jax.tree.map(lambda x, g: x - rate * g, theta, inner)
        outer = jax.jit(jax.grad(rat.outer_loss))(after, obs, given)
        slopes = jax.jit(jax.jacrev(lambda theta: rat.divergence(theta, obs, given)))(theta)
        gain = jnp.stack([along(outer, jax.tree.map(lambda x, i=i: x[i], slopes)) for i in range(5)])
        by_hand = jax.grad(lambda omega: -rate * jnp.mean(rat.weight(omega, obs) * gain))(omega)
        for x, y in zip(jax.tree.leaves(slope), jax.tree.leaves(by_hand), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-12)

        # The authors' code: products of means over the batch, so all weights go up or all down.
        coarse = jax.grad(lambda omega: -rate * jnp.mean(gain) * jnp.mean(rat.weight(omega, obs)))(omega)
        cosine = along(slope, coarse) / jnp.sqrt(along(slope, slope) * along(coarse, coarse))
        assert gain.min() < 0 < gain.max() and abs(cosine) < 0.9
        still = jax.jit(jax.grad(rat.meta_loss))(omega, theta, obs, given, 0.0)
        assert all((x == 0).all() for x in jax.tree.leaves(still))


def test_the_divergence_is_that_of_two_normal_distributions(rat):
    _, theta, obs, given = case(rat, jnp.float32)
    found = jax.jit(rat.divergence)(theta, obs, given)
    mean, log_std = rat.gaussian(given.victim, rat.shown(theta, obs, given))
    target, target_log_std = rat.gaussian(given.intention, obs)
    x = np.linspace(-30, 30, 200_001)
    for i in range(len(obs)):
        p, q = (
            -0.5 * ((x - float(rat.softly(m[i, 0]))) / np.exp(float(s[0]))) ** 2 - float(s[0])
            for m, s in ((mean, log_std), (target, target_log_std))
        )
        by_grid = np.trapezoid(np.exp(p) * (p - q), x) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(found[i], by_grid, rtol=1e-4)
    np.testing.assert_allclose(rat.softly(jnp.array([-3.0, 0.4, 2.0])), [-1.2, 0.4, 1.1], rtol=1e-6)


def test_at_strength_zero_nobody_is_attacked_and_else_the_ball_holds(rat):
    _, theta, obs, given = case(rat, jnp.float32, states=50)
    director = given.intention  # whose network is of the same kind: an observation to one number
    keys = jax.random.split(KEY, 50)

    def sees(strength):
        return {
            "chance": rat.by_chance(strength),
            "director": rat.by_director(given.victim, director, strength),
            "RAT": lambda _, obs: rat.shown(theta, obs, given.replace(strength=strength)),
        }

    for name, see in sees(0.0).items():
        np.testing.assert_array_equal(jax.jit(jax.vmap(see))(keys, obs), obs, err_msg=name)
    for see in sees(0.1).values():
        apart = np.abs(jax.jit(jax.vmap(see))(keys, obs) - obs)
        assert (apart <= 0.1 * rat.UNIT + 1e-5).all() and apart.max() > 0.02
    box = rat.SPACES[0]
    assert jax.vmap(box.contains)(rat.shown(theta, obs, given.replace(strength=5.0))).all()


def test_what_is_recorded_and_preferred(rat):
    _, _, _, given = case(rat, jnp.float32)
    data = rat.recorded(KEY, given.victim, given.intention)
    assert data.size == rat.STREAMS * rat.LENGTH and data.last.sum() == rat.STREAMS
    np.testing.assert_array_equal(data.next_obs[0], data.obs[1])
    pairs = rat.annotated(0, data, 40)
    for (one, other), label in zip(pairs.first, pairs.label, strict=True):
        turned = [float(data.obs[first : first + rat.SEGMENT, 2].sum()) for first in (one, other)]
        assert label == (turned[1] > turned[0])


@pytest.mark.slow
def test_an_adversary_follows_the_intention_and_weights_move_only_if_they_may(rat, monkeypatch):
    for name, number in {"ENVS": 2, "STEPS": 50, "ITERATIONS": 10, "KEPT": 2, "BATCH": 64, "RATE": 1e-2}.items():
        monkeypatch.setattr(rat, name, number)
    omega, theta, obs, given = case(rat, jnp.float32, states=64)
    begun = float(jnp.mean(rat.divergence(theta, obs, given)))
    found = jax.jit(jax.vmap(lambda rate: rat.adversary(KEY, given, obs, rate)))(jnp.array([0.0, 0.05]))
    for i, same in enumerate((True, False)):
        theta, omega = jax.tree.map(lambda x, i=i: x[i], found)
        assert float(jnp.mean(rat.divergence(theta, obs, given))) < 0.95 * begun
        weights = rat.weight(omega, obs)
        assert ((weights == 1).all() if same else (np.abs(weights - 1) > 1e-3).any()) and weights.max() <= 2

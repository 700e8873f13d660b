"""STAC: its meta-gradient against finite differences, and A2C where nothing is tuned."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos import a2c
from jaxrl.algos.meta import stac
from jaxrl.nn.optim import optimizer_of
from jaxrl.testing.probes import DelayedReward

KEY = jax.random.key(0)
SMALL = dict(num_envs=4, num_steps=6, hidden=(8,))


@pytest.mark.slow
@pytest.mark.light
def test_eta_descends_the_derivative_of_the_judged_update():
    """Two rollouts of an agent with some experience: where the second leads eta, and differences of what judges."""
    with jax.enable_x64(True):
        algo = stac.make(DelayedReward(), stac.Config(**SMALL))
        learner = dataclasses.replace(algo.learn.__self__, eta_optimizer=optimizer_of("sgd"))
        hyper = stac.Hyper(learning_rate=0.05, gamma=0.7, gae_lambda=0.6, max_grad_norm=0.05, kl_coef=10.0)
        hyper = hyper.replace(ent_coef=0.05)
        hyper = jax.tree.map(jnp.float64, hyper).replace(anneal_steps=jnp.int64(0))

        @jax.jit
        def both(key):
            state, _ = jax.lax.scan(lambda s, _: algo.update(s), algo.init(key, hyper), length=3)
            state, first = algo.collect(state)
            after, _ = algo.learn(state, first)
            _, second = algo.collect(after)
            started = learner.eta_optimizer.init(after.eta, hyper.meta_learning_rate)
            led, metrics = learner.learn(after.replace(eta_optimizer=started), second)
            flat, unravel = ravel_pytree(after.eta)
            _, of_weights = ravel_pytree(after.weights)

            def judged(eta):
                moved, _ = learner.after(unravel(eta), state, first, after.hyper.learning_rate)
                return learner.outer_loss(of_weights(moved), state.weights, second, after.hyper)

            values = jax.vmap(judged)(flat + 1e-4 * jnp.concatenate([jnp.eye(5), -jnp.eye(5)]))
            found = (ravel_pytree(led.eta)[0] - flat) / hyper.meta_learning_rate
            return found, metrics["meta_grad_norm"], (values[:5] - values[5:]) / 2e-4

        found, norm, expected = map(np.asarray, both(KEY))
    assert np.abs(expected).min() > 1e-8
    np.testing.assert_allclose(found, -expected, rtol=1e-4)
    np.testing.assert_allclose(norm, np.linalg.norm(expected), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.light
def test_eta_begins_at_the_settings_and_untuned_it_is_a2c():
    config = stac.Config(**SMALL)
    hyper = stac.Hyper(gamma=0.8, gae_lambda=0.9, meta_learning_rate=0.0, headroom=1.5)
    as_a2c = a2c.Hyper(gamma=0.8, gae_lambda=0.9)

    @jax.jit
    def both(key):
        tuning, plain = stac.make(DelayedReward(), config), a2c.make(DelayedReward(), a2c.Config(**SMALL))
        one, metrics = jaxrl.train(tuning, key, 10 * 24, hyper)
        two, _ = jaxrl.train(plain, key, 10 * 24, as_a2c)
        return one.weights, two.weights, {n: metrics[n][-1] for n in stac.SHARES + stac.COEFFICIENTS}

    one, two, last = both(KEY)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    expected = {"gamma": 0.8, "gae_lambda": 0.9, "pg_coef": 1.0, "ent_coef": 0.01, "vf_coef": 0.5}
    for name, x in expected.items():
        np.testing.assert_allclose(last[name], x, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_a_short_sighted_agent_learns_to_look_ahead():
    """The reward comes after the step that earns it: with gamma near 0 there is nothing to learn from."""
    tuned = ("gamma", "gae_lambda", "pg_coef", "vf_coef")
    algo = stac.make(DelayedReward(), stac.Config(num_envs=16, num_steps=8, hidden=(16,), tuned=tuned))
    hyper = stac.Hyper(gamma=0.1, gae_lambda=0.5, ent_coef=0.0, outer_ent_coef=0.0, meta_learning_rate=0.02)
    _, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 600 * algo.steps_per_update, hyper))(KEY)
    assert metrics["gamma"][-1] > 0.2


def test_what_is_refused():
    with pytest.raises(ValueError, match="tuned='learning_rate'"):
        stac.Config(tuned=("learning_rate",))
    with pytest.raises(ValueError, match="nothing to tune"):
        stac.Config(tuned=())
    algo = stac.make(DelayedReward(), stac.Config(**SMALL))
    for name, value in {"headroom": 1.0, "outer_gamma": 1.5, "ent_coef": 0.0}.items():
        with pytest.raises(ValueError, match=f"hyper.{name}={value}"):
            algo.init(KEY, stac.Hyper(**{name: value}))

"""OPPO: the triplet loss and the matching loss by hand, what moves which network, and whose policy is deployed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import oppo
from jaxrl.data import preferences
from tests.algos.preferences.test_cpl import pendulum_pairs

KEY = jax.random.key(0)
SMALL = dict(batch_size=8, hidden=(8,), width=8, layers=1, context_size=3)


def test_the_triplet_loss_by_hand():
    distance, label = jnp.array([[1.0, 0.25], [0.5, 2.0], [3.0, 0.5]]), jnp.array([1.0, 0.75, 1.0])
    by_hand = [max(0.25 - 1.0 + 1, 0), 0.75 * (2.0 - 0.5 + 1) + 0.25 * max(1 - 1.5, 0), max(0.5 - 3 + 1, 0)]
    np.testing.assert_allclose(oppo.triplet_loss(distance, label, 1.0), np.mean(by_hand), rtol=1e-6)
    context = jnp.array([[[2.0, 0.0], [0.0, 3.0]]])
    np.testing.assert_allclose(oppo.distances(jnp.array([0.5, 0.0]), context), [[0.0, 2.0]], atol=1e-6)


def made(kind="Pendulum-v1", **changes):
    env, params = jaxrl.make(kind)
    replay = preferences.stored(pendulum_pairs(), env.action_space(params))
    return oppo.make(env, oppo.Config(**{**SMALL, **changes}), replay=replay), params


def test_the_matching_loss_by_hand_and_what_it_moves():
    """Each step is told the context of its segment; the policy and the encoder, not z*, learn from it."""
    algo, params = made()
    state = algo.init(KEY, oppo.Hyper(triplet_coef=0.0), params)
    rule, weights = algo.init.__self__.rule, state.weights
    batch = algo.init.__self__.replay.sample(KEY, (), 4)
    context = rule.context(weights["encoder"], batch)
    np.testing.assert_allclose(jnp.sum(context**2, -1), 1, rtol=1e-5)
    total = []
    for b, s, t in np.ndindex(batch.pair_action.shape[:3]):
        mu = rule.acting.module.actor.apply(weights["actor"], batch.pair_obs[b, s, t], context[b, s])
        total.append(float(jnp.sum((mu - batch.pair_action[b, s, t]) ** 2)))
    np.testing.assert_allclose(rule.cloning_loss(weights["actor"], context, batch), np.mean(total), rtol=1e-5)
    after = jax.jit(lambda state: algo.update(algo.update(state)[0])[0])(state).weights
    for name in ("actor", "encoder", "optimum"):
        moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), weights[name], after[name])
        assert all(jax.tree.leaves(moved)), (name, moved)


def test_what_is_deployed_is_told_the_optimum():
    algo, params = made()
    state = algo.init(KEY, None, params)
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    action, _ = algo.act(algo.policy(state), KEY, obs, greedy=True)
    actor = algo.init.__self__.rule.acting.module.actor
    expected = actor.apply(state.weights["actor"], obs, oppo.unit(state.weights["optimum"]))
    np.testing.assert_allclose(action, 2 * expected, rtol=1e-5)
    with pytest.raises(ValueError, match="oppo learns from preferences alone: .*`jaxrl dataset preferences`"):
        oppo.make(jaxrl.make("Pendulum-v1")[0])
    with pytest.raises(ValueError, match="context_size=0"):
        oppo.Config(context_size=0)


@pytest.mark.slow
@pytest.mark.light
def test_learns_what_is_preferred():
    """Segments whose actions are near to 1 are preferred, and so are the policy's actions; cloning would give 0."""
    env, params = jaxrl.make("Pendulum-v1")
    replay = preferences.stored(pendulum_pairs(400, 4), env.action_space(params))
    config = oppo.Config(num_updates=100, batch_size=32, hidden=(32,), width=16, layers=1, context_size=4)
    algo = oppo.make(env, config, replay=replay)
    train = jax.jit(lambda key: jaxrl.train(algo, key, 1500, oppo.Hyper(learning_rate=3e-3), params))
    state, metrics = train(KEY)
    seen = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    action, _ = algo.act(algo.policy(state), KEY, jnp.asarray(seen), greedy=True)
    assert np.mean(np.abs(action - 1.0)) < 0.75
    assert np.max(metrics["accuracy"]) > 0.85

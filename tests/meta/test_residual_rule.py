"""The rule that begins as A2C or PPO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos.meta import policy_gradients, residual
from jaxrl.meta import AgentConfig, AgentHyper, Lifetime, agent
from jaxrl.meta.agent import agent_parts

SMALL = AgentConfig(num_envs=4, num_steps=5, num_epochs=2, num_minibatches=2)
CLIPS = (None, 0.2)


def moved(weights, size=0.3):
    flat, unravel = ravel_pytree(weights)
    return unravel(flat + size * jax.random.normal(jax.random.key(7), flat.shape))


@pytest.mark.parametrize("clip_eps", CLIPS)
def test_it_begins_as_the_known_rule(clip_eps):
    env = jaxrl.make("Catch-bsuite")[0]
    known = policy_gradients.rule(policy_gradients.RuleConfig(clip_eps))
    found = []
    for rule in (known, residual.rule(residual.RuleConfig(4, clip_eps))):
        algo = agent(rule, env, SMALL)
        hyper = AgentHyper(learning_rate=1.0, critic_learning_rate=0.1, lifetime=6)
        found.append(
            jax.jit(lambda key, algo=algo, hyper=hyper: jaxrl.train(algo, key, 60, hyper)[0].weights)(jax.random.key(0))
        )
    start = jax.jit(algo.init)(jax.random.key(0), hyper).weights
    assert (
        max(float(jnp.abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (found[0], start)), strict=True)) > 1e-3
    )
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip_eps", CLIPS)
def test_all_of_its_weights_count_and_the_position_in_a_life_too(clip_eps):
    rule = residual.rule(residual.RuleConfig(4, clip_eps))
    parts = agent_parts(rule, jaxrl.make("Catch-bsuite")[0], SMALL)
    state = parts.init(jax.random.key(0), AgentHyper(lifetime=10))
    _, rollout = jax.jit(parts.collect)(state)
    seen = parts.seen(state.weights, rollout)

    def loss(weights, update, of=10):
        targets, _ = rule.targets(weights, seen, Lifetime(jnp.int32(update), jnp.int32(of)))
        rows = jax.tree.map(lambda x: x.reshape(20, *x.shape[2:]), (seen._replace(successor=()), targets))
        # A policy that has moved: at the ratio 1 the objectives of A2C and PPO have no curvature to tell them apart.
        outputs = {**rows[0].outputs, "logits": 1.3 * rows[0].outputs["logits"], "value": rows[0].outputs["value"] + 1}
        each, _ = rule.loss(weights, outputs, *rows)
        return jnp.mean(each * jnp.arange(20.0))

    weights = moved(rule.init(jax.random.key(0)))
    value, grads = jax.jit(jax.value_and_grad(loss))(weights, 3)
    for path, g in jax.tree_util.tree_leaves_with_path(grads):
        assert np.all(np.isfinite(g)) and np.any(g != 0), jax.tree_util.keystr(path)
    assert value != loss(weights, 8) and value != loss(weights, 3, 100)
    known = rule.init(jax.random.key(0))
    assert loss(known, 3) == loss(known, 8)


def test_a_schedule_moves_the_settings_by_hand():
    """With weights of the last layers alone: lambda = 0 leaves errors of one step, and the factor is as it is told."""
    rule = residual.rule(residual.RuleConfig(1))
    weights = rule.init(jax.random.key(0))
    hidden, last = weights.schedule
    bias = jnp.array([100.0, -200.0, 0.0, 0.0, jnp.log(2.0)])  # gamma = 1, lambda = 0, advantages twice as large
    weights = weights.replace(schedule=(hidden, {"params": {**last["params"], "bias": bias}}))
    parts = agent_parts(rule, jaxrl.make("Catch-bsuite")[0], SMALL)
    state = parts.init(jax.random.key(0), AgentHyper(lifetime=10))
    _, rollout = jax.jit(parts.collect)(state)
    seen = parts.seen(state.weights, rollout)
    targets, _ = rule.targets(weights, seen, Lifetime(jnp.int32(3), jnp.int32(10)))
    value, following = seen.outputs["value"][..., 0], seen.successor("value")[..., 0]
    error = seen.reward + jnp.where(seen.terminated, 0, following) - value
    np.testing.assert_allclose(targets["target"], value + error, rtol=1e-4, atol=1e-5)
    expected = 2 * (error - error.mean()) / error.std()
    np.testing.assert_allclose(targets["advantage"], expected, rtol=1e-3, atol=1e-4)


def test_it_refuses_a_network_without_units():
    with pytest.raises(ValueError, match="features=0"):
        residual.RuleConfig(0)

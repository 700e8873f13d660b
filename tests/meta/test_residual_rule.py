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


def one_rollout(rule):
    parts = agent_parts(rule, jaxrl.make("Catch-bsuite")[0], SMALL)
    state = jax.jit(parts.init)(jax.random.key(0), AgentHyper(lifetime=10))
    _, rollout = jax.jit(parts.collect)(state)
    return parts, state, rollout


@pytest.mark.parametrize("clip_eps", CLIPS)
def test_all_of_its_weights_count_and_the_position_in_a_life_too(clip_eps):
    rule = residual.rule(residual.RuleConfig(4, clip_eps))
    parts, state, rollout = one_rollout(rule)
    seen = parts.seen(state.weights, rollout)

    def loss(weights, update, of=10):
        targets, _ = rule.targets(weights, seen, Lifetime(jnp.int32(update), jnp.int32(of)))
        rows = jax.tree.map(lambda x: x.reshape(20, *x.shape[2:]), (seen._replace(successor=()), targets))
        # A policy that has moved: at the ratio 1 the objectives of A2C and PPO have no curvature to tell them apart.
        outputs = {**rows[0].outputs, "logits": 1.3 * rows[0].outputs["logits"], "value": rows[0].outputs["value"] + 1}
        each, _ = rule.loss(weights, outputs, *rows)
        return jnp.mean(each * jnp.arange(20.0))

    def rates(weights, update, of=10):
        return jnp.stack(rule.rates(weights, Lifetime(jnp.int32(update), jnp.int32(of))))

    weights, known = moved(rule.init(jax.random.key(0))), rule.init(jax.random.key(0))
    value, by_loss = jax.jit(jax.value_and_grad(loss))(weights, 3)
    by_rates = jax.jit(jax.jacobian(rates))(weights, 3)
    for path, g in jax.tree_util.tree_leaves_with_path(by_loss):
        assert np.all(np.isfinite(g)) and np.any(g != 0), jax.tree_util.keystr(path)
    # Of the schedule's three outputs the first two are of the rates, the third of the entropy.
    assert list(np.asarray(by_loss.schedule[1]["params"]["bias"]) != 0) == [False, False, True]
    assert (np.asarray(by_rates.schedule[1]["params"]["bias"]) != 0).tolist() == [
        [True, False, False],
        [False, True, False],
    ]
    for leaf in jax.tree.leaves(by_rates.schedule):
        assert np.all(np.isfinite(leaf)) and np.all(np.any(leaf != 0, tuple(range(1, leaf.ndim))))
    for fn in (loss, rates):
        assert np.all(fn(weights, 3) != fn(weights, 8)) and np.all(fn(weights, 3) != fn(weights, 3, 100))
        assert np.all(fn(known, 3) == fn(known, 8))


def told(weights, network, bias):
    """The rule's weights with another bias of the last layer of a network."""
    hidden, last = getattr(weights, network)
    return weights.replace(**{network: (hidden, {"params": {**last["params"], "bias": jnp.asarray(bias)}})})


def test_its_parts_by_hand():
    """With a bias of the last layers alone: rates, entropy and weights of steps do not depend on anything else."""
    rule, known = residual.rule(residual.RuleConfig(1)), policy_gradients.a2c_rule()
    parts, state, rollout = one_rollout(rule)
    seen, lifetime = parts.seen(state.weights, rollout), Lifetime(jnp.int32(3), jnp.int32(10))
    weights = told(rule.init(jax.random.key(0)), "schedule", [np.log(2.0), np.log(3.0), np.log(5.0)])
    np.testing.assert_allclose(rule.rates(weights, lifetime), (2.0, 3.0), rtol=1e-6)
    plain, _ = known.targets(known.init(jax.random.key(0)), seen, lifetime)
    targets, _ = rule.targets(told(weights, "residual", [np.log(7.0)]), seen, lifetime)
    np.testing.assert_allclose(targets["target"], plain["target"], rtol=1e-6)
    np.testing.assert_allclose(targets["advantage"], 7 * plain["advantage"], rtol=1e-5)
    np.testing.assert_allclose(targets["ent_coef"], np.log(0.05), rtol=1e-5)
    other, _ = rule.targets(moved(weights, 3.0), seen, lifetime)
    np.testing.assert_array_equal(np.sign(other["advantage"]), np.sign(plain["advantage"]))


def test_factors_of_rates_are_of_the_agents_steps():
    """Twice the actor's and three times the critic's rate is what a rule without factors does at these rates."""
    rule = residual.rule(residual.RuleConfig(1))
    parts, state, rollout = one_rollout(rule)
    fresh = rule.init(jax.random.key(0))

    @jax.jit
    def learned(weights, actor, critic):
        hyper = state.hyper.replace(rule=weights, learning_rate=actor, critic_learning_rate=critic)
        return parts.learn(state.replace(hyper=hyper), rollout)[0].weights

    got = learned(told(fresh, "schedule", [np.log(2.0), np.log(3.0), 0.0]), 1.0, 0.1)
    for x, y, start in zip(*map(jax.tree.leaves, (got, learned(fresh, 2.0, 0.3), state.weights)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        assert float(jnp.abs(x - start).max()) > 1e-4


def test_it_refuses_a_network_without_units():
    with pytest.raises(ValueError, match="features=0"):
        residual.RuleConfig(0)

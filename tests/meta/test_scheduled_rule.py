"""The rule that begins as A2C or PPO and schedules their settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos.meta import policy_gradients, scheduled
from jaxrl.meta import AgentConfig, AgentHyper, Lifetime, agent
from jaxrl.meta.agent import agent_parts
from jaxrl.nn.distributions import Categorical
from jaxrl.testing.probes import Masked

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
    for rule in (known, scheduled.rule(scheduled.RuleConfig(4, clip_eps))):
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


def test_a_rule_sees_the_policy_that_the_mask_leaves():
    """Rules compute probabilities of the logits; forbidden actions have none, and the entropy is of those allowed."""
    rule = scheduled.rule(scheduled.RuleConfig(4, 0.2))
    parts = agent_parts(rule, Masked(), SMALL)
    state = jax.jit(parts.init)(jax.random.key(0), AgentHyper(lifetime=10))
    _, rollout = jax.jit(parts.collect)(state)
    seen, mask = parts.seen(state.weights, rollout), rollout.obs["action_mask"]
    pi = Categorical(seen.outputs["logits"])
    assert float(jnp.where(mask, 0, jax.nn.softmax(pi.logits)).max()) == 0
    np.testing.assert_allclose(pi.log_prob(seen.action), seen.log_prob, atol=1e-6)
    # Two of four actions are allowed, and at the start they are as good as equal: half of what four would have.
    np.testing.assert_allclose(pi.entropy(), np.log(2), atol=1e-3)

    life, weights = Lifetime(jnp.int32(0), jnp.int32(10)), moved(state.hyper.rule)

    def actor_rate(seen):
        return rule.rates(weights, seen, rule.targets(weights, seen, life)[0], life)[0]

    # Uniform over two of two is as much, relative to what there can be, as over four of four.
    unmasked = seen._replace(outputs={**seen.outputs, "logits": jnp.zeros_like(seen.outputs["logits"])})
    np.testing.assert_allclose(actor_rate(seen), actor_rate(unmasked), rtol=1e-3)


@pytest.mark.parametrize("clip_eps", CLIPS)
def test_all_of_its_weights_count_and_all_that_it_is_told(clip_eps):
    rule = scheduled.rule(scheduled.RuleConfig(4, clip_eps))
    parts, state, rollout = one_rollout(rule)
    seen = parts.seen(state.weights, rollout)
    peaked = seen._replace(outputs={**seen.outputs, "logits": 3 * seen.outputs["logits"]})
    surprised = seen._replace(reward=10 * seen.reward + 1)

    def moves(weights, seen, update, of=10):
        """Logarithms of the factors of actor, critic, entropy and, of PPO, clip."""
        lifetime = Lifetime(jnp.int32(update), jnp.int32(of))
        targets, _ = rule.targets(weights, seen, lifetime)
        found = [*map(jnp.log, rule.rates(weights, seen, targets, lifetime)), targets["ent_coef"][0, 0] - np.log(0.01)]
        return jnp.stack(found if clip_eps is None else [*found, jnp.log(targets["clip_eps"][0, 0] / clip_eps)])

    weights, known = moved(rule.init(jax.random.key(0))), rule.init(jax.random.key(0))
    jacobian = jax.jit(jax.jacobian(lambda weights: moves(weights, seen, 3)))(weights)
    outputs = 3 if clip_eps is None else 4
    for path, g in jax.tree_util.tree_leaves_with_path(jacobian):
        counted = np.moveaxis(np.asarray(g), 0, -1).reshape(-1, outputs) != 0
        assert np.all(np.isfinite(g)) and np.all(counted.any(-1)), jax.tree_util.keystr(path)
    bias = np.asarray(jacobian[1]["params"]["bias"])
    np.testing.assert_allclose(bias, np.eye(outputs), atol=1e-6)  # one output each
    here = moves(weights, seen, 3)
    for other in (
        moves(weights, seen, 8),
        moves(weights, seen, 3, 100),
        moves(weights, peaked, 3),
        moves(weights, surprised, 3),
    ):
        assert np.all(other != here)
    np.testing.assert_allclose(moves(known, surprised, 8), 0, atol=1e-6)


def with_bias(weights, bias):
    """The rule's weights with another bias of the last layer."""
    hidden, last = weights
    return hidden, {"params": {**last["params"], "bias": jnp.asarray(bias)}}


def test_its_parts_by_hand():
    """With a bias of the last layer alone nothing depends on what the rule is told: PPO's loss with other numbers."""
    rule, known = scheduled.rule(scheduled.RuleConfig(1, 0.2)), policy_gradients.ppo_rule()
    parts, state, rollout = one_rollout(rule)
    seen, lifetime = parts.seen(state.weights, rollout), Lifetime(jnp.int32(3), jnp.int32(10))
    weights = with_bias(rule.init(jax.random.key(0)), np.log([2.0, 3.0, 5.0, 0.5]))
    targets, _ = rule.targets(weights, seen, lifetime)
    np.testing.assert_allclose(rule.rates(weights, seen, targets, lifetime), (2.0, 3.0), rtol=1e-6)
    plain, _ = known.targets(known.init(jax.random.key(0)), seen, lifetime)
    np.testing.assert_array_equal(targets["advantage"], plain["advantage"])
    rows = jax.tree.map(lambda x: x.reshape(20, *x.shape[2:]), (seen._replace(successor=()), targets))
    outputs = {**rows[0].outputs, "logits": 3 * rows[0].outputs["logits"]}
    each, _ = rule.loss(weights, outputs, *rows)
    pi = Categorical(outputs["logits"])
    ratio, a = np.exp(pi.log_prob(rows[0].action) - rows[0].log_prob), np.asarray(rows[1]["advantage"])
    assert np.any((ratio > 1.1) & (a > 0)) and np.any((ratio < 0.9) & (a < 0))  # a clip of 0.1 is felt
    policy = -np.minimum(ratio * a, np.clip(ratio, 0.9, 1.1) * a)
    value = 0.25 * np.square(outputs["value"][:, 0] - rows[1]["target"])
    np.testing.assert_allclose(each, policy + value - 0.05 * pi.entropy(), rtol=1e-4, atol=1e-6)


def test_what_it_is_told_is_bounded():
    """Past the end of its life it is told that this is the end, and values of any size explain -1 at the least."""
    rule = scheduled.rule(scheduled.RuleConfig(4))
    parts, state, rollout = one_rollout(rule)
    seen, weights = parts.seen(state.weights, rollout), moved(rule.init(jax.random.key(0)))
    given = rule.targets(weights, seen, Lifetime(jnp.int32(10), jnp.int32(10)))[0]

    def rates(update=10, value=seen.outputs["value"], target=given["target"], logits=seen.outputs["logits"]):
        what = seen._replace(outputs={"logits": logits, "value": value})
        return rule.rates(weights, what, {**given, "target": target}, Lifetime(jnp.int32(update), jnp.int32(10)))

    np.testing.assert_array_equal(rates(10), rates(20))
    value = seen.outputs["value"]
    wild, wilder, tame = (rates(value=size * given["target"][..., None]) for size in (10, 100, 1.5))
    np.testing.assert_array_equal(wild, wilder)
    assert np.all(np.asarray(tame) != np.asarray(wild))
    # Nothing varies: nothing is explained, whatever the values are. One action has no entropy.
    constant = jnp.ones_like(given["target"])
    np.testing.assert_array_equal(rates(target=constant), rates(target=constant, value=jnp.ones_like(value)))
    assert np.all(np.isfinite(rates(logits=seen.outputs["logits"][..., :1])))


def test_factors_of_rates_are_of_the_agents_steps():
    """Twice the actor's and three times the critic's rate is what a rule without factors does at these rates."""
    rule = scheduled.rule(scheduled.RuleConfig(1))
    parts, state, rollout = one_rollout(rule)
    fresh = rule.init(jax.random.key(0))

    @jax.jit
    def learned(weights, actor, critic):
        hyper = state.hyper.replace(rule=weights, learning_rate=actor, critic_learning_rate=critic)
        return parts.learn(state.replace(hyper=hyper), rollout)[0].weights

    got = learned(with_bias(fresh, [np.log(2.0), np.log(3.0), 0.0]), 1.0, 0.1)
    for x, y, start in zip(*map(jax.tree.leaves, (got, learned(fresh, 2.0, 0.3), state.weights)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        assert float(jnp.abs(x - start).max()) > 1e-4


def test_it_refuses_a_network_without_units():
    with pytest.raises(ValueError, match="features=0"):
        scheduled.RuleConfig(0)
    with pytest.raises(ValueError, match="clip_eps=0.0"):
        scheduled.RuleConfig(clip_eps=0.0)

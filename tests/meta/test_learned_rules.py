"""Update rules: what an agent does with one, and that rules are learned, by gradients and by strategies."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos import a2c
from jaxrl.algos.curricula import dr
from jaxrl.algos.meta import lpg, lpo, policy_gradients
from jaxrl.envs.grid.grid_world.grid_world import distribution, generate, optimal_value
from jaxrl.meta import AgentConfig, AgentHyper, Lifetime, Seen, agent
from jaxrl.meta.agent import agent_parts
from jaxrl.meta.lifetimes import MetaConfig, MetaHyper, RuleLearner, learner, recomputed
from jaxrl.meta.lives import lifetime_on, where_over
from jaxrl.meta.strategies import StrategyConfig, StrategyHyper, pair_gradient, strategy
from jaxrl.nn.distributions import Categorical

SMALL = AgentConfig(num_envs=3, num_steps=4)
NETWORK = lpg.RuleConfig(predictions=3, features=4, embedding=(2,))
KEYS = jax.random.split(jax.random.key(0), 24)


@functools.cache
def debug():
    """GROOVE's smallest levels, as indices."""
    env = jaxrl.make("GridWorld-debug-v0")[0]
    return dataclasses.replace(env, observation="index"), distribution("debug")


def seen_by_hand(done):
    """Two environments, three steps."""
    shape = (3, 2)
    rng = np.random.default_rng(0)
    outputs = {"logits": rng.normal(size=(*shape, 5)), "y": rng.normal(size=(*shape, 3))}
    following = {name: rng.normal(size=x.shape) for name, x in outputs.items()}
    action = rng.integers(0, 5, shape)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(outputs["logits"]), action[..., None], -1)[..., 0]
    reward, no = rng.normal(size=shape), jnp.zeros(shape, bool)
    as_arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (log_prob, reward, outputs, following))
    log_prob, reward, outputs, following = as_arrays
    return Seen(jnp.asarray(action), log_prob, reward, jnp.asarray(done), no, outputs, following, lambda name: None)


@pytest.mark.slow
@pytest.mark.light
def test_the_rule_reads_backwards_and_not_beyond_an_end():
    rule = lpg.rule(lpg.RuleConfig(predictions=3, features=16, embedding=(16,)))
    weights = rule.init(jax.random.key(0))
    done = np.zeros((3, 2), bool)
    done[1, 0] = True
    seen = seen_by_hand(done)
    life = Lifetime(jnp.int32(0), jnp.int32(10))

    def pi_hat(reward):
        return rule.targets(weights, seen._replace(reward=reward), life)[0]["pi_hat"]

    reads = np.abs(jax.jacobian(pi_hat)(seen.reward)) > 0  # (T, N, T, N): target of whom, reward of whom
    assert not reads[:, 0, :, 1].any() and not reads[:, 1, :, 0].any()
    later = np.triu(np.ones((3, 3), bool))
    np.testing.assert_array_equal(reads[:, 1, :, 1], later)
    np.testing.assert_array_equal(reads[:, 0, :, 0], later & ~np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]], bool))

    # Of the next observation's prediction nothing is read where the episode ended.
    def of_next(y):
        return rule.targets(weights, seen._replace(following={**seen.following, "y": y}), life)[0]["pi_hat"]

    reads = np.abs(jax.jacobian(of_next)(seen.following["y"])).sum((0, 1, 4)) > 0
    np.testing.assert_array_equal(reads, ~done)


def test_a_loss_by_hand():
    rule = lpg.rule(NETWORK)
    seen = seen_by_hand(np.zeros((3, 2), bool))
    rows = jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), seen._replace(successor=()))
    targets = {"pi_hat": jnp.arange(6.0) - 2, "y_hat": jnp.full((6, 3), 1 / 3)}
    each, report = rule.loss(None, rows.outputs, rows, targets)
    y = np.asarray(jax.nn.softmax(rows.outputs["y"]), np.float64)
    divergence = np.sum(y * (np.log(y) - np.log(1 / 3)), -1)
    expected = np.asarray(rows.log_prob) * np.asarray(targets["pi_hat"]) + 0.5 * divergence
    np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-6)
    assert report["entropy"].shape == ()


@pytest.mark.slow
@pytest.mark.light
def test_only_the_temporal_rule_is_told_the_time():
    seen = seen_by_hand(np.zeros((3, 2), bool))
    for temporal in (False, True):
        rule = lpg.rule(dataclasses.replace(NETWORK, temporal=temporal))
        weights = rule.init(jax.random.key(0))
        early, late, longer = (
            rule.targets(weights, seen, Lifetime(jnp.int32(n), jnp.int32(of)))[0]["pi_hat"]
            for n, of in ((1, 10), (9, 10), (10, 100))
        )
        assert bool(jnp.any(early != late)) == temporal
        assert bool(jnp.any(early != longer)) == temporal  # the same share of another length
    np.testing.assert_allclose(lpg.when(Lifetime(jnp.int32(5), jnp.int32(20))), [0.25, np.log(20) / 10], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_drifts_are_zero_and_flat_where_the_policy_has_not_moved():
    advantage = jnp.linspace(-2, 2, 9)
    for drift in (lpo.dpo_drift, functools.partial(lpo.ppo_drift, clip_eps=0.2)):
        value, slope = jax.vmap(jax.value_and_grad(drift))(jnp.zeros(9), advantage)
        assert not value.any() and not slope.any()
        away = jnp.linspace(-1, 1, 9)
        assert (drift(jnp.repeat(away, 9), jnp.tile(advantage, 9)) >= 0).all()
    assert not lpo.features(jnp.zeros(3), jnp.ones(3)).any()
    learned = map(lpo.rule, (lpo.RuleConfig(hidden=4), lpo.RuleConfig(hidden=4, temporal=True, clip_eps=0.2)))
    for rule in (*learned, lpo.dpo_rule()):
        weights = rule.init(jax.random.key(1))
        seen = seen_by_hand(np.zeros((3, 2), bool))
        outputs = {**seen.outputs, "value": jnp.zeros((3, 2, 1))}
        seen = seen._replace(outputs=outputs, successor=lambda name: jnp.zeros((3, 2, 1)))
        targets, _ = rule.targets(weights, seen, Lifetime(jnp.int32(3), jnp.int32(4)))
        rows = jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), (seen._replace(successor=()), targets))
        _, report = rule.loss(weights, rows[0].outputs, *rows)
        assert float(report["drift"]) == 0  # the ratio is 1: what is left is the policy gradient
        moved = rows[0]._replace(log_prob=rows[0].log_prob - 1.0)
        each, report = rule.loss(weights, moved.outputs, moved, rows[1])
        assert float(report["drift"]) > 0
        if rule.name == "ta_lpo":  # it begins as PPO, less the threshold
            expected = jnp.maximum(lpo.ppo_drift(jnp.ones(6), rows[1]["advantage"], 0.2) - lpo.XI, 0)
            np.testing.assert_allclose(report["drift"], expected.mean(), rtol=1e-6)
    # DPO's equation by hand, where the ratio is e: entropy and value count as in PPO, 0.01 and half of a half.
    a, (v, target) = np.asarray(rows[1]["advantage"]), (0.0, np.asarray(rows[1]["target"]))
    up, down = (np.e - 1) * a, a
    drift = np.where(a >= 0, np.maximum(up - 2 * np.tanh(up / 2), 0), np.maximum(down - 0.6 * np.tanh(down / 0.6), 0))
    entropy = Categorical(moved.outputs["logits"]).entropy()
    np.testing.assert_allclose(each, drift - np.e * a + 0.25 * (v - target) ** 2 - 0.01 * entropy, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_a2c_as_a_rule_has_the_gradient_of_a2c():
    env = jaxrl.make("CartPole-v1")[0]
    config = AgentConfig(num_envs=4, num_steps=5, hidden=(8,), activation="tanh", optimizer="adam")
    parts = agent_parts(policy_gradients.a2c_rule(), env, config)
    state = parts.init(jax.random.key(0), AgentHyper(learning_rate=1e-3, critic_learning_rate=1e-3))
    _, rollout = jax.jit(parts.collect)(state)
    seen = parts.seen(state.weights, rollout)
    targets, _ = parts.rule.targets(state.hyper.rule, seen, Lifetime(0, 1))
    rows = jax.tree.map(lambda x: x.reshape(20, *x.shape[2:]), (rollout.obs, seen._replace(successor=()), targets))

    def ours(weights):
        said = parts.outputs(weights, rows[0])
        return jnp.mean(parts.rule.loss(state.hyper.rule, said, rows[1], rows[2])[0])

    def a2cs(weights):
        said = parts.outputs(weights, rows[0])
        log_pi = jax.nn.log_softmax(said["logits"])
        policy = a2c.policy_loss(jnp.take_along_axis(log_pi, rows[1].action[:, None], 1)[:, 0], rows[2]["advantage"])
        value = jnp.mean((said["value"][:, 0] - rows[2]["target"]) ** 2)  # the factor 1 of GROOVE's A2C
        return policy + value + 0.01 * jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, -1))

    for got, want in zip(*(jax.tree.leaves(jax.grad(f)(state.weights)) for f in (ours, a2cs)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_the_meta_gradient_is_that_of_finite_differences():
    env, params = debug()
    with jax.enable_x64(True):
        meta = RuleLearner(lpg.rule(NETWORK), env, dr.make(generate), MetaConfig(num_agents=1, num_updates=2), SMALL)
        state = meta.init(jax.random.key(0), MetaHyper(critic_learning_rate=0.1), params)
        one = jax.tree.map(lambda x: x[0], state.agents)
        flat, unravel = ravel_pytree(state.weights)
        # Steps so small that no action is drawn otherwise.
        value = jax.jit(lambda flat: meta.objective(unravel(flat), one, state.hyper)[0])
        gradient = jax.jit(jax.grad(value))(flat)
        for direction in np.random.default_rng(0).normal(size=(4, flat.size)):
            step = 1e-6 * direction / np.linalg.norm(direction)
            difference = (value(flat + step) - value(flat - step)) / 2e-6
            np.testing.assert_allclose(gradient @ step / 1e-6, difference, rtol=1e-3, atol=1e-9)
        # And what strategies estimate of the same objective tends to it: pairs point along it as sqrt(P / (P + D)).
        noise = np.random.default_rng(1).normal(size=(2000, flat.size))
        apart = jax.jit(jax.vmap(lambda e: (value(flat + 1e-5 * e) - value(flat - 1e-5 * e)) / 2e-5))(noise)
        for pairs in (20, 200, 2000):
            estimate = apart[:pairs] @ noise[:pairs] / pairs
            cosine = estimate @ gradient / jnp.linalg.norm(estimate) / jnp.linalg.norm(gradient)
            np.testing.assert_allclose(cosine, (pairs / (pairs + flat.size)) ** 0.5, atol=0.12)
        assert cosine > 0.9


@pytest.mark.slow
@pytest.mark.light
def test_every_group_of_weights_gets_a_gradient_and_critics_learn():
    env, params = debug()
    meta = learner(lpg.rule(NETWORK), env, dr.make(generate), MetaConfig(num_agents=4, num_updates=2), SMALL)
    state = meta.init(jax.random.key(0), None, params)
    after, metrics = jax.jit(meta.update)(state)
    for name, x, y in zip(
        *[[jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(state.weights)]],
        jax.tree.leaves(state.weights),
        jax.tree.leaves(after.weights),
        strict=True,
    ):
        assert bool(jnp.any(x != y)), f"{name} has no gradient"
    critics = zip(jax.tree.leaves(state.agents.critic), jax.tree.leaves(after.agents.critic), strict=True)
    assert all(bool(jnp.any(x != y)) for x, y in critics), "the critic that judges does not learn"
    assert metrics["loss"].shape == () and int(after.step) == 1
    assert int(after.agents.state.updates.max()) == 2


@pytest.mark.slow
@pytest.mark.light
def test_groups_of_agents_give_the_gradient_of_all():
    env, params = debug()
    states = []
    for at_once in (0, 2):
        config = MetaConfig(num_agents=4, num_updates=2, at_once=at_once, remat=at_once > 0, optimizer="sgd")
        meta = learner(lpg.rule(NETWORK), env, dr.make(generate), config, SMALL)
        state = meta.init(jax.random.key(0), None, params)
        states.append(jax.jit(meta.update)(state)[0])
    for x, y in zip(*(jax.tree.leaves((s.weights, s.agents.state.weights)) for s in states), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_lives_end_alone_and_are_judged_against_an_antagonist():
    env, params = debug()
    lives = jnp.array([3, 4, 7, 100])

    def lifetime(key, level):
        return jax.random.choice(key, lives).astype(jnp.int32)

    config = MetaConfig(num_agents=6, num_updates=2, judged_at_once=2)
    antagonist = policy_gradients.a2c_rule()
    meta = learner(lpg.rule(NETWORK), env, dr.make(generate), config, SMALL, antagonist, lifetime)
    state = meta.init(jax.random.key(0), None, params)
    update = jax.jit(meta.update)
    for _ in range(3):
        before = state
        state, metrics = update(state)
        done = np.minimum(before.agents.state.updates + 2, before.agents.state.hyper.lifetime)
        over = done >= before.agents.state.hyper.lifetime
        np.testing.assert_array_equal(state.agents.state.updates, np.where(over, 0, done))
        kept = jax.tree.map(lambda x, y: np.asarray(x == y), before.batch.params.start, state.batch.params.start)
        assert kept[~over].all() and int(metrics["lives_over"]) == over.sum()
        assert np.isfinite(metrics["regret"]) == over.any() == np.isfinite(metrics["final_return"])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("how", [learner, strategy])
def test_the_exact_regret_of_lives_is_against_the_best_return(how):
    env, params = debug()
    level = generate(jax.random.key(3), params)
    config = MetaConfig(num_agents=4, num_updates=1) if how is learner else StrategyConfig(num_pairs=4)
    best, one = env.levels.optimal_value, lambda key, level: jnp.int32(1)
    meta = how(lpg.rule(NETWORK), env, dr.make(lambda key, params: level), config, SMALL, best, one)
    metrics = jax.jit(meta.update)(meta.init(jax.random.key(0), None, params))[1]
    np.testing.assert_allclose(metrics["regret"], best(level) - metrics["final_return"], rtol=1e-5, atol=1e-6)
    assert float(metrics["regret"]) > 0


@pytest.mark.slow
@pytest.mark.light
def test_new_agents_draw_their_learning_rates():
    env, params = debug()
    config = MetaConfig(num_agents=64, num_updates=1)
    meta = learner(lpg.rule(NETWORK), env, dr.make(generate), config, SMALL, None, lambda key, level: jnp.int32(1))
    init = jax.jit(lambda spread: meta.init(jax.random.key(0), MetaHyper(rate_spread=spread), params))
    same, drawn = (init(spread).agents.state.hyper for spread in (0.0, 1.2))
    usual = AgentHyper()
    actor, critic = (np.log(np.asarray(getattr(drawn, x) / getattr(usual, x))) for x in LEARNING_RATES)
    for factors in (actor, critic):
        assert -1.2 <= factors.min() < -1.0 and 1.0 < factors.max() <= 1.2 and abs(factors.mean()) < 0.3
    assert abs(np.corrcoef(actor, critic)[0, 1]) < 0.4
    assert all((getattr(same, x) == getattr(usual, x)).all() for x in LEARNING_RATES)

    # Both of a pair have the same ones, and a spread changes what they are worth.
    pairs = strategy(lpg.rule(NETWORK), env, dr.make(generate), StrategyConfig(num_pairs=4), SMALL)
    update = jax.jit(pairs.update)
    found = []
    for spread, sigma in ((0.0, 0.0), (1.2, 0.0), (1.2, 0.1)):
        hyper = StrategyHyper(rate_spread=jnp.float32(spread), sigma=jnp.float32(sigma))
        found += [update(pairs.init(jax.random.key(0), hyper, params))[1]]
    assert found[0]["final_return"] != found[1]["final_return"]
    assert found[1]["pairs_apart"] == 0 < found[2]["pairs_apart"]


LEARNING_RATES = ("learning_rate", "critic_learning_rate")


def test_the_best_return_is_not_known_where_objects_move():
    kits = {x: jaxrl.make("GridWorld-small-v0", observation=x)[0].levels for x in ("maps", "index")}
    assert kits["maps"].optimal_value is None and kits["index"].optimal_value is optimal_value


def test_rows_are_computed_where_they_are_over():
    seen = []
    over = jnp.array([False, True, True, False, True])

    def square(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        return jnp.stack([x, x**2])

    found = where_over(over, square, (jnp.arange(5.0),), 2, (2,))
    np.testing.assert_array_equal(found, [[0, 0], [1, 1], [2, 4], [0, 0], [4, 16]])


def test_the_estimate_of_pairs_points_to_better_rules():
    noise = jax.random.normal(jax.random.key(0), (20_000, 3))
    slope = jnp.array([1.0, -2.0, 0.0])
    scores = jnp.stack([noise @ slope, -noise @ slope], 1)
    gradient = pair_gradient(noise, scores, 0.1)
    # E[sign(s . e) e] = sqrt(2 / pi) s / |s|
    expected = -np.sqrt(2 / np.pi) * slope / jnp.linalg.norm(slope) / 0.2
    np.testing.assert_allclose(gradient, expected, atol=0.1)
    assert not pair_gradient(noise[:2], jnp.ones((2, 2)), 0.1).any()  # a draw says nothing
    rounded = jnp.array([[0.3, np.nextafter(np.float32(0.3), 1)]] * 2, jnp.float32)
    assert (
        not pair_gradient(noise[:2], rounded, 0.1).any()
        and pair_gradient(noise[:2], rounded * jnp.array([1, 1.01]), 0.1).any()
    )


@pytest.mark.slow
@pytest.mark.light
def test_a_strategy_learns_whole_lives():
    env, params = debug()
    made = strategy(
        lpg.rule(NETWORK),
        env,
        dr.make(generate),
        StrategyConfig(num_pairs=3, at_once=1),
        SMALL,
        lifetime_fn=lambda key, level: jnp.int32(2),
    )
    state, metrics = jax.jit(lambda key: jaxrl.train(made, key, 2, env_params=params))(jax.random.key(0))
    assert int(state.step) == 2 and state.env_params is not None and made.steps_per_update == 1
    assert np.isfinite(metrics["final_return"]).all() and (metrics["final_return"] == metrics["episode_return"]).all()
    assert ((metrics["pairs_apart"] >= 0) & (metrics["pairs_apart"] <= 1)).all()
    with pytest.raises(TypeError, match="A rule does not act"):
        made.act(made.policy(state), jax.random.key(0), jnp.int32(0))


@pytest.mark.slow
@pytest.mark.light
def test_lives_score_the_same_in_groups_of_like_length_and_all_at_once():
    env, params = debug()
    lengths = jnp.array([3, 1, 4, 1, 5, 2])

    def lifetime(key, level):
        return lengths[jax.random.bits(key) % 6]

    def first_update(at_once):
        config = StrategyConfig(num_pairs=6, at_once=at_once)
        made = strategy(lpg.rule(NETWORK), env, dr.make(generate), config, SMALL, lifetime_fn=lifetime)
        state, metrics = jax.jit(lambda key: made.update(made.init(key, None, params)))(jax.random.key(3))
        return ravel_pytree(state.weights)[0], metrics["final_return"]

    together = first_update(6)
    for at_once in (0, 2):
        for got, wanted in zip(first_update(at_once), together, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert StrategyConfig(num_pairs=6).groups == 6 and StrategyConfig(num_pairs=64).groups == 8
    assert StrategyConfig(num_pairs=64, at_once=32).groups == 2


def test_what_cannot_be_taught_is_refused():
    with pytest.raises(ValueError, match="lpg acts in Discrete spaces"):
        lpg.make(jaxrl.make("Pendulum-v1")[0])
    with pytest.raises(ValueError, match="at_once=3 does not divide num_agents=8"):
        MetaConfig(num_agents=8, at_once=3)
    env = jaxrl.make("CartPole-v1")[0]
    meta = learner(lpg.rule(NETWORK), env, dr.make(lambda key, params: params), MetaConfig(num_agents=1), SMALL)
    with pytest.raises(ValueError, match="no lifetime of their own: give learner a lifetime_fn"):
        jax.eval_shape(meta.init, jax.random.key(0))


def test_a_rule_that_reads_what_no_agent_gives_is_named():
    rule = policy_gradients.a2c_rule()
    algo = agent(rule._replace(heads=(("y", 3),)), *debug()[:1], SMALL)
    with pytest.raises(
        ValueError, match=r"a2c_rule reads 'value', and an agent by it gives logits, y: .*\('value', 1\)"
    ):
        jax.eval_shape(lambda key: algo.update(algo.init(key, None, generate(key, debug()[1]))), jax.random.key(0))
    for heads, says in (
        ((("logits", 3),), "none may be 'logits'"),
        ((("y", 3), ("y", 1)), "names that differ"),
        ((("y", 0),), "sizes of at least 1"),
    ):
        with pytest.raises(ValueError, match=says):
            agent(rule._replace(heads=heads), debug()[0], SMALL)


def test_weights_of_another_network_are_refused():
    algo = agent(lpg.rule(NETWORK), debug()[0], SMALL)
    level = generate(jax.random.key(0), debug()[1])
    wider, shallower = (dataclasses.replace(NETWORK, **x) for x in ({"features": 5}, {"embedding": ()}))
    for weights, says in (
        (lpg.rule(wider).init(KEYS[0]), r"is \(20,\), and it needs \(16,\)"),
        (lpg.rule(shallower).init(KEYS[0]), "hyper.rule has other weights"),
        ({"other": jnp.zeros(3)}, "hyper.rule has other weights than lpg: .* and it has none"),
    ):
        with pytest.raises(ValueError, match=says):
            jax.eval_shape(lambda key, weights=weights: algo.init(key, AgentHyper(weights), level), jax.random.key(0))


@pytest.mark.parametrize("learns", [learner, strategy])
def test_lives_of_less_than_an_update(learns):
    env, params = debug()
    config = MetaConfig(num_agents=2, num_updates=1) if learns is learner else StrategyConfig(num_pairs=1)

    def lives(lifetime):
        made = learns(
            lpg.rule(NETWORK), env, dr.make(generate), config, SMALL, lifetime_fn=lambda key, level: lifetime(key)
        )
        return jax.eval_shape(lambda key: made.update(made.init(key, None, params)), jax.random.key(0))

    for lifetime, says in (
        (lambda key: 0, "lifetime_fn.* is 0: a life has at least one update"),
        (lambda key: jax.random.uniform(key) * 3, "float32.* one whole number"),
        (lambda key: jnp.array([2]), r"int32\[1\]: it must be one whole number"),
    ):
        with pytest.raises(ValueError, match=says):
            lives(lifetime)
    lives(lambda key: jax.random.randint(key, (), 0, 3))


def test_a_life_that_is_drawn_too_short_has_one_update():
    drawn = [int(lifetime_on(None, key, lambda k, _: jax.random.randint(k, (), -1, 3))) for key in KEYS]
    assert set(drawn) == {1, 2}
    assert int(jax.jit(lambda n: lifetime_on(None, KEYS[0], lambda key, level: n))(0)) == 1


@pytest.mark.slow
@pytest.mark.light
def test_a_life_may_be_shorter_than_a_meta_update():
    """The gradient through K = 3 updates of a life of two is that through K = 2, but for the rollout that judges."""
    env, params = debug()

    def after(num_updates):
        config = MetaConfig(num_agents=1, num_updates=num_updates)
        meta = RuleLearner(
            lpg.rule(NETWORK), env, dr.make(generate), config, SMALL, lifetime_fn=lambda key, level: jnp.int32(2)
        )
        state = meta.init(jax.random.key(0), None, params)
        return jax.jit(meta.gradient)(state.weights, state.agents, state.hyper)

    grads, agents, _ = after(3)
    _, whole, _ = after(2)
    assert int(agents.state.updates[0]) == 2 and all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
    for x, y in zip(*(jax.tree.leaves(a.state.weights) for a in (agents, whole)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_updates_are_recomputed_by_size():
    def chosen(units=256, agents=4, **settings):
        rule = lpg.rule(lpg.RuleConfig(features=units))
        return RuleLearner(rule, debug()[0], dr.make(generate), MetaConfig(num_agents=agents, **settings)).remat

    assert chosen(16) and chosen(64)  # equally fast in a quarter of the memory
    assert not chosen(256) and not chosen(256, 64, at_once=16)
    assert chosen(256, 64)  # 3 GiB
    assert chosen(256, remat=True) and not chosen(16, remat=False)
    assert recomputed(99_999, 1) and not recomputed(100_000, 1)

"""CPL and P-IQL: losses by hand, the optimiser that begins anew, and what they learn of a bandit's preferences."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrl
from jaxrl.algos.preferences import cpl, p_iql
from jaxrl.data import preferences
from jaxrl.data.datasets import Dataset
from jaxrl.data.preferences import Preferences
from jaxrl.replay.ring import uniform
from jaxrl.spaces import Box

KEY = jax.random.key(0)


def test_the_loss_by_hand():
    scores, label = jnp.array([[-1.0, 0.5], [0.3, -0.2]]), jnp.array([1.0, 0.25])
    for bias in (1.0, 0.5):

        def minus_log(won, lost, bias=bias):
            return -math.log(math.exp(won) / (math.exp(won) + math.exp(bias * lost)))

        by_hand = [
            minus_log(0.5, -1.0),
            0.25 * minus_log(-0.2, 0.3) + 0.75 * minus_log(0.3, -0.2),
        ]
        np.testing.assert_allclose(cpl.cpl_loss(scores, label, bias), sum(by_hand) / 2, rtol=1e-6)
    log_prob = jnp.array([[[-1.0, -2.0], [-0.5, -0.1]]])
    np.testing.assert_allclose(cpl.score(log_prob, 0.1, 0.5), [[-0.2, -0.055]], rtol=1e-6)


def test_the_conservative_loss_prefers_likely_segments():
    """Of equal differences; without it they are the same."""
    likely, unlikely, label = jnp.array([[-2.0, -1.0]]), jnp.array([[-12.0, -11.0]]), jnp.ones(1)
    np.testing.assert_allclose(cpl.cpl_loss(likely, label), cpl.cpl_loss(unlikely, label), rtol=1e-6)
    assert cpl.cpl_loss(likely, label, 0.5) < cpl.cpl_loss(unlikely, label, 0.5) - 1


def test_one_gradient_step_by_hand():
    """One pair of segments of two steps: Adam on the loss that optax and the formula give."""
    env, params = jaxrl.make("Pendulum-v1")
    rng = np.random.default_rng(0)
    obs, last = rng.normal(size=(4, 3)).astype(np.float32), np.array([False, True, False, True])
    action = rng.uniform(-2, 2, (4, 1)).astype(np.float32)
    data = Dataset(obs, action, np.zeros(4, np.float32), last & False, last, obs)
    pairs = Preferences(data, np.array([[0, 2]], np.int32), np.ones(1, np.float32), 2)
    algo = cpl.make(
        env, cpl.Config(batch_size=3, hidden=(4,)), replay=preferences.stored(pairs, env.action_space(params))
    )
    hyper = cpl.Hyper(learning_rate=1e-2, cloning_steps=0, warmup_steps=0)
    state = algo.init(KEY, hyper, params)
    weights = state.weights["actor"]
    network = algo.init.__self__.actor.module

    def loss(weights):
        log_prob = -jnp.sum((network.apply(weights, jnp.asarray(obs)) - action / 2) ** 2, -1)
        won, lost = 0.1 * log_prob[2:].sum(), 0.1 * log_prob[:2].sum()
        return jnp.log(jnp.exp(won) + jnp.exp(0.5 * lost)) - won

    adam = optax.adam(1e-2)
    change, _ = adam.update(jax.grad(loss)(weights), adam.init(weights))
    expected = optax.apply_updates(weights, change)
    state, metrics = algo.update(state)
    np.testing.assert_allclose(metrics["contrastive_loss"], loss(weights), rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), state.weights["actor"], expected)


def pendulum_pairs(n=48, length=4):
    """The better of two segments is the one whose actions are nearer to 1."""
    rng = np.random.default_rng(0)
    size = 40 * length
    obs, last = rng.normal(size=(size, 3)).astype(np.float32), np.arange(size) % length == length - 1
    action = rng.uniform(-2, 2, (size, 1)).astype(np.float32)
    data = Dataset(obs, action, np.zeros(size, np.float32), last & False, last, obs)
    reward = -np.abs(action[:, 0] - 1)
    first = preferences.uniform_queries(rng, data, n, length)
    score = preferences.scores(data.replace(reward=reward), first, length)
    return Preferences(data, first, (score[:, 1] > score[:, 0]).astype(np.float32), length)


def test_the_optimiser_begins_anew_after_cloning():
    env, params = jaxrl.make("Pendulum-v1")
    replay = preferences.stored(pendulum_pairs(), env.action_space(params))
    algo = cpl.make(env, cpl.Config(batch_size=8, hidden=(8,)), replay=replay)
    update = jax.jit(algo.update)
    state = algo.init(KEY, cpl.Hyper(cloning_steps=3, warmup_steps=2), params)
    counts, losses = [], []
    for _ in range(5):
        state, metrics = update(state)
        counts.append(int(state.optimizer["actor"].count))
        losses.append(np.isclose(metrics["loss"], metrics["cloning_loss"]))
    assert counts == [1, 2, 3, 1, 2]
    assert losses == [True, True, True, False, False]
    assert int(state.extra["steps"]) == 5


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [cpl, p_iql])
def test_learns_what_is_preferred(module):
    env, params = jaxrl.make("Pendulum-v1")
    replay = preferences.stored(pendulum_pairs(400, 4), env.action_space(params))
    config = module.Config(num_updates=100, batch_size=64, hidden=(32,))
    own = dict(cloning_steps=100, warmup_steps=10, alpha=1.0) if module is cpl else dict(reward_steps=500, gamma=0.0)
    algo = module.make(env, config, replay=replay)
    train = jax.jit(lambda key: jaxrl.train(algo, key, 1500, module.Hyper(learning_rate=3e-3, **own), params))
    state, metrics = train(KEY)
    seen = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    action, _ = algo.act(algo.policy(state), KEY, jnp.asarray(seen), greedy=True)
    cloned = 0.0  # the mean action of the data
    assert np.mean(np.abs(action - 1.0)) < 0.75 * np.mean(np.abs(cloned - 1.0))
    accuracy = metrics["accuracy" if module is cpl else "reward_accuracy"]
    assert np.nanmax(accuracy) > 0.85


def test_the_reward_comes_first():
    """Then it stays, and the networks of IQL learn from it."""
    env, params = jaxrl.make("Pendulum-v1")
    replay = preferences.stored(pendulum_pairs(), env.action_space(params))
    algo = p_iql.make(env, p_iql.Config(batch_size=8, hidden=(8,), num_members=2), replay=replay)
    update = jax.jit(algo.update)
    state = algo.init(KEY, p_iql.Hyper(reward_steps=2, learning_rate=1e-2), params)
    changed = []
    for _ in range(4):
        before, (state, metrics) = state, update(state)
        moved = {
            name: any(
                np.any(x != y) for x, y in zip(jax.tree.leaves(w), jax.tree.leaves(state.weights[name]), strict=True)
            )
            for name, w in before.weights.items()
        }
        changed.append(moved)
        assert np.isfinite(metrics["loss"]) and np.isfinite(metrics["grad_norm"])
    assert changed[0] == changed[1] == {"reward": True, "value": False, "critic": False, "actor": False}
    assert changed[2] == changed[3] == {"reward": False, "value": True, "critic": True, "actor": True}


def test_seeds_compute_one_phase_a_step_and_what_each_does_alone():
    env, params = jaxrl.make("Pendulum-v1")
    replay = preferences.stored(pendulum_pairs(), env.action_space(params))
    algo = p_iql.make(env, p_iql.Config(batch_size=8, hidden=(8,)), replay=replay)
    lengths = [1, 3]

    def trained(steps):
        state = algo.init(KEY, p_iql.Hyper(reward_steps=steps, learning_rate=1e-2), params)
        return jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, length=4)[0].weights

    both = jax.jit(jax.vmap(trained))(jnp.array(lengths, jnp.float32))
    for i, steps in enumerate(lengths):
        alone = jax.jit(trained)(jnp.float32(steps))
        jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, atol=1e-5), both, alone)
    state = jax.eval_shape(lambda: jax.vmap(lambda key: algo.init(key, p_iql.Hyper(), params))(jax.random.split(KEY)))
    assert str(jax.make_jaxpr(jax.vmap(algo.update))(state)).count(" cond[") == 2  # one a phase, not both computed


@pytest.mark.parametrize("module", [cpl, p_iql])
def test_what_is_given_in_place_of_preferences(module):
    env, _ = jaxrl.make("Pendulum-v1")
    with pytest.raises(ValueError, match="learns from preferences alone: .*`jaxrl dataset preferences`"):
        module.make(env)
    with pytest.raises(ValueError, match="this replay takes steps in"):
        module.make(env, replay=uniform(8))
    with pytest.raises(TypeError, match="replay"):
        module.make(env, replay=pendulum_pairs().steps)
    wrong = pendulum_pairs()
    with pytest.raises(ValueError, match="a dataset's actions have shape"):
        preferences.stored(wrong, Box(-1.0, 1.0, (2,)))

"""HERON: the tree's loss by hand, words of factors, units that do not count, and rewards that are made anew."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import heron
from jaxrl.data.transitions import Transition
from jaxrl.nn.nets import net
from jaxrl.nn.optim import optimizer_of
from jaxrl.wrappers import RewardMachine

KEY = jax.random.key(0)
WORDS = ("obs[0]", "-|obs[2]|", "-|action[0]|")
SMALL = dict(num_envs=2, num_steps=2, num_updates=2, batch_size=8, buffer_size=64, hidden=(8,), num_compared=4)
HYPER = heron.Hyper(learning_starts=4, learning_rate=1e-2, reward_learning_rate=1e-2)


def test_the_tree_and_its_loss_by_hand():
    """Three steps, factors (done, cost): the first factor decides two pairs, the second the third one."""
    factors = jnp.array([[0.0, -1.0], [1.0, -9.0], [0.0, -2.0]])
    reward = jnp.array([0.5, 0.2, -0.3])
    loss, accuracy, share = heron.tree_loss(reward, factors, jnp.zeros(2))
    # 1 is better than 0 and than 2 (done); 0 is better than 2 (less cost).
    by_hand = [math.log1p(math.exp(-(0.2 - 0.5))), math.log1p(math.exp(-(0.2 + 0.3))), math.log1p(math.exp(-0.8))]
    np.testing.assert_allclose(loss, np.mean(by_hand), rtol=1e-6)
    np.testing.assert_allclose([accuracy, share], [2 / 3, 1], rtol=1e-6)
    # Costs deviate by 3.56: with a margin of a deviation 0 and 2 are not compared.
    loss, accuracy, share = heron.tree_loss(reward, factors, jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(loss, np.mean(by_hand[:2]), rtol=1e-6)
    np.testing.assert_allclose([accuracy, share], [1 / 2, 2 / 3], rtol=1e-6)
    assert heron.tree_loss(reward, factors * 0, jnp.zeros(2))[0] == 0  # nothing is compared


def test_words_of_factors():
    obs, action = jnp.array([[1.0, -2.0, -3.0]]), jnp.array([[-0.5]])
    step = Transition(obs, action, jnp.zeros(1), jnp.array([True]), 2 * obs)
    words = ("obs[0]", "-|obs[2]|", "-action[0]", "terminated", "|next_obs[1]|")
    np.testing.assert_array_equal(heron.factors_of(words, 3, 1)(step), [[1.0, -3.0, 0.5, 1.0, 4.0]])
    for word, line in (
        ("speed", "factor 'speed': it is obs"),
        ("|obs[0]", "factor '|obs[0]': it is obs"),
        ("obs", "factor 'obs': it is obs"),
        ("terminated[0]", "it is obs"),
        ("obs[3]", "factor 'obs[3]': obs has 3 numbers, 0 to 2"),
    ):
        with pytest.raises(ValueError) as error:
            heron.factors_of((word,), 3, 1)
        assert line in str(error.value)
    with pytest.raises(ValueError, match="heron needs factors, the most important first, as --config.factors"):
        heron.make(jaxrl.make("Pendulum-v1")[0])
    for wrong, line in (
        (dict(num_compared=1), "num_compared=1: it must be at least 2"),
        (dict(factors=WORDS, margins=(1.0,)), "1 margins of 3 factors"),
        (dict(margins=(-1.0,)), "each must be finite and at least 0"),
    ):
        with pytest.raises(ValueError, match=line):
            heron.Config(**wrong)


def test_words_of_a_dict_are_refused_and_a_function_is_not():
    """Numbers of actions and ends have words whatever is observed."""
    env = RewardMachine(jaxrl.make("Pendulum-v1")[0], lambda *_: jnp.zeros(1, bool))  # observes a Dict
    for word in ("obs[0]", "-|next_obs[1]|"):
        with pytest.raises(ValueError) as error:
            heron.make(env, heron.Config(**SMALL, factors=(word,)))
        assert str(error.value) == (
            f"factor {word!r} needs observations that are a vector; of others, make(env, factors=...)."
        )
    heron.make(env, heron.Config(**SMALL, factors=("-|action[0]|", "terminated")))
    heron.make(env, heron.Config(**SMALL), factors=lambda batch: batch.obs["obs"][..., :2])


@pytest.mark.parametrize("margins", [(1.0,), (1.0, 1.0, 1.0, 1.0)])
def test_margins_of_a_function_are_one_for_each_factor(margins):
    """One margin would serve all three."""
    env, params = jaxrl.make("Pendulum-v1")
    algo = heron.make(env, heron.Config(**SMALL, margins=margins), factors=in_units([1.0, 1.0, 1.0]))
    state = jax.eval_shape(lambda: algo.init(KEY, HYPER, params))
    with pytest.raises(ValueError, match=f"^{len(margins)} margins of the 3 of factors=: one each, or none for 1 each"):
        jax.eval_shape(algo.update, state)


def in_units(units):
    of = heron.factors_of(WORDS, 3, 1)
    return lambda batch: of(batch) * jnp.array(units)


def trained(algo, updates=6):
    env, params = jaxrl.make("Pendulum-v1")

    @jax.jit
    def run(key):
        state = algo.init(key, HYPER, params)
        return state, *jax.lax.scan(lambda state, _: algo.update(state), state, length=updates)

    return run(KEY)


def test_a_factors_unit_is_of_no_account():
    """Bit by bit, in units of powers of two; and every network is changed."""
    env, _ = jaxrl.make("Pendulum-v1")
    start, one, metrics = trained(heron.make(env, heron.Config(**SMALL, factors=WORDS)))
    other = trained(heron.make(env, heron.Config(**SMALL), factors=in_units([1024.0, 0.25, 64.0])))[1]
    jax.tree.map(np.testing.assert_array_equal, one.weights, other.weights)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), start.weights, one.weights)
    assert all(jax.tree.leaves(moved)), moved
    assert np.isfinite(metrics["reward_loss"][-1]) and np.isfinite(metrics["critic_loss"][-1])


def test_rewards_are_made_anew_or_stay():
    """The true reward is in no batch; without relabelling what is stored is what the network then said."""
    env, params = jaxrl.make("Pendulum-v1")
    algo = heron.make(env, heron.Config(**SMALL, factors=WORDS, relabel=False))
    state = algo.init(KEY, HYPER, params)
    after, rollout = jax.jit(algo.collect)(state)
    rule = algo.init.__self__.rule
    np.testing.assert_allclose(
        rollout.transition.reward, rule.raw(state.weights["reward"], rollout.transition), rtol=1e-5
    )
    renewed = heron.make(env, heron.Config(**SMALL, factors=WORDS))
    stored = jax.jit(renewed.collect)(state)[1].transition.reward
    assert (np.abs(stored) > 10 * np.abs(rollout.transition.reward)).all()  # the environment's, which no one reads
    one = jax.jit(renewed.learn)(after, rollout)[0].weights
    same = rollout._replace(transition=rollout.transition._replace(reward=stored))
    jax.tree.map(np.testing.assert_array_equal, one, jax.jit(renewed.learn)(after, same)[0].weights)


@pytest.mark.parametrize("absorbing", [True, False])
def test_an_end_pays_for_ever(absorbing):
    """What DDPG is handed, by hand: shifted and scaled rewards, at an end r / (1 - gamma) or r alone."""
    env, _ = jaxrl.make("Pendulum-v1")
    config = heron.Config(**SMALL, factors=WORDS, absorbing=absorbing)
    rule = heron.make(env, config).init.__self__.rule
    handed = []

    class Noted:
        networks = ()

        def gradient_step(self, nets, key, batch, hyper):
            handed.append(batch.reward)
            return nets, {}

    obs_key, action_key, init_key = jax.random.split(KEY, 3)
    obs, action = jax.random.normal(obs_key, (8, 3)), jax.random.uniform(action_key, (8, 1))
    ends = jnp.arange(8) % 3 == 0
    batch = Transition(obs, action, jnp.zeros(8), ends, obs[::-1])
    weights = rule.reward.init(init_key, obs, action, obs, ends)
    optimizer = optimizer_of("adam")
    reward = net(weights, optimizer.init(weights, 0.0), optimizer)
    nets = {"reward": reward, "moments": jnp.array([0.1, 4.0])}
    hyper = heron.Hyper(gamma=0.75, reward_learning_rate=0.0, moment_step=0.0)
    dataclasses.replace(rule, ddpg=Noted()).gradient_step(nets, KEY, batch, hyper)
    scaled = (rule.raw(weights, batch) - 0.1) / 2
    np.testing.assert_allclose(handed[0], np.where(ends & absorbing, 4 * scaled, scaled), rtol=1e-5)


def test_absorbing_ends_want_a_discount():
    env, params = jaxrl.make("Pendulum-v1")
    heron.make(env, heron.Config(**SMALL, factors=WORDS, absorbing=False)).init(KEY, heron.Hyper(gamma=1.0), params)
    with pytest.raises(ValueError, match=r"^gamma=1.0: with absorbing ends, .* it must be below 1"):
        heron.make(env, heron.Config(**SMALL, factors=WORDS)).init(KEY, heron.Hyper(gamma=1.0), params)


@pytest.mark.slow
def test_an_end_is_sought_or_fled_as_the_designer_says():
    """Lengths of the last episodes on CartPoleContinuous: a fall is the aim, or the failure."""
    env, params = jaxrl.make("CartPoleContinuous-v0")
    sizes = dict(num_envs=8, num_steps=4, num_updates=8, batch_size=64, num_compared=64, hidden=(32,))
    hyper = heron.Hyper(learning_starts=500, learning_rate=1e-3, reward_learning_rate=1e-3, gamma=0.95)
    length = {}
    for factor in ("terminated", "-terminated"):
        algo = heron.make(env, heron.Config(**sizes, factors=(factor,)))
        _, metrics = jax.jit(lambda key, algo=algo: jaxrl.train(algo, key, 12_000, hyper, params))(KEY)
        length[factor] = np.nanmean(metrics["episode_length"][-100:])
    assert length["-terminated"] > 3 * length["terminated"], length


@pytest.mark.slow
def test_learns_the_order_of_factors():
    """On random steps of a pendulum: the reward tells pairs as the tree does."""
    env, params = jaxrl.make("Pendulum-v1")
    config = heron.Config(num_envs=16, num_steps=4, num_updates=8, batch_size=64, hidden=(32,), factors=WORDS)
    algo = heron.make(env, config)
    hyper = heron.Hyper(learning_starts=64, reward_learning_rate=3e-3, learning_rate=1e-3)
    _, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 20_000, hyper, params))(KEY)
    assert np.mean(metrics["accuracy"][-50:]) > 0.9

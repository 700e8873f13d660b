"""Population-based training: who copies whom, how settings move, and that it finds a working setting."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import train
from jaxrl.algos import ppo
from jaxrl.algos.population import pbt
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

EXPLORED = (("learning_rate", 1e-6, 1e-1), ("anneal_steps", 1e6, 1e8))
CONFIG = pbt.Config(EXPLORED, population=6, quantile=1 / 3, interval=2)


@cache
def made(**settings):
    student = ppo.make(ObservationActionReward(), ppo.Config(num_envs=4, num_steps=8, num_minibatches=1, hidden=(8,)))
    return pbt.make(student, pbt.Config(EXPLORED, **{"population": 6, "quantile": 1 / 3, "interval": 2, **settings}))


def test_the_worst_copy_the_best():
    score = jnp.array([3.0, -1.0, 7.0, 5.0, -jnp.inf, 9.0])
    seen = np.array([pbt.sources(jax.random.key(i), score, 2) for i in range(30)])
    np.testing.assert_array_equal(seen[:, [0, 2, 3, 5]], np.tile([0, 2, 3, 5], (30, 1)))
    assert set(seen[:, 1]) == {2, 5} == set(seen[:, 4])


def test_nobody_copies_an_equal():
    for score in (jnp.zeros(4), jnp.full(4, -jnp.inf)):
        np.testing.assert_array_equal(pbt.sources(jax.random.key(0), score, 2), range(4))


def test_settings_move_by_the_factor_within_their_range():
    value = jnp.array([0.5, 0.01, 0.99, 0.5])
    copied = jnp.array([True, True, True, False])
    args = (value, copied, 0.009, 1.0, 1.25)
    seen = np.array([pbt.explore(jax.random.key(i), *args, 0.0) for i in range(20)], float).round(4)
    assert set(seen[:, 0]) == {0.4, 0.625} and set(seen[:, 3]) == {0.5}
    assert set(seen[:, 1]) == {0.0125, 0.009}, "clipped below"
    assert set(seen[:, 2]) == {0.792, 1.0}, "clipped above"
    anew = np.array([pbt.explore(jax.random.key(i), *args, 1.0) for i in range(200)])[:, 0]
    assert anew.min() > 0.009 and anew.max() < 1 and 0.3 < np.mean(anew < np.sqrt(0.009)) < 0.7
    whole = pbt.explore(jax.random.key(0), jnp.array([10, 10]), jnp.array([True, False]), 1.0, 100.0, 1.26, 0.0)
    assert whole.dtype == jnp.int32 and int(whole[0]) in (8, 13) and whole[1] == 10


def test_running_score():
    score = pbt.running_score(jnp.array([-jnp.inf, 2.0, 2.0]), jnp.array([4.0, 4.0, jnp.nan]), 0.75)
    np.testing.assert_allclose(score, [4, 2.5, 2])


@pytest.mark.slow
@pytest.mark.light
def test_an_exchange_copies_the_learner_and_not_its_place():
    algo = made(interval=1)
    state, rollout = jax.jit(algo.collect)(jax.jit(algo.init)(jax.random.key(0)))
    scores = [0.0, 100, 200, 300, 500, 600]
    new, metrics = jax.jit(algo.learn)(state.replace(score=jnp.array(scores)), rollout)
    before, members = state.inner, new.inner
    assert metrics["copied"] == 2 and len({float(x) for x in new.score[2:]}) == 4
    for who in (0, 1):
        whom = 4 if new.score[who] == new.score[4] else 5
        for copies in (members.weights, members.optimizer):
            jax.tree.map(lambda x, a=who, b=whom: np.testing.assert_array_equal(x[a], x[b]), copies)
        assert members.hyper.learning_rate[who] != members.hyper.learning_rate[whom]
    np.testing.assert_array_equal(members.obs, before.obs)
    keys = jax.random.key_data(members.key)
    assert len({tuple(key) for key in keys.tolist()}) == 6


@pytest.mark.slow
@pytest.mark.light
def test_a_member_that_diverged_is_replaced_at_once_and_stops_nobody():
    algo = made(interval=1000)
    state = jax.jit(algo.init)(jax.random.key(0))
    broken = jax.tree.map(lambda x: x.at[2].set(jnp.nan), state.weights)
    update = jax.jit(algo.update)
    well, _ = update(state)
    after, metrics = update(state.replace(weights=broken))
    assert metrics["diverged"] == 1 == metrics["copied"] and np.isfinite(metrics["loss"])
    others = np.array([0, 1, 3, 4, 5])
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[others], y[others]), after.weights, well.weights)
    copies = [all(np.all(x[2] == x[i]) for x in jax.tree.leaves(after.weights)) for i in others]
    assert sum(copies) == 1 and all(
        np.isfinite(x).all() for x in jax.tree.leaves((after.weights, after.inner.optimizer))
    )
    again, metrics = update(after)
    assert metrics["diverged"] == 0 == metrics["copied"] and np.isfinite(again.score).all()


@pytest.mark.slow
@pytest.mark.light
def test_first_settings_fill_the_range():
    state = made(population=40).init(jax.random.key(0), ppo.Hyper(gamma=0.5))
    rate = np.log10(state.hyper.learning_rate)
    assert rate.min() < -5 and rate.max() > -2 and state.hyper.anneal_steps.dtype == jnp.int32
    assert set(np.asarray(state.hyper.gamma)) == {0.5}


@pytest.mark.slow
def test_keeps_the_contract():
    check_algorithm(made(), hyper=ppo.Hyper(gamma=0.5), num_updates=6)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    """In what is its own; the checker does not follow keys through a vmapped scan, which the students' rollouts are."""
    algo = made()
    exchange, state = algo.learn.__self__.exchange, algo.init(jax.random.key(5))
    state = state.replace(inner=state.inner.replace(key=None))
    seen = assert_no_key_reuse(
        lambda key: exchange(key, state, jnp.bool_(True))[0].hyper.learning_rate, jax.random.key(6)
    )
    assert np.all(np.isfinite(seen))


@pytest.mark.slow
def test_all_of_the_population_learns_though_rates_of_many_do_not():
    """Rates from 1e-6 to 0.1: without exchanges those members that draw a bad one get half of the return for ever.

    Rates are not asserted: once all are at the best return, which of them copies whom is chance.
    """

    def returns(interval):
        algo = made(population=12, interval=interval)
        settings = ppo.Hyper(gamma=0.5, ent_coef=0.0)
        run = jax.vmap(lambda key: train(algo, key, algo.steps_per_update * 80, settings)[1])
        metrics = jax.jit(run)(jax.random.split(jax.random.key(0), 4))
        return np.mean(metrics["episode_return"][:, -10:], 1), np.sum(metrics["copied"], 1)

    exchanging, copied = returns(2)
    alone, none = returns(1000)
    assert np.all(exchanging > 0.97) and np.all(copied > 10), (exchanging, copied)
    assert np.all(alone < 0.9) and not np.any(none), (alone, none)


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(population=1), "population=1 is 0 members"),
        (dict(quantile=0.7), "is 4 members"),
        (dict(interval=0), "interval=0"),
        (dict(explored=(("learning_rate", 0.0, 1.0),)), "learning_rate: the range 0.0 to 1.0"),
    ],
)
def test_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        pbt.Config(**{"explored": EXPLORED, "population": 6, "quantile": 1 / 3, **settings})
    with pytest.raises(ValueError, match="ppo has no setting 'lr'; its Hyper has learning_rate"):
        pbt.make(made().init.__self__.student, pbt.Config((("lr", 1.0, 2.0),)))

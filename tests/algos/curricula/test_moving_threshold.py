"""The bar by hand: it falls after successes, rises after failures, ignores easier levels; a student under it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import dqn
from jaxrl.algos.curricula import moving_threshold
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.curriculum.teaching import ranges

KEY = jax.random.key(0)
HYPER = moving_threshold.Hyper(start=0.8, shrink=0.5, num_successes=4.0, patience=6.0)


def level_at(params, x):
    return params.replace(length=x[0])


def seen(success, episodes):
    success = jnp.asarray(success, jnp.float32)
    return Outcomes(success, success, success, success, success, jnp.asarray(episodes, jnp.int32))


def test_the_bar_moves_by_hand():
    cur = moving_threshold.make(level_at, hyper=HYPER)
    state = cur.init(KEY, cur.hyper, jaxrl.make("CartPole-v1")[1])
    wanted = jnp.ones(3, bool)
    batch, _ = cur.sample(KEY, state, wanted)
    np.testing.assert_allclose(batch.params.length, [0.8] * 3)
    state = cur.update(KEY, state, batch, seen([1.0, 0.5, 1.0], [1, 4, 0]))  # three of four
    assert (state.x, state.successes, state.episodes) == (np.float32(0.8), 3, 5)
    state = cur.update(KEY, state, batch, seen([1.0, 0.0, 0.0], [1, 0, 0]))
    np.testing.assert_allclose(cur.metrics(state)["threshold_x"], 0.4)
    assert state.successes == 0 and state.episodes == 0
    later = cur.update(KEY, state, batch, seen([1.0, 1.0, 1.0], [3, 3, 3]))  # levels of the old bar
    assert later.successes == 0 and later.episodes == 0
    batch, _ = cur.sample(KEY, state, wanted)
    state = cur.update(KEY, state, batch, seen([0.0, 0.5, 0.0], [2, 2, 1]))
    np.testing.assert_allclose(state.x, 0.4)
    state = cur.update(KEY, state, batch, seen([0.0, 0.0, 0.0], [1, 0, 0]))
    np.testing.assert_allclose(state.x, 0.8)
    state = moving_threshold.moved(state.replace(episodes=jnp.float32(6)))
    np.testing.assert_allclose(state.x, 0.8)  # not above the start


@pytest.mark.slow
@pytest.mark.light
def test_a_student_learns_under_it():
    env, params = jaxrl.make("CircuitDesign-H2-2-v0", max_gates=3, num_gradient_steps=2)
    bar = ranges(params, {"threshold": (1.6e-3, 2.0)})
    student = dqn.make(jaxrl.vectorize(env, 4, batched_params=True), dqn.Config(num_envs=4, num_steps=4, hidden=(8,)))
    cur = moving_threshold.make(bar, hyper=moving_threshold.Hyper(num_successes=4.0))
    state, metrics = jaxrl.train(curriculum.attach(student, cur), KEY, 16 * 6, env_params=params)
    x = np.asarray(metrics["threshold_x"])
    assert x[-1] < 0.5 and np.all(np.diff(x) <= 0)  # any gate is below 2 Ha


def test_errors():
    for change, message in (
        ({"start": 0.0}, r"start=0.0 must be in \(0, 1\]"),
        ({"shrink": 1.0}, r"shrink=1.0 in \(0, 1\)"),
        ({"patience": 0.0}, "patience=0.0 must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            moving_threshold.make(level_at, hyper=HYPER.replace(**change))
    two = ranges(jaxrl.make("CartPole-v1")[1], {"length": (0.1, 1.0), "mass_pole": (0.1, 1.0)})
    with pytest.raises(ValueError, match="varies 2 parameters; it must be 1"):
        moving_threshold.make(two)

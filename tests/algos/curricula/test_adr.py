"""Boundaries that move by hand-computed returns, what is drawn from the box, and a student under the curriculum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import adr
from jaxrl.curriculum.protocol import Outcomes

HYPER = adr.Hyper(widen_at=10.0, narrow_at=2.0, step=0.1, num_returns=3.0)


def level_at(params, x):
    return params.replace(length=params.length * (0.5 + x[0]), mass_pole=params.mass_pole * (0.5 + x[1]))


@pytest.fixture(scope="module")
def cur():
    return adr.make(level_at, adr.Config(dimensions=2), HYPER)


@pytest.fixture(scope="module")
def start(cur):
    return cur.init(jax.random.key(0), cur.hyper, jaxrl.make("CartPole-v1")[1])


def seen(returns, episodes=None):
    returns = jnp.asarray(returns, jnp.float32)
    episodes = jnp.ones(len(returns), jnp.int32) if episodes is None else jnp.asarray(episodes)
    return Outcomes(returns, returns, returns > 0, returns, returns, episodes)


def test_it_begins_at_one_level(cur, start):
    batch, _ = cur.sample(jax.random.key(1), start, jnp.ones(16, bool))
    default = start.params
    np.testing.assert_allclose(batch.params.length, np.full(16, default.length))
    np.testing.assert_allclose(batch.params.mass_pole, np.full(16, default.mass_pole))
    assert adr.entropy(start) == -np.inf


@pytest.mark.slow
@pytest.mark.light
def test_boundaries_move_when_they_have_enough_returns(cur, start):
    batch, _ = cur.sample(jax.random.key(1), start, jnp.ones(8, bool))
    # Low of 0: too few. High of 0: mean 10, out. Low of 1: mean 2, narrows, but not past the start. High of 1: between.
    on = batch._replace(note=jnp.asarray([0, 0, 2, 2, 2, 1, 1, 1]))
    state = cur.update(jax.random.key(2), start, on, seen([99, 99, 5, 10, 15, 2, 2, 2]))
    np.testing.assert_allclose(state.low, [0.5, 0.5])
    np.testing.assert_allclose(state.high, [0.6, 0.5])
    np.testing.assert_array_equal(state.count, [[2, 0], [0, 0]])
    np.testing.assert_array_equal(state.total, [[198, 0], [0, 0]])
    on = batch._replace(note=jnp.asarray([0, 3, 3, 3, 4, 4, 2, 2]))  # 4: of no boundary
    state = cur.update(jax.random.key(2), state, on, seen([0, 3, 3, 3, 99, 99, 1, 1], [0, 1, 1, 1, 1, 1, 1, 0]))
    np.testing.assert_allclose(state.low, [0.5, 0.5])  # unfinished: still two returns
    np.testing.assert_allclose(state.high, [0.6, 0.5])  # 3 is neither good nor bad
    np.testing.assert_array_equal(state.count, [[2, 0], [1, 0]])
    on = batch._replace(note=jnp.asarray([0, 4, 4, 4, 4, 4, 2, 2]))
    state = cur.update(jax.random.key(2), state, on, seen([3, 0, 0, 0, 0, 0, 0, 1]))
    np.testing.assert_allclose(state.low, [0.4, 0.5])
    np.testing.assert_allclose(state.high, [0.5, 0.5])  # narrowed again, by a mean of 2/3


def test_a_box_ends_at_the_unit_box(start):
    at_edge = start.replace(high=jnp.ones(2), count=jnp.full((2, 2), 3.0), total=jnp.full((2, 2), 60.0))
    after = adr.moved(at_edge.replace(low=jnp.zeros(2)))
    np.testing.assert_array_equal(after.low, [0, 0])
    np.testing.assert_array_equal(after.high, [1, 1])
    assert adr.entropy(after) == 0


def test_levels_are_of_the_box_and_on_its_boundaries(cur, start):
    state = start.replace(low=jnp.asarray([0.2, 0.4]), high=jnp.asarray([0.6, 0.9]))
    batch, _ = jax.jit(cur.sample)(jax.random.key(3), state, jnp.ones(4000, bool))
    x = np.stack([batch.params.length / start.params.length, batch.params.mass_pole / start.params.mass_pole], 1) - 0.5
    note = np.asarray(batch.note)
    assert ((x > np.array([0.2, 0.4]) - 1e-5) & (x < np.array([0.6, 0.9]) + 1e-5)).all()
    np.testing.assert_allclose((note < 4).mean(), 0.5, atol=0.03)
    for k, (column, value) in enumerate([(0, 0.2), (1, 0.4), (0, 0.6), (1, 0.9)]):
        np.testing.assert_allclose(x[note == k, column], value, atol=1e-5)
        np.testing.assert_allclose((note == k).mean(), 1 / 8, atol=0.02)
    inside = x[note == 4]
    np.testing.assert_allclose(inside.mean(0), [0.4, 0.65], atol=0.02)
    np.testing.assert_allclose(inside.std(0), [0.4 / 12**0.5, 0.5 / 12**0.5], atol=0.01)


@pytest.mark.slow
@pytest.mark.light
def test_the_box_widens_under_a_student_that_succeeds(cur):
    venv = jaxrl.vectorize(jaxrl.make("CartPole-v1")[0], 8, batched_params=True)
    student = ppo.make(venv, ppo.Config(num_envs=8, num_steps=64, num_epochs=1, num_minibatches=2, hidden=(8,)))
    algo = curriculum.attach(student, cur)
    state = jax.jit(algo.init)(jax.random.key(0))
    update = jax.jit(algo.update)
    for _ in range(12):  # an untrained CartPole lasts about 20 steps, more than 10
        state, _ = update(state)
    assert (state.curriculum.low < 0.5).any() and (state.curriculum.high > 0.5).any()
    assert update._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.parametrize(
    ("hyper", "says"),
    [
        (adr.Hyper(0.0, start=1.5), "start=1.5"),
        (adr.Hyper(0.0, start=(0.5, 0.5, 0.5)), r"start=.* a number or 2"),
        (adr.Hyper(0.0, step=0.0), "step=0.0"),
        (adr.Hyper(0.0, num_returns=0.0), "num_returns=0.0"),
        (adr.Hyper(narrow_at=3.0, widen_at=2.0), "narrow_at=3.0"),
        (adr.Hyper(0.0, boundary_prob=0.0), "boundary_prob=0.0"),
    ],
)
def test_refuses(hyper, says):
    with pytest.raises(ValueError, match=says):
        adr.make(level_at, adr.Config(dimensions=2), hyper)


def test_refuses_a_box_without_dimensions():
    with pytest.raises(ValueError, match="dimensions=0"):
        adr.make(level_at, adr.Config(dimensions=0), HYPER)

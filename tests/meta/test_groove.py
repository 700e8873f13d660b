"""GROOVE's levels: which are replayed, and which leave."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos.meta import groove
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.environment import pytree


@pytree
class Level:
    place: jax.Array
    max_steps: jax.Array = 10


def outcomes(score, over):
    n = len(score)
    zero = jnp.zeros(n)
    return Outcomes(zero, zero, zero, jnp.asarray(score), zero, jnp.asarray(over, jnp.int32))


def counted(key, params):
    """Levels that are told apart."""
    return Level(jax.random.uniform(key))


@pytest.mark.light
def test_the_best_level_that_nobody_is_on_is_next():
    made = groove.make(counted, groove.Config(buffer_size=4))
    state = made.init(jax.random.key(0), groove.Hyper(replay_prob=1.0), Level(0.0))
    every = jnp.ones(3, bool)
    batch, state = made.sample(jax.random.key(1), state, every)
    assert (np.asarray(batch.slot) == -1).all(), "nothing has been scored"
    # Two lives are over; the third goes on, and its score is not heard.
    state = made.update(jax.random.key(2), state, batch, outcomes([1.0, 5.0, 9.0], [1, 1, 0]))
    assert sorted(np.asarray(state.buffer.score)[np.isfinite(state.buffer.score)].tolist()) == [1, 5]
    again, after = made.sample(jax.random.key(3), state, jnp.array([True, False, True]))
    replayed = np.asarray(again.slot)
    assert (replayed >= 0).tolist() == [True, False, True]
    assert state.buffer.score[replayed[0]] == 5 and state.buffer.score[replayed[2]] == 1
    np.testing.assert_array_equal(again.params.place[0], batch.params.place[1])
    # Both are taken now: whoever wants another gets a new one.
    more, _ = made.sample(jax.random.key(4), after, every)
    assert (np.asarray(more.slot) == -1).all()
    # A level that an agent leaves gets its new score, and may be replayed again.
    after = made.update(jax.random.key(5), after, again, outcomes([-2.0, 0.0, 3.0], [1, 0, 1]))
    assert not after.active.any() and after.buffer.score[replayed[0]] == -2
    assert after.buffer.score[replayed[2]] == 3


def test_without_replay_levels_are_new():
    made = groove.make(counted, groove.Config(buffer_size=4))
    state = made.init(jax.random.key(0), groove.Hyper(replay_prob=0.0), Level(0.0))
    batch, state = made.sample(jax.random.key(1), state, jnp.ones(2, bool))
    state = made.update(jax.random.key(2), state, batch, outcomes([1.0, 5.0], [1, 1]))
    assert (np.asarray(made.sample(jax.random.key(3), state, jnp.ones(2, bool))[0].slot) == -1).all()
    with pytest.raises(ValueError, match="buffer_size=0: it must be at least 1"):
        groove.Config(buffer_size=0)

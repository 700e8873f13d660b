"""GROOVE's levels: which are replayed, and which leave."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos.curricula import dr, groove, plr
from jaxrl.algos.meta import lpg, policy_gradients
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.environment import pytree
from jaxrl.meta import AgentConfig
from jaxrl.meta.lifetimes import MetaConfig, MetaHyper, learner
from jaxrl.meta.strategies import StrategyConfig, StrategyHyper, strategy

SMALL = AgentConfig(num_envs=2, num_steps=2)
NETWORK = lpg.RuleConfig(predictions=2, features=2, embedding=(2,))


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


@pytest.mark.slow
@pytest.mark.light
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


@pytest.mark.slow
@pytest.mark.light
def test_without_replay_levels_are_new():
    made = groove.make(counted, groove.Config(buffer_size=4))
    state = made.init(jax.random.key(0), groove.Hyper(replay_prob=0.0), Level(0.0))
    batch, state = made.sample(jax.random.key(1), state, jnp.ones(2, bool))
    state = made.update(jax.random.key(2), state, batch, outcomes([1.0, 5.0], [1, 1]))
    assert (np.asarray(made.sample(jax.random.key(3), state, jnp.ones(2, bool))[0].slot) == -1).all()
    with pytest.raises(ValueError, match="buffer_size=0: it must be at least 1"):
        groove.Config(buffer_size=0)


def one_update(key, level):
    return jnp.int32(1)


PAIRS = StrategyConfig(num_pairs=2)


def made_with(curriculum, how=strategy, config=PAIRS):
    env = jaxrl.make("GridWorld-debug-v0", observation="index")[0]
    numbers = policy_gradients.a2c_rule()
    return how(lpg.rule(NETWORK), env, curriculum(env.generate), config, SMALL, numbers, one_update)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("how", "config", "hyper"),
    [(learner, MetaConfig(num_agents=2), MetaHyper), (strategy, PAIRS, StrategyHyper)],
)
def test_its_settings_are_a_field_of_the_learners(how, config, hyper):
    meta = made_with(lambda generate: groove.make(generate, groove.Config(4)), how, config)
    key, rates = jax.random.key(0), jnp.array([0.0, 0.5, 1.0])
    assert meta.hyper().curriculum.replay_prob == 0.5
    state = jax.eval_shape(lambda: meta.init(key, hyper()))
    assert state.curriculum.hyper.replay_prob.shape == state.hyper.curriculum.replay_prob.shape == ()
    both = jax.vmap(lambda p: meta.init(key, hyper(curriculum=groove.Hyper(replay_prob=p))))
    state = jax.eval_shape(both, rates)
    assert state.curriculum.hyper.replay_prob.shape == state.hyper.curriculum.replay_prob.shape == (3,)
    with pytest.raises(TypeError, match="hyper.curriculum is a jaxrl.algos.curricula.plr.Hyper, not a .*groove.Hyper"):
        meta.init(key, hyper(curriculum=plr.Hyper()))
    # Whoever has none takes none.
    none = made_with(dr.make, how, config)
    assert none.hyper().curriculum is None
    assert jax.eval_shape(lambda: none.init(key, hyper())).hyper.curriculum is None
    for settings in (groove.Hyper(), plr.Hyper()):
        with pytest.raises(TypeError, match="and dr is a curriculum without settings"):
            none.init(key, hyper(curriculum=settings))


@pytest.mark.slow
@pytest.mark.light
def test_levels_of_strategies_are_scored_by_regret_and_replayed_as_the_settings_say():
    meta = made_with(lambda generate: groove.make(generate, groove.Config(8)))
    update = jax.jit(jax.vmap(meta.update))
    state = jax.jit(jax.vmap(meta.init))(jnp.stack([jax.random.key(0)] * 2))
    # Also in the middle of a run: one never replays, the other whenever it can.
    settings = state.hyper.replace(curriculum=groove.Hyper(replay_prob=jnp.array([0.0, 1.0])))
    state, first = update(state.replace(hyper=settings))
    np.testing.assert_array_equal(jnp.isfinite(state.curriculum.buffer.score).sum(1), [2, 2])
    scores = jnp.where(jnp.isfinite(state.curriculum.buffer.score), state.curriculum.buffer.score, 0).sum(1) / 2
    np.testing.assert_allclose(first["regret"], scores, rtol=1e-5, atol=1e-6)
    state, _ = update(state)
    np.testing.assert_array_equal(jnp.isfinite(state.curriculum.buffer.score).sum(1), [4, 2])

"""Learners of single steps as Algorithms: forgetting, several environments, batches, ties."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import pytree, train
from jaxrl.algos.bandits import ucb
from jaxrl.algos.tabular import q_learning
from jaxrl.envs.bandits.stochastic import BernoulliBandit, GaussianBandit
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.math import fast_split
from jaxrl.online import Rule, discrete_sizes, make, num_arms, random_argmax
from jaxrl.testing.probes import ConstantReward

KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True)
class Config:
    num_envs: int = 1


@pytree
class Hyper:
    step_size: jax.Array = 0.5


def counting(env, config=Config(), forget=False):
    """A learner that counts the steps and the actions it has seen and always plays arm 1."""
    learner = Rule(
        init=lambda key, hyper, params: jnp.zeros(2),
        act=lambda weights, hyper, key, obs, greedy: jnp.int32(1),
        learn=lambda weights, hyper, key, x: (weights + jnp.stack([1.0, x.action.astype(float)]), x.reward),
    )
    return make("counting", learner, config, Hyper, env, forget=forget)


@pytest.mark.slow
@pytest.mark.light
def test_an_episode_is_the_problem_where_the_learner_forgets():
    env = BernoulliBandit(arms=3)
    params = env.default_params.replace(max_steps=jnp.int32(4))
    for forget, seen in ((True, 1), (False, 5)):
        state, metrics = train(counting(env, forget=forget), KEY, 5, env_params=params)
        np.testing.assert_array_equal(state.weights, [seen, seen])
        np.testing.assert_array_equal(metrics["episodes"], [0, 0, 0, 1, 0])
    assert metrics["episode_length"][3] == 4
    np.testing.assert_allclose(metrics["episode_return"][3], metrics["reward"][:4].sum())


def test_regret_is_added_up():
    """Arm 1 of three with means 1/4, 2/4, 3/4 loses a quarter a round."""
    _, metrics = train(counting(BernoulliBandit(arms=3)), KEY, 6)
    np.testing.assert_allclose(metrics["regret"], 0.25)
    np.testing.assert_allclose(metrics["cumulative_regret"], 0.25 * np.arange(1, 7))


@pytest.mark.slow
def test_one_learner_learns_from_several_environments_in_turn():
    state, metrics = train(counting(RiverSwim(), Config(num_envs=4)), KEY, 12)
    np.testing.assert_array_equal(state.weights, [12, 12])
    assert int(state.step) == 12 and metrics["loss"].shape == (3,)


def test_the_successor_is_the_one_before_the_reset():
    """In a one-step episode from the right bank the bootstrap must be of where the step led."""
    seen = Rule(
        init=lambda key, hyper, params: (jnp.int32(0), jnp.bool_(False)),
        act=lambda weights, hyper, key, obs, greedy: jnp.int32(1),
        learn=lambda weights, hyper, key, x: ((jnp.maximum(weights[0], x.next_obs), x.truncated), x.reward),
    )
    algo = make("seen", seen, Config(), Hyper, RiverSwim())
    params = RiverSwim().default_params.replace(max_steps=jnp.int32(1), first_advance=jnp.float32(1))
    state, _ = train(algo, KEY, 3, env_params=params)
    assert state.obs[0] == 0 and state.weights[0] == 1 and state.weights[1]


@pytest.mark.slow
@pytest.mark.light
def test_a_thousand_runs_are_one_program():
    """Runs differ, each is what it would be alone, and the mean regret is below that of uniform play."""
    algo = ucb.make(BernoulliBandit(arms=2))
    keys = jax.random.split(KEY, 1000)
    regret = jax.jit(jax.vmap(lambda key: train(algo, key, 100)[1]["cumulative_regret"][-1]))(keys)
    assert len(np.unique(regret)) > 10
    np.testing.assert_allclose(regret[7], train(algo, keys[7], 100)[1]["cumulative_regret"][-1], rtol=1e-5)
    assert regret.mean() < 100 / 6


def test_what_is_deployed_counts_its_own_steps():
    """A learner that acts by the time of the episode does so from the start of each, wherever training stopped."""
    clock = Rule(
        init=lambda key, hyper, params: jnp.int32(0),
        act=lambda weights, hyper, key, obs, greedy: weights % 2,
        learn=lambda weights, hyper, key, x: (weights + 1, x.reward),
        at=lambda weights, t: t,
    )
    algo = make("clock", clock, Config(), Hyper, RiverSwim())
    state, _ = train(algo, KEY, 3)
    carry, obs = algo.initial_carry((2,)), jnp.zeros(2, jnp.int32)
    for t in range(3):
        action, carry = algo.act(algo.policy(state), KEY, obs, carry)
        np.testing.assert_array_equal(action, [t % 2] * 2)


def test_rounds_as_episodes():
    """bsuite's bandit ends after every pull: a player who does not forget learns from all of them."""
    env, params = jaxrl.make("Bandit-bsuite")
    algo = ucb.make(env, ucb.Config(forget=False))
    _, metrics = train(algo, KEY, 2000, env_params=params)
    assert metrics["regret"][-300:].mean() < 0.1


def test_random_argmax():
    x = jnp.asarray([1.0, 3.0, 3.0, -jnp.inf, 3.0])
    got = jax.vmap(lambda key: random_argmax(x, key))(jax.random.split(KEY, 30_000))
    counts = np.bincount(got, minlength=5) / 30_000
    np.testing.assert_allclose(counts, [0, 1 / 3, 1 / 3, 0, 1 / 3], atol=0.01)
    assert random_argmax(jnp.full(4, jnp.inf), KEY) < 4


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_fast_split_gives_stock_keys(impl):
    key = jax.random.key(3, impl=impl)
    got, expected = fast_split(key, 5), jax.random.split(key, 5)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(jax.random.key_data(got), jax.random.key_data(expected))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="num_envs=2: each episode"):
        ucb.make(GaussianBandit(), ucb.Config(num_envs=2))
    with pytest.raises(ValueError, match="Discrete observations and actions, ConstantReward"):
        q_learning.make(ConstantReward())
    with pytest.raises(ValueError, match="Discrete arms"):
        num_arms("ucb", ConstantReward("box"))
    assert discrete_sizes("q_learning", RiverSwim()) == (6, 2)

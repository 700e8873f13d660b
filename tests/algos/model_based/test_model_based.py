"""Learners from a dataset and a model: penalties by hand, rollouts against the environment, what they learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import combo, mopo, morel, ravl
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.envs.classic.pendulum import Pendulum, State
from jaxrl.off_policy import imagination
from jaxrl.off_policy.imagination import Prediction
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
MODULES = {"mopo": mopo, "morel": morel, "combo": combo, "ravl": ravl}
SIZES = dict(num_updates=25, batch_size=32, buffer_size=64, num_rollouts=16, horizon=2, num_critics=2, hidden=(8,))
SMALL = {"combo": dict(num_actions=2)}


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-6)


def test_penalties_by_hand():
    reward, uncertainty = jnp.array([1.0, 2.0]), jnp.array([0.5, 3.0])
    close(mopo.penalised(reward, uncertainty, 2.0), [0.0, -4.0])
    found = morel.halted(reward, jnp.array([True, False]), uncertainty, 1.0, -9.0)
    close(found[0], [1.0, -9.0])
    assert found[1].tolist() == [True, True]
    found = morel.halted(reward, jnp.array([False, False]), uncertainty, jnp.inf, -9.0)
    close(found[0], reward)
    assert found[1].tolist() == [False, False]


# ---- the true dynamics as the model

PENDULUM = Pendulum()
PARAMS = PENDULUM.default_params


def pendulum_state(obs):
    return State(jnp.int32(0), jnp.arctan2(obs[1], obs[0]), obs[2])


TRUE = imagination.of_environment(PENDULUM, PARAMS, pendulum_state)


def pendulum_data(n=20):
    obs = jax.vmap(lambda key: PENDULUM.reset(key, PARAMS)[0])(jax.random.split(KEY, n))
    action = jax.random.uniform(KEY, (n, 1), minval=-2, maxval=2)
    next_obs, reward, terminated, _ = TRUE(KEY, obs, action)
    return Dataset(obs, action, reward, terminated, np.ones(n, bool), next_obs)


@pytest.fixture(scope="module")
def imagined():
    memory = datasets.stored(pendulum_data(), PENDULUM.action_space(PARAMS))
    algo = mopo.make(PENDULUM, mopo.Config(**{**SIZES, "horizon": 3}), replay=memory, model=TRUE)
    state = algo.init(KEY)
    return algo, state, jax.jit(algo.init.__self__.imagine)(KEY, state)


@pytest.mark.slow
@pytest.mark.light
def test_rollouts_of_the_true_dynamics_are_the_environments_steps(imagined):
    _, _, found = imagined
    assert found.reward.shape == (3, 16)
    data = np.asarray(pendulum_data().obs)
    assert all(np.any(np.all(np.isclose(obs, data), -1)) for obs in np.asarray(found.obs[0]))
    np.testing.assert_array_equal(found.obs[1:], found.next_obs[:-1])

    def step(obs, action):
        return PENDULUM.step(KEY, pendulum_state(obs), 2 * action, PARAMS)

    after = jax.vmap(jax.vmap(step))(found.obs, found.action)
    close(found.next_obs, after.obs)
    close(found.reward, after.reward)
    assert not found.terminated.any()


def test_an_update_fills_the_ring_and_mixes(imagined):
    algo, state, _ = imagined
    after, rollout = jax.jit(algo.collect)(state)
    assert rollout is None and int(after.replay.size) == 48 and int(after.step) == 0
    replay, config = algo.init.__self__.replay, algo.config
    batch = replay.sample(KEY, jax.tree.map(jnp.zeros_like, after.replay).replace(size=jnp.int32(48)), 32)
    real = imagination.num_real(config)
    assert real == 2 and batch.obs[:real].any() and not batch.obs[real:].any()


def test_rollouts_go_on_from_the_data_where_the_task_ends():
    def model(key, obs, action):
        return Prediction(obs + 100, jnp.zeros(len(obs)), jnp.arange(len(obs)) % 2 == 0, jnp.ones(len(obs)))

    memory = datasets.stored(pendulum_data(), PENDULUM.action_space(PARAMS))
    algo = mopo.make(PENDULUM, mopo.Config(**SIZES), replay=memory, model=model)
    found = algo.init.__self__.imagine(KEY, algo.init(KEY))
    close(found.reward, -jnp.ones((2, 16)))  # the penalty
    assert np.all(found.obs[1, ::2] < 50) and np.all(found.obs[1, 1::2] > 50)


def test_errors_name_what_is_wrong():
    memory = datasets.stored(pendulum_data(), PENDULUM.action_space(PARAMS))
    with pytest.raises(ValueError, match="a replay without a model"):
        mopo.make(PENDULUM, mopo.Config(**SIZES), replay=memory)
    with pytest.raises(ValueError, match="a model without a replay"):
        ravl.make(PENDULUM, ravl.Config(**SIZES), model=TRUE)
    with pytest.raises(ValueError, match="takes steps in"):
        mopo.make(PENDULUM, mopo.Config(**SIZES), replay=jaxrl.replay.ring.uniform(8), model=TRUE)
    with pytest.raises(ValueError, match="real_ratio=1.5"):
        mopo.Config(real_ratio=1.5)
    with pytest.raises(ValueError, match="buffer_size=10"):
        mopo.Config(buffer_size=10)
    with pytest.raises(ValueError, match="horizon=0"):
        mopo.Config(horizon=0)
    with pytest.raises(ValueError, match="rows of both kinds"):
        combo.Config(real_ratio=1.0)
    with pytest.raises(ValueError, match="num_critics=1"):
        ravl.Config(num_critics=1)


# ---- what they learn

ENV, ENV_PARAMS = ObservationActionReward("box"), ObservationActionReward("box").default_params
SPACE = ENV.action_space(ENV_PARAMS)
HYPER = {"mopo": {}, "morel": {}, "combo": dict(min_q_weight=0.05), "ravl": dict(diversity=0.02)}


def one_step(key, obs, action):
    """Ends at once: reward -(a - 0.3)^2 in units of the box, and ignorance of actions above 0.5."""
    unit = datasets.to_unit(SPACE, action)
    reward = -jnp.sum((unit - 0.3) ** 2, -1)
    return Prediction(obs, reward, jnp.ones(len(obs), bool), jnp.where(unit[:, 0] > 0.5, 1.0, 0.0))


def one_step_memory(n=500):
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (n, *ENV.observation_space(ENV_PARAMS).shape)).astype(np.float32)
    action = SPACE.from_unit(jnp.asarray(rng.uniform(-1, 0.5, (n, *SPACE.shape)), jnp.float32))
    true = np.ones(n, bool)
    return datasets.stored(Dataset(obs, action, one_step(KEY, jnp.asarray(obs), action).reward, true, true, obs), SPACE)


MEMORY = one_step_memory()


def learner(name):
    module = MODULES[name]
    algo = module.make(ENV, module.Config(**{**SIZES, **SMALL.get(name, {})}), replay=MEMORY, model=one_step)
    own = dict(learning_rate=1e-2, tau=0.05, alpha=0.01, alpha_learning_rate=0.0, **HYPER[name])
    return algo, module.Hyper(**own)


@pytest.mark.parametrize("name", [n if n == "mopo" else pytest.param(n, marks=pytest.mark.slow) for n in MODULES])
def test_learns_in_the_model(name):
    algo, hyper = learner(name)
    assert algo.steps_per_update == 25
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 750, hyper, ENV_PARAMS))(KEY)
    assert int(state.step) == 750 and np.all(np.isfinite(metrics["loss"]))
    obs = jax.random.uniform(KEY, (64, *ENV.observation_space(ENV_PARAMS).shape), minval=-1)
    action, _ = algo.act(algo.policy(state), KEY, obs, greedy=True)
    unit = np.asarray(datasets.to_unit(SPACE, action))
    assert abs(unit.mean() - 0.3) < 0.15, unit.mean()


@pytest.mark.slow
def test_no_key_serves_twice():
    algo, hyper = learner("combo")
    assert_no_key_reuse(lambda key: algo.update(algo.init(key, hyper, ENV_PARAMS)), jax.random.key(0))

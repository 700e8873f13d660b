"""Learners that normalise observations by the dataset: as if it, and what they act on, were normalised before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import edac, iql, td3_bc
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset, Hindsight
from jaxrl.nn import normalize
from jaxrl.off_policy import fine_tune
from jaxrl.replay.ring import Replay, uniform

KEY = jax.random.key(0)
ENV, PARAMS = jaxrl.make("Pendulum-v1")
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=5, batch_size=16, hidden=(8,), normalize_obs=True)
MODULES = {"td3_bc": td3_bc, "iql": iql, "edac": edac}


def data(n=200, constant=False):
    """Three numbers of different scales and offsets, the last of which may never change; episodes of ten steps."""
    rng = np.random.default_rng(0)
    obs, next_obs = (rng.normal(size=(2, n, 3)) * [0.01, 3.0, 0.0 if constant else 50.0] + [1.0, 0.0, -7.0]).astype(
        "f4"
    )
    action = rng.uniform(-2, 2, (n, 1)).astype(np.float32)
    return Dataset(obs, action, -np.abs(obs[:, 1]), np.zeros(n, bool), np.arange(n) % 10 == 9, next_obs)


def by_hand(dataset):
    mean, deviation = np.float64(dataset.obs).mean(0), np.float64(dataset.obs).std(0) + 1e-3
    return lambda obs: ((np.float64(obs) - mean) / deviation).astype(np.float32)


# ---- the numbers


def test_statistics_by_hand():
    """1 2 3 has mean 2 and deviation sqrt(2/3); what never changes becomes 0; what is no float stays."""
    obs = {"x": np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]], np.float32), "n": np.arange(3)}
    stats = normalize.of_data(obs)
    out = normalize.normalize(stats, jax.tree.map(jnp.asarray, obs), clip=None)
    np.testing.assert_allclose(out["x"][:, 0], np.array([-1, 0, 1]) / (np.sqrt(2 / 3) + 1e-3), rtol=1e-6)
    np.testing.assert_array_equal(out["x"][:, 1], 0)
    np.testing.assert_array_equal(out["n"], obs["n"])
    near = normalize.normalize(stats, {"x": jnp.array([2.0, 5.5]), "n": jnp.int32(0)}, clip=None)["x"]
    np.testing.assert_allclose(near, [0, 0.5 / 1e-3], rtol=1e-5)
    weighed = normalize.of_data(obs, np.array([1.0, 3.0, 0.0])).moments["x"]
    np.testing.assert_allclose(weighed.mean[0], 1.75)
    np.testing.assert_allclose(weighed.var[0], (np.sqrt(3 / 16) + 1e-3) ** 2, rtol=1e-6)


def test_a_memory_knows_what_it_draws():
    """By the weights of its episodes, with goals of hindsight; a mixed memory the dataset's."""
    dataset = data(20)
    weighed = datasets.stored(dataset, SPACE, np.array([0.0, 2.0]))
    stats = weighed.normalizer(None)
    np.testing.assert_allclose(stats.moments.mean, dataset.obs[10:].mean(0), rtol=1e-5)
    assert datasets.mixed(weighed, uniform(8)).normalizer(None) is stats
    to_goal = datasets.with_goal(dataset, "place")
    hindsight = Hindsight(lambda obs: obs["place"])
    known = datasets.stored(to_goal, SPACE, hindsight=hindsight).normalizer(None).moments
    np.testing.assert_allclose(known["place"].mean, dataset.obs.mean(0), rtol=1e-4)
    np.testing.assert_allclose(known["goal"].mean, dataset.next_obs.mean(0), rtol=1e-4)


def test_a_memory_that_does_not_know_is_refused():
    unknown = Replay(lambda item: (), None, lambda *args: None)
    with pytest.raises(ValueError, match="td3_bc: normalize_obs=True, and this replay does not know the statistics"):
        td3_bc.make(ENV, td3_bc.Config(**SIZES), replay=unknown)
    td3_bc.make(ENV, td3_bc.Config(**{**SIZES, "normalize_obs": False}), replay=unknown)


# ---- the learners


@pytest.mark.parametrize("name", ["td3_bc", *(pytest.param(name, marks=pytest.mark.slow) for name in ("iql", "edac"))])
def test_learns_as_from_data_that_were_normalised_before(name):
    module, dataset = MODULES[name], data()
    known = by_hand(dataset)
    before = dataset.replace(obs=known(dataset.obs), next_obs=known(dataset.next_obs))
    states, actions = [], []
    for normalise, given in ((True, dataset), (False, before)):
        config = module.Config(**{**SIZES, "normalize_obs": normalise})
        algo = module.make(ENV, config, replay=datasets.stored(given, SPACE))
        state, _ = jax.jit(lambda key, algo=algo: jaxrl.train(algo, key, 10, module.Hyper(learning_rate=1e-2), PARAMS))(
            KEY
        )
        states.append(state)
        actions.append(algo.act(algo.policy(state), KEY, jnp.asarray(given.obs), greedy=True)[0])
    assert states[1].normalizer is None and np.ptp(actions[0]) > 0
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-3), states[0].weights, states[1].weights)
    np.testing.assert_allclose(actions[0], actions[1], atol=2e-3)


def test_goes_on_with_the_numbers_of_the_dataset():
    """It acts by them and keeps what it sees as it is; without a dataset it has none until then."""
    dataset = data(constant=True)
    sizes = dict(SIZES, num_envs=2, num_updates=1, buffer_size=8)
    trained = td3_bc.make(ENV, td3_bc.Config(**sizes), replay=datasets.stored(dataset, SPACE)).init(KEY, None, PARAMS)
    online = td3_bc.make(ENV, td3_bc.Config(**sizes))
    hyper = td3_bc.Hyper(exploration_noise=0.0)

    @jax.jit
    def run(trained):
        state = fine_tune.start(online, trained, KEY, hyper, PARAMS)
        return state, *online.collect(state), online.update(state)

    begun, _, rollout, (after, metrics) = run(trained)
    jax.tree.map(np.testing.assert_array_equal, begun.normalizer, trained.normalizer)
    jax.tree.map(np.testing.assert_array_equal, after.normalizer, trained.normalizer)
    action = online.act(online.policy(trained), KEY, begun.obs, greedy=True)[0]
    np.testing.assert_allclose(2 * rollout.transition.action[0], action, rtol=1e-5)
    np.testing.assert_array_equal(after.replay.items.obs[:2], begun.obs)
    assert int(metrics["gradient_steps"]) == 1 and np.isfinite(metrics["loss"])
    assert int(online.init(KEY, None, PARAMS).normalizer.count) == 0

    raw = td3_bc.make(ENV, td3_bc.Config(**{**sizes, "normalize_obs": False}))
    with pytest.raises(ValueError, match="td3_bc has normalize_obs=False; the trained state needs normalize_obs=True"):
        jax.eval_shape(lambda trained: fine_tune.start(raw, trained, KEY), trained)

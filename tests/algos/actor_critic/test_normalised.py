"""Learners that normalise observations by the dataset: as if it, and what they act on, were normalised before."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.algos import td3_bc
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.data.hindsight import Hindsight
from jaxrl.nn import normalize
from jaxrl.off_policy import fine_tune
from jaxrl.replay.ring import Replay, uniform

KEY = jax.random.key(0)
ENV, PARAMS = jaxrl.make("Pendulum-v1")
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=5, batch_size=16, hidden=(8,), normalize_obs=True)
FAST = ("td3_bc", "fb", "mopo")  # the shell, one that acts by itself, one that imagines
NORMALISE = {
    name: module
    for name in registry.list_algos()
    if hasattr((module := registry.get_algo(name)).Config, "normalize_obs")
    and "replay" in inspect.signature(module.make).parameters
}
"""Learners from datasets that have the setting."""


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


def frozen(key, obs, action):
    """A model in which nothing moves, whatever the unit of observations is."""
    n = len(action)
    return obs, jnp.zeros(n), jnp.zeros(n, bool), jnp.zeros(n)


def by_name(name):
    """`(env, dataset)` that the learner takes: with actions 0 and 1 for the one that is Discrete."""
    if name != "fb":
        return ENV, data()
    given = data()
    obs, next_obs = (np.concatenate([x, x[:, :1] ** 2], 1) for x in (given.obs, given.next_obs))
    return jaxrl.make("CartPole-v1")[0], given.replace(
        obs=obs, next_obs=next_obs, action=(given.action[:, 0] > 0).astype(np.int32)
    )


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NORMALISE]
)
def test_learns_as_from_data_that_were_normalised_before(name):
    """And what is deployed acts on observations as they are: weights, and actions or their values."""
    module, (env, dataset) = NORMALISE[name], by_name(name)
    known, params = by_hand(dataset), env.default_params
    before = dataset.replace(obs=known(dataset.obs), next_obs=known(dataset.next_obs))
    states, actions = [], []
    for normalise, given in ((True, dataset), (False, before)):
        settings = {**SIZES, "normalize_obs": normalise}
        settings |= {"num_labelled": 64} if name == "fb" else {}
        config = module.Config(**settings)
        more = {"model": frozen} if "model" in inspect.signature(module.make).parameters else {}
        algo = module.make(env, config, replay=datasets.stored(given, env.action_space(params)), **more)
        run = jax.jit(lambda key, algo=algo: jaxrl.train(algo, key, 10, module.Hyper(learning_rate=1e-3), params)[0])
        states.append(run(KEY))
        policy, obs = algo.policy(states[-1]), jnp.asarray(given.obs)
        actions.append(algo.act(policy, KEY, obs, greedy=True)[0])
        if name == "fb":
            np.testing.assert_allclose(jnp.linalg.norm(policy.task), np.sqrt(len(policy.task)), rtol=1e-5)
    assert states[1].normalizer is None and np.ptp(actions[0]) > 0
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-3), states[0].weights, states[1].weights)
    wrong = np.abs(np.float64(actions[0]) - actions[1])
    assert np.mean(wrong > 2e-3) <= (0.02 if name == "fb" else 0)  # two actions may be worth the same


@pytest.mark.slow
@pytest.mark.light
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

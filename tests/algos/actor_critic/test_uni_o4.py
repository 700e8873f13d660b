"""Uni-O4: losses and scores by hand, which policy acts, what it makes of data with a known best, going on online."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo, uni_o4
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.nn.distributions import Normal
from jaxrl.nn.nets import critic_values
from jaxrl.off_policy.imagination import Prediction
from jaxrl.replay.ring import uniform
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
ENV, PARAMS = ObservationActionReward("box"), ObservationActionReward("box").default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=25, batch_size=64, num_policies=2, horizon=2, num_rollouts=32, hidden=(16,))
HYPER = uni_o4.Hyper(learning_rate=1e-2, tau=0.05, cloning_steps=500, ppo_learning_rate=1e-2, anneal_steps=500)


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-6)


# ---- by hand


def test_the_likeliest_of_the_others():
    log_prob = jnp.log(jnp.array([[0.5, 0.1], [0.2, 0.3], [0.4, 0.6]]))
    assert uni_o4.likeliest_other(log_prob).tolist() == [[2, 2], [0, 2], [0, 1]]


@pytest.mark.slow
@pytest.mark.light
def test_cloning_loss_by_hand():
    """Two policies with deviation 1, means 0 and 2, and an action at 1/2."""
    action, log_std = jnp.full((1, 1), 0.5), jnp.zeros((2, 1, 1))
    half_log = 0.5 * np.log(2 * np.pi)

    def loss(means):
        return uni_o4.cloning_loss(Normal(means.reshape(2, 1, 1), log_std), action, 0.1)[0]

    means = jnp.array([0.0, 2.0])
    close(loss(means), (0.5**2 + 1.5**2) / 2 + 2 * half_log - 2 * 0.1 * 2.0)
    # Each mean goes to the action and away from the other, which is held fixed.
    close(jax.grad(loss)(means), [-0.5 - 0.1 * (0 - 2), 1.5 - 0.1 * (2 - 0)])


def test_one_policy_is_cloned_alone():
    alone = Normal(jnp.array([[[1.0], [3.0]]]), jnp.zeros((1, 2, 1)))
    loss, report = uni_o4.cloning_loss(alone, jnp.array([[0.0], [1.0]]), 5.0)
    close(loss, (0.5 + 2.0) / 2 + 0.5 * np.log(2 * np.pi))
    assert report["disagreement"] == 0


def test_a_score_is_of_steps_before_the_end():
    q, alive = jnp.array([[1.0, 2.0], [3.0, 50.0]]), jnp.array([[True, True], [True, False]])
    close(uni_o4.mean_value(q, alive), 2.0)


# ---- on a dataset


def one_step(key, obs, action):
    """Ends at once: reward -(a - 0.3)^2 in units of the box."""
    reward = -jnp.sum((datasets.to_unit(SPACE, action) - 0.3) ** 2, -1)
    return Prediction(obs, reward, jnp.ones(len(obs), bool), jnp.zeros(len(obs)))


def observations(n):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, *ENV.observation_space(PARAMS).shape)).astype(np.float32)


def one_step_memory(n=500):
    """Uniform actions below the middle."""
    obs, rng = observations(n), np.random.default_rng(1)
    action = SPACE.from_unit(jnp.asarray(rng.uniform(-1, 0.5, (n, *SPACE.shape)), jnp.float32))
    true = np.ones(n, bool)
    return datasets.stored(Dataset(obs, action, one_step(KEY, jnp.asarray(obs), action).reward, true, true, obs), SPACE)


MEMORY = one_step_memory()
CONFIG = uni_o4.Config(**SIZES)
ALGO = uni_o4.make(ENV, CONFIG, replay=MEMORY, model=one_step)
update = jax.jit(ALGO.update)


@pytest.fixture(scope="module")
def trained():
    """After cloning, and at the end: `(state, metrics)` of each."""

    def updated(state):
        found = []
        for _ in range(20):
            state, metrics = update(state)
            found.append(metrics)
        return state, jax.tree.map(lambda *x: np.stack(x), *found)

    cloned, first = updated(ALGO.init(KEY, HYPER, PARAMS))
    return (cloned, first), updated(cloned)


def mean_action(state):
    action, _ = ALGO.act(ALGO.policy(state), KEY, jnp.asarray(observations(64)), greedy=True)
    return float(datasets.to_unit(SPACE, action).mean())


@pytest.mark.slow
@pytest.mark.light
def test_clones_and_then_improves(trained):
    """Cloning finds the mean of the data's actions, -0.25; PPO by the fixed advantage goes on to the best, 0.3."""
    (cloned, first), (state, last) = trained
    assert int(cloned.step) == 500 and int(state.step) == 1000
    assert abs(mean_action(cloned) + 0.25) < 0.12 and abs(mean_action(state) - 0.3) < 0.15
    for name in ("critic_loss", "disagreement"):
        assert np.isfinite(first[name]).all() and np.isnan(last[name]).all()
    assert np.isnan(first["approx_kl"]).all() and np.isfinite(last["approx_kl"]).all()
    assert np.isnan(first["score"][:-1]).all() and np.isfinite(first["score"][-1])
    assert np.all(np.diff(last["score"]) >= 0) and last["score"][-1] > first["score"][-1]
    for name in ("critic", "value"):
        jax.tree.map(np.testing.assert_array_equal, cloned.weights[name], state.weights[name])


@pytest.mark.slow
@pytest.mark.light
def test_a_score_is_the_critics_word_on_what_the_policy_does(trained):
    """In a model that ends at once only the first step counts; the data has few observations."""
    _, (state, _) = trained
    learner = ALGO.init.__self__
    found = jax.jit(learner.scores)(KEY, state)
    obs = MEMORY.sample(jax.random.split(KEY)[0], (), CONFIG.num_rollouts).obs
    for i in range(2):
        actor = jax.tree.map(lambda x, i=i: x[i], state.weights["actor"])
        action = learner.actor.mode(actor, obs)
        close(found[i], critic_values(learner.rule.critic, state.weights["critic"], obs, action).min(0).mean())


@pytest.mark.slow
@pytest.mark.light
def test_only_what_is_judged_better_takes_a_references_place(trained):
    (cloned, _), _ = trained
    high = cloned.replace(score=jnp.array([1e6, -1e6]))
    state, metrics = update(high)
    assert metrics["replaced"] == 0.5 and state.score[0] == 1e6 and state.score[1] > -1e6

    def of(tree, i):
        return jax.tree.map(lambda x: x[i], tree)

    jax.tree.map(np.testing.assert_array_equal, of(state.reference, 0), of(cloned.reference, 0))
    jax.tree.map(np.testing.assert_array_equal, of(state.reference, 1), of(state.weights["actor"], 1))
    jax.tree.map(np.testing.assert_array_equal, ALGO.policy(state).weights, of(cloned.reference, 0))
    with pytest.raises(AssertionError):
        jax.tree.map(np.testing.assert_array_equal, of(state.weights["actor"], 0), of(cloned.reference, 0))


@pytest.mark.slow
@pytest.mark.light
def test_ppo_goes_on_from_the_best_policy_and_its_value(trained):
    _, (state, _) = trained
    config = ppo.Config(num_envs=2, num_steps=4, num_minibatches=2)
    online = ppo.make(ENV, config, network=uni_o4.network_of(ENV, CONFIG))
    first = uni_o4.start(online, state, KEY, ppo.Hyper(learning_rate=1e-3), PARAMS)
    obs = jnp.asarray(observations(5))
    offline, _ = ALGO.act(ALGO.policy(state), KEY, obs, greedy=True)
    action, _ = online.act(online.policy(first), KEY, obs, greedy=True)
    close(action, offline)
    value = uni_o4.network_of(ENV, CONFIG).apply(first.weights, obs, method="critic")
    close(value, ALGO.init.__self__.rule.value.apply(state.weights["value"], obs))
    with pytest.raises(ValueError, match="see uni_o4.network_of"):
        uni_o4.start(ppo.make(ENV), state, KEY)
    with pytest.raises(ValueError, match="PPO must not normalise"):
        uni_o4.start(ppo.make(ENV, ppo.Config(normalize_obs=True)), state, KEY)


@pytest.mark.slow
@pytest.mark.light
def test_a_model_that_overflows_says_nothing():
    """Its word is -inf, below any other's, so that clones act on."""

    def overflowing(key, obs, action):
        return one_step(key, obs, action)._replace(next_obs=obs + jnp.inf, terminated=jnp.zeros(len(obs), bool))

    algo = uni_o4.make(ENV, CONFIG, replay=MEMORY, model=overflowing)
    state = algo.init(KEY, HYPER.replace(cloning_steps=0), PARAMS)
    assert jax.jit(algo.update)(state)[0].score.tolist() == [-np.inf] * 2


@pytest.mark.slow
@pytest.mark.light
def test_seeds_together_run_one_phase():
    """A batched step count must not make both sides of the phases' conditions run."""
    states = jax.vmap(lambda key: ALGO.init(key, HYPER, PARAMS))(jax.random.split(KEY, 2))
    program = jax.make_jaxpr(jax.vmap(ALGO.update))(states)
    assert str(program).count(" = cond[") >= 3


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="learns from a dataset"):
        uni_o4.make(ENV, CONFIG, model=one_step)
    with pytest.raises(ValueError, match="learns from a dataset"):
        uni_o4.make(ENV, CONFIG, replay=uniform(8), model=one_step)
    with pytest.raises(ValueError, match="judges its policies in a model"):
        uni_o4.make(ENV, CONFIG, replay=MEMORY)
    with pytest.raises(ValueError, match="num_policies=0"):
        uni_o4.Config(num_policies=0)


@pytest.mark.slow
def test_no_key_serves_twice():
    assert_no_key_reuse(lambda key: ALGO.update(ALGO.init(key, HYPER, PARAMS)), jax.random.key(0))


@pytest.mark.slow
def test_seeds_are_an_axis():
    keys = jax.random.split(KEY, 2)
    run = jax.jit(jax.vmap(lambda key: jaxrl.train(ALGO, key, 50, HYPER.replace(cloning_steps=25), PARAMS)[0].score))
    assert np.isfinite(run(keys)).all()

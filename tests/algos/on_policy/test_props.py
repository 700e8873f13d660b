"""PROPS: objective and sampling error by hand, what the behaviour policy does, and PPO as the special case."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import ppo, props
from jaxrl.environment import strongly_typed
from jaxrl.nn.distributions import of_space
from jaxrl.nn.networks import ActorCritic
from jaxrl.spaces import Discrete
from jaxrl.testing.assertions import assert_no_key_reuse


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- objective and metric


def test_objective_by_hand():
    ratio = jnp.array([1.0, 0.8, 0.5, 1.2, 2.0])
    target = jnp.array([-1.0, -2.0, -0.5, -3.0, -1.5])
    log_prob = target + jnp.log(ratio)
    # Below 1 - 0.3 the clipped ratio is the larger one; above 1 + 0.3 it is the smaller one and does not count.
    close(props.sampling_loss(log_prob, target, 0.3), (1 + 0.8 + 0.7 + 1.2 + 2) / 5)
    mask = jnp.array([False, True, True, False, False])
    close(props.sampling_loss(log_prob, target, 0.3, mask), (0.8 + 0.7) / 2)
    slope = jax.grad(props.sampling_loss)(log_prob, target, 0.3)
    close(slope, np.array([1, 0.8, 0, 1.2, 2]) / 5, rtol=1e-5)
    # On policy the gradient is that of the mean log-probability, robust on-policy sampling's.
    close(jax.grad(props.sampling_loss)(target, target, 0.3), np.full(5, 1 / 5))
    assert props.sampling_loss(log_prob, target, 0.3, jnp.zeros(5, bool)) == 0


OBS = jnp.array([0, 0, 0, 0, 1, 1, 2])
ACTION = jnp.array([0, 0, 0, 1, 1, 1, 0])
MASK = jnp.array([1, 1, 1, 1, 1, 1, 0], bool)
# State 0: 3/4 and 1/4 against 1/2, 1/2; state 1: 0 and 1 against 1/4, 3/4; state 2 is not in the buffer.
POLICY = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]]))
ERROR = (3 * np.log(1.5) + np.log(0.5) + 2 * np.log(4 / 3)) / 6


def test_sampling_error_by_hand():
    close(props.counted_sampling_error(POLICY, OBS, ACTION, MASK), ERROR)
    exact = jnp.log(jnp.array([[0.75, 0.25], [1e-9, 1.0], [0.5, 0.5]]))
    close(props.counted_sampling_error(exact, OBS, ACTION, MASK), 0, atol=1e-6)
    assert props.counted_sampling_error(POLICY, OBS, ACTION, jnp.zeros(7, bool)) == 0


def test_the_fitted_sampling_error_of_a_table_is_the_counted_one():
    def log_likelihood(flat):
        log_prob = jax.nn.log_softmax(flat.reshape(3, 2))[OBS, ACTION]
        return jnp.sum(jnp.where(MASK, log_prob, 0)) / 6

    error = jax.jit(lambda flat: props.fitted_sampling_error(log_likelihood, flat, 500, 0.05))(POLICY.ravel())
    close(error, ERROR, rtol=1e-2)


def behaviour(**hyper):
    """`(slope, logits)`: of the behaviour policy's loss at the policy, for a buffer with too many actions 0."""
    network = ActorCritic(Discrete(1), 3, False, (), "tanh")
    weights = network.init(jax.random.key(0), jnp.int32(0))
    obs = jnp.zeros(8, jnp.int32)
    action = jnp.array([0, 0, 0, 0, 0, 1, 1, 2])
    target = of_space(Discrete(3), network.apply(weights, obs, method="actor"))
    batch = props.BehaviourBatch(obs, action, target, jnp.arange(8) < 7)  # the buffer does not have action 2
    hyper = strongly_typed(props.Hyper(**hyper))

    def value(weights):
        return props.behaviour_loss(weights, batch, hyper, network, Discrete(1), Discrete(3))[0]

    moved = jax.tree.map(lambda x: x + 0.5 * (jnp.arange(x.shape[-1]) == 2), weights)
    return jax.grad(value)(weights)["params"], value(moved), batch.target.logits


@pytest.mark.slow
@pytest.mark.light
def test_the_behaviour_policy_moves_away_from_what_there_is_too_much_of():
    slope, value, logits = behaviour()
    actor = slope["actor_mlp"]["Dense_0"]["bias"]
    share = np.array([5, 2, 0]) / 7
    p = jax.nn.softmax(logits[0])
    close(actor, share - p, rtol=1e-4)
    assert actor[0] > 0 > actor[2], "descending makes action 0 rarer, and action 2 more frequent"
    assert not np.any(slope["critic_mlp"]["Dense_0"]["bias"])


@pytest.mark.slow
def test_the_regulariser_is_the_kl_divergence_from_the_policy():
    _, plain, logits = behaviour()
    _, regular, _ = behaviour(props_kl_coef=0.5)
    p = jax.nn.softmax(logits[0])
    shift = jnp.array([0, 0, 1.0])  # of kernel and bias together
    q = jax.nn.softmax(logits[0] + shift)
    close(regular - plain, 0.5 * jnp.sum(p * jnp.log(p / q)), rtol=1e-4)


# ---- the algorithm

SMALL = props.Config(
    num_envs=2,
    num_steps=8,
    buffer_batches=2,
    num_epochs=2,
    num_minibatches=2,
    props_num_steps=4,
    props_num_epochs=2,
    props_num_minibatches=2,
    hidden=(8,),
)
HYPER = props.Hyper(props_learning_rate=1e-2)


@cache
def chain(**changes):
    """`(algo, env params, states after 0, 1, 2 and 3 updates, metrics of each)`."""
    env, params = make("TwoSidedChain-v0", num_states=5)
    algo = props.make(env, dataclasses.replace(SMALL, **changes))
    update = jax.jit(algo.update)
    states, metrics = [jax.jit(algo.init)(jax.random.key(0), HYPER, params)], []
    for _ in range(3):
        state, report = update(states[-1])
        states.append(state)
        metrics.append(report)
    return algo, params, states, metrics


@pytest.mark.slow
@pytest.mark.light
def test_without_a_behaviour_policy_it_is_ppo():
    """On one batch, bit for bit in what is random; on two the first update, masked, is PPO's on one."""
    env, params = make("TwoSidedChain-v0", num_states=5)
    student = ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,), stop_on_kl=True)
    algo = ppo.make(env, student)
    hyper = ppo.Hyper(learning_rate=1e-3, target_kl=0.03)
    update = jax.jit(algo.update)
    state = jax.jit(algo.init)(jax.random.key(0), hyper, params)
    one = {"props_num_epochs": 0, "num_epochs": 1, "num_minibatches": 1}
    _, _, single, single_metrics = chain(**one, buffer_batches=1)
    _, _, double, _ = chain(**one, buffer_batches=2)
    for i in range(3):
        state, metrics = update(state)
        jax.tree.map(lambda a, b: close(a, b, rtol=1e-5, atol=1e-6), state.weights, single[i + 1].weights)
        for name in ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm", "episode_return"):
            close(metrics[name], single_metrics[i][name], rtol=1e-5, atol=1e-6)
        if i == 0:
            jax.tree.map(lambda a, b: close(a, b, rtol=1e-5, atol=1e-6), state.weights, double[1].weights)
    np.testing.assert_array_equal(state.obs, single[3].obs)


@pytest.mark.slow
@pytest.mark.light
def test_the_buffer_has_the_last_batches_in_order():
    _, _, states, metrics = chain()
    assert [int(s.num_batches) for s in states] == [0, 1, 2, 2]
    for field in ("obs", "action", "reward", "next_obs"):
        rows = [getattr(s.buffer, field) for s in states]
        assert rows[0].shape == (16, 2) and not np.any(rows[0])
        for old, new in zip(rows[:-1], rows[1:], strict=True):
            np.testing.assert_array_equal(new[:8], old[8:])
    # One row's successor is the next one's observation, also from one batch to the next, unless an episode ended.
    last = states[3].buffer
    going = ~np.asarray(last.terminated | last.truncated)[:-1]
    np.testing.assert_array_equal(np.asarray(last.next_obs)[:-1][going], np.asarray(last.obs)[1:][going])
    assert all(np.isfinite(m["sampling_error"]) and m["sampling_error"] > 0 for m in metrics)


@pytest.mark.slow
def test_the_metric_is_that_of_the_buffer_and_the_policy_that_drew_it():
    algo, params, states, metrics = chain()
    network = ActorCritic(Discrete(5), 2, False, SMALL.hidden, SMALL.activation)
    for i, rows in ((0, 8), (2, 16)):
        log_prob = jax.nn.log_softmax(network.apply(states[i].weights, jnp.arange(5), method="actor"))
        seen = jax.tree.map(lambda x, rows=rows: x[-rows:].ravel(), states[i + 1].buffer)
        error = props.counted_sampling_error(log_prob, seen.obs, seen.action, jnp.ones(rows * 2, bool))
        close(metrics[i]["sampling_error"], error, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_the_behaviour_policy_starts_at_the_policy_and_stops_at_its_limit():
    algo, _, states, _ = chain()
    collect = jax.jit(algo.collect)
    _, first = collect(states[0])
    # Nothing is in the buffer yet: no gradient step, so the policy itself acts.
    assert first.behaviour_steps[0] == 0 and first.behaviour_kl[0] == 0
    assert np.all(np.asarray(first.behaviour_steps)[1:] > 0)
    _, full = collect(states[3])
    np.testing.assert_array_equal(full.behaviour_steps, 4)
    tight = states[3].replace(hyper=states[3].hyper.replace(props_target_kl=jnp.float32(1e-7)))
    state, short = collect(tight)
    np.testing.assert_array_equal(short.behaviour_steps, 1)
    assert np.all(np.asarray(short.behaviour_kl) > 1e-7)
    jax.tree.map(np.testing.assert_array_equal, state.weights, tight.weights)
    assert collect._cache_size() == 1


@pytest.mark.slow
@pytest.mark.light
def test_an_update_is_differentiable():
    """Traced only: a loop of unknown length in the way would be refused there."""
    algo, _, states, _ = chain()

    def loss(rates):
        hyper = states[2].hyper.replace(learning_rate=rates[0], props_learning_rate=rates[1])
        return algo.update(algo.update(states[2].replace(hyper=hyper))[0])[1]["loss"]

    assert jax.eval_shape(jax.grad(loss), jnp.ones(2)).shape == (2,)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    algo, _, states, _ = chain()
    metrics = assert_no_key_reuse(lambda key: algo.update(states[2].replace(key=key))[1], jax.random.key(5))
    assert np.isfinite(metrics["loss"])


@pytest.mark.slow
def test_a_fixed_policy_is_sampled_better_than_by_sampling_from_it():
    env, params = make("BernoulliBandit-v0", arms=5)
    config = dict(num_envs=1, num_steps=64, num_epochs=1, num_minibatches=1, hidden=(8,), buffer_batches=2)

    def error(epochs):
        algo = props.make(
            env, props.Config(**config, props_num_steps=8, props_num_epochs=epochs, props_num_minibatches=1)
        )
        hyper = props.Hyper(learning_rate=0.0, props_learning_rate=1e-2)

        def run(key):
            state = algo.init(key, hyper, params)
            return jax.lax.scan(lambda s, _: algo.update(s), state, length=2)[1]["sampling_error"][-1]

        return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 16)))

    assert np.mean(error(16)) < 0.5 * np.mean(error(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(props_num_steps=5), "props_num_steps=5 does not divide num_steps=512"),
        (dict(props_num_minibatches=3), "props_num_minibatches=3 does not divide .* = 4096; 1 does"),
        (dict(num_minibatches=24), "num_minibatches=24 does not divide .* = 4096; 8 does"),
        (dict(buffer_batches=0), "buffer_batches=0: it must be at least 1"),
        (dict(props_num_epochs=-1), "props_num_epochs=-1: it must be at least 0"),
    ],
)
def test_unusable_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        props.Config(**settings)

"""What the streaming algorithms share: the bounded step, the initialiser, the normalisers, the protocol."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, streaming, vectorize
from jaxrl.algos.streaming import stream_q, stream_td
from jaxrl.nn import normalize
from jaxrl.nn.losses import td_target
from jaxrl.nn.normalize import deviation, seen, standardized
from jaxrl.nn.streaming import StreamMLP, layer_norm, obgd, sparse
from jaxrl.testing.probes import Privileged


def tree(a, b):
    return {"a": jnp.array(a), "b": jnp.array(b)}


def assert_tree(found, a, b):
    np.testing.assert_allclose(found["a"], a, rtol=1e-6)
    np.testing.assert_allclose(found["b"], b, rtol=1e-6)


def test_obgd_takes_the_whole_step_where_that_is_short():
    # |e|_1 = 0.75; M = 0.1 * 2 * 1 * 0.75 = 0.15 <= 1
    args = tree([1.0, 2.0], 3.0), tree([0.5, 0.0], 0.25)
    weights, step_size = obgd(*args, jnp.float32(-0.5), 0.1, 2.0)
    np.testing.assert_allclose(step_size, 0.1)
    assert_tree(weights, [1 - 0.025, 2.0], 3 - 0.0125)


def test_obgd_bounds_the_step():
    # M = 1 * 2 * max(|4|, 1) * 0.75 = 6, so the step is delta / 6 = 2/3 along the trace
    args = tree([1.0, 2.0], 3.0), tree([0.5, 0.0], 0.25)
    weights, step_size = obgd(*args, jnp.float32(4.0), 1.0, 2.0)
    np.testing.assert_allclose(step_size, 1 / 6, rtol=1e-6)
    assert_tree(weights, [1 + 1 / 3, 2.0], 3 + 1 / 6)
    # an error below 1 counts as 1: M = 1 * 2 * 1 * 0.75 = 1.5
    weights, step_size = obgd(*args, jnp.float32(-0.5), 1.0, 2.0)
    np.testing.assert_allclose(step_size, 1 / 1.5, rtol=1e-6)
    assert_tree(weights, [1 - 1 / 6, 2.0], 3 - 1 / 12)
    _, step_size = obgd(*args, jnp.float32(4.0), 1.0, 2.0, bounded=False)
    assert step_size == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_bounded_step_does_not_overshoot_a_linear_value(seed):
    """|e|_1 >= x . e where |x| <= 1, so kappa >= 1 keeps the sign of the error: shown for any trace and error."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-2, 2)
    x, w, e = (jnp.asarray(rng.uniform(-1, 1, 8) * s, jnp.float32) for s in (1, scale, scale))
    target = jnp.float32(rng.normal() * scale)
    delta = target - w @ x
    new, _ = obgd(w, 0.8 * e + x, delta, 1.0, 1.0)
    after = target - new @ x
    assert after * delta >= -1e-4 * abs(delta) * scale
    free, _ = obgd(w, 0.8 * e + 8 * x, delta, 10.0, 1.0, bounded=False)
    assert abs(target - free @ x) > abs(after)


def test_a_td_target_bootstraps_unless_terminated():
    for terminated, expected in ((False, 10.0), (True, 1.0)):
        target = td_target(jnp.float32(1.0), jnp.bool_(terminated), jnp.float32(10.0), 0.9)
        np.testing.assert_allclose(target, expected)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("fan_in, zeros", [(1, 1), (4, 4), (10, 9), (32, 29), (45, 41)])
def test_sparse_weights(fan_in, zeros):
    kernel = np.asarray(sparse(0.9)(jax.random.key(0), (fan_in, 300)))
    np.testing.assert_array_equal((kernel == 0).sum(0), zeros)
    assert zeros == math.ceil(0.9 * fan_in)
    if zeros < fan_in:
        bound = 1 / math.sqrt(fan_in)
        assert np.abs(kernel).max() <= bound
        assert kernel.max() > 0.95 * bound and kernel.min() < -0.95 * bound, "uniform up to both bounds"
        # every input is kept about as often as any other
        kept = (kernel != 0).mean(1)
        np.testing.assert_allclose(kept, 1 - zeros / fan_in, atol=0.1)
    assert np.all(np.asarray(sparse(0.0)(jax.random.key(0), (fan_in, 3))) != 0)


@pytest.mark.slow
def test_layer_norm_has_no_gain_or_bias():
    x = jnp.array([[1.0, 2.0, 3.0, 6.0], [5.0, 5.0, 5.0, 5.0]])
    expected = (np.array([1.0, 2.0, 3.0, 6.0]) - 3) / np.sqrt(3.5 + 1e-5)
    np.testing.assert_allclose(layer_norm(x), [expected, np.zeros(4)], rtol=1e-6)
    weights = StreamMLP((8, 8), 2).init(jax.random.key(0), jnp.zeros(3))["params"]
    assert sorted(weights) == ["Dense_0", "Dense_1", "Dense_2"]
    assert all(np.all(np.asarray(layer["bias"]) == 0) for layer in weights.values())


def test_the_network_by_hand():
    net = StreamMLP((2,), 1)
    weights = {
        "Dense_0": {"kernel": jnp.array([[1.0, 0.0], [0.0, 2.0]]), "bias": jnp.array([0.0, 1.0])},
        "Dense_1": {"kernel": jnp.array([[3.0], [100.0]]), "bias": jnp.array([0.5])},
    }
    # (1, -2) -> (1, -3) -> normalised (1, -1) -> leaky (1, -0.01) -> 3 - 1 + 0.5
    np.testing.assert_allclose(net.apply({"params": weights}, jnp.array([1.0, -2.0])), [2.5], rtol=1e-4)
    raw = StreamMLP((2,), 1, layer_norm=False)
    # (1, -3) -> leaky (1, -0.03) -> 3 - 3 + 0.5
    np.testing.assert_allclose(raw.apply({"params": weights}, jnp.array([1.0, -2.0])), [0.5], rtol=1e-4)


def test_statistics_are_numpys():
    data = np.random.default_rng(0).normal(50, [1.0, 20.0], (30, 2)).astype(np.float32)
    stats = normalize.init(jnp.zeros(2))
    np.testing.assert_array_equal(deviation(stats), 1)
    for i, x in enumerate(data):
        stats = seen(stats, jnp.asarray(x))
        std = np.sqrt(data[: i + 1].var(0, ddof=1) + 1e-8) if i else np.ones(2)
        np.testing.assert_allclose(deviation(stats), std, rtol=1e-5)
        z = (x - data[: i + 1].mean(0)) / std
        np.testing.assert_allclose(standardized(stats, jnp.asarray(x)), z, rtol=1e-4, atol=1e-5)
    far = standardized(stats, jnp.full(2, 1e6))
    assert np.all(np.asarray(far) > 1000), "they are not clipped"
    assert seen(None, jnp.zeros(2)) is None
    np.testing.assert_array_equal(standardized(None, jnp.ones(2)), 1)


@pytest.mark.slow
def test_the_stream_normalises_as_it_goes():
    """Statistics hold every observation once, first ones included; the return's scale starts anew with an episode."""
    env, params = make("CartPole-v1")
    params = params.replace(max_steps=jnp.int32(3))
    algo = stream_td.make(env, stream_td.Config(num_steps=1, hidden=(2,), sparsity=0.0))
    state = algo.init(jax.random.key(0), None, params)
    update, step = jax.jit(algo.update), jax.jit(lambda state: transition(algo, state))
    observations, returns, u = [], [], 0.0
    for i in range(7):
        if i % 3 == 0:
            observations.append(np.asarray(state.obs[0]))
            u = 0.0
        u = 0.99 * u + 1
        returns.append(u)
        new, _ = update(state)
        # what the next step sees before its reset is only known to the environment
        observations.append(np.asarray(step(state).info["final_obs"][0]))
        assert int(new.normalizer.count) == len(observations)
        np.testing.assert_allclose(new.normalizer.moments.mean, np.mean(observations, 0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(new.reward_scaler.returns, u, rtol=1e-6)
        if i:
            np.testing.assert_allclose(new.reward_scaler.scale, np.std(returns, ddof=1), rtol=1e-4)
        state = new


def transition(algo, state):
    """The environment step of the next update, made again from the state's keys."""
    _, step_key = jax.random.split(state.key)
    act_key, env_key = jax.random.split(jax.random.split(step_key, 1)[0])
    action, _ = algo.act(algo.policy(state), act_key, state.obs[0])
    return algo.venv.step(env_key, state.env_state, action[None], state.env_params)


@pytest.mark.slow
@pytest.mark.light
def test_privileged_features_come_last_and_are_not_deployed():
    env = Privileged()
    space = env.observation_space(env.default_params)
    obs = {"obs": jnp.array([[3.0]]), "privileged": jnp.array([[7.0]])}
    np.testing.assert_array_equal(streaming.features(space, obs, True), [[3.0, 7.0]])
    np.testing.assert_array_equal(streaming.features(space, obs), [[3.0]])
    algo = stream_td.make(env, stream_td.Config(num_steps=2, hidden=(2,), sparsity=0.0))
    state = algo.init(jax.random.key(0))
    assert state.normalizer.moments.mean.shape == (2,)
    assert algo.policy(state).normalizer.moments.mean.shape == (1,)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: streaming.Config(num_steps=0), r"num_steps=0.*at least 1"),
        (lambda: streaming.Config(sparsity=1.0), r"sparsity=1\.0.*less than 1"),
        (lambda: streaming.Config(hidden=(32, 8)), r"hidden=\(32, 8\).*8 inputs.*at least 10"),
        (lambda: streaming.Config(hidden=(4,), sparsity=0.8), r"at least 5"),
        (lambda: stream_q.make(vectorize(make("CartPole-v1")[0], 2)), r"num_envs=2.*vmap over keys"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_vector_environment_of_one_is_taken_as_it_is():
    venv = vectorize(make("CartPole-v1")[0], 1, "dense")
    assert stream_q.make(venv, stream_q.Config(num_steps=2)).venv is venv

"""What all algorithms share: the pure training loop, annealing, and optimisation with finite second derivatives."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl import Algorithm, make, pytree, train, vectorize
from jaxrl.algorithm import as_vector_env, episode_metrics, num_updates, spaces_of, starting_values
from jaxrl.nn.optim import adam_init, annealed, clip_by_global_norm, descend, safe_adam, safe_norm
from jaxrl.replay.off_policy import gradient_steps_due
from jaxrl.spaces import Box, Discrete


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


TREE = {"a": jnp.array([3.0, 0.0]), "b": [jnp.array([[4.0]]), jnp.array(12.0)]}


def test_safe_norm_is_the_norm_of_everything():
    close(safe_norm(TREE), 13)
    assert safe_norm({}) == 0 and safe_norm(jnp.zeros(3)) == 0
    close(jax.grad(safe_norm)(jnp.array([3.0, 4.0])), [0.6, 0.8])
    # Where the norm has no derivative: zero, and no NaN further down.
    for f in (safe_norm, lambda x: safe_norm(x) ** 2, lambda x: safe_norm(x * 0)):
        np.testing.assert_array_equal(jax.grad(f)(jnp.zeros(3)), 0)
        assert np.all(np.isfinite(jax.hessian(f)(jnp.zeros(3))))


def test_clipping_is_by_the_common_norm_and_keeps_the_direction():
    clipped = clip_by_global_norm(TREE, 6.5)
    jax.tree.map(lambda got, x: close(got, x / 2), clipped, TREE)
    close(safe_norm(clipped), 6.5)
    # An element-wise clip at 6.5 would leave 3 and 4 as they are.
    jax.tree.map(close, clip_by_global_norm(TREE, 13.0), TREE)
    jax.tree.map(np.testing.assert_array_equal, clip_by_global_norm(TREE, 1e9), TREE)
    optimiser = optax.clip_by_global_norm(2.0)
    jax.tree.map(close, clip_by_global_norm(TREE, 2.0), optimiser.update(TREE, optimiser.init(TREE))[0])
    zeros = jax.tree.map(jnp.zeros_like, TREE)
    jax.tree.map(np.testing.assert_array_equal, clip_by_global_norm(zeros, 1.0), zeros)
    jacobian = jax.jacobian(lambda x: clip_by_global_norm(x, 1.0))(jnp.zeros(2))
    assert np.all(np.isfinite(jacobian))


@pytest.mark.parametrize("eps", [1e-8, 1e-5])
def test_safe_adam_is_adam(eps):
    optimiser = optax.adam(0.01, b1=0.8, b2=0.99, eps=eps)
    weights = {"w": jnp.array([1.0, -2.0, 0.5]), "b": jnp.zeros(())}
    theirs, ours = (weights, optimiser.init(weights)), (weights, adam_init(weights))
    rng = np.random.default_rng(0)
    for step in range(20):
        grads = {"w": jnp.asarray(rng.normal(size=3), jnp.float32) * (step % 3), "b": jnp.float32(rng.normal())}
        change, theirs_state = optimiser.update(grads, theirs[1])
        theirs = optax.apply_updates(theirs[0], change), theirs_state
        change, ours_state = safe_adam(grads, ours[1], 0.01, b1=0.8, b2=0.99, eps=eps)
        ours = jax.tree.map(jnp.add, ours[0], change), ours_state
        jax.tree.map(lambda a, b: close(a, b, rtol=1e-5), theirs[0], ours[0])
    assert ours[1].count == 20
    close(ours[1].mean["w"], theirs[1][0].mu["w"])
    close(ours[1].square["w"], theirs[1][0].nu["w"])


def test_second_derivatives_of_safe_adam_are_finite():
    """Through the update that minimises a loss, also for a weight whose gradient is zero, where optax gives NaN."""

    def after(learning_rate, target, adam):
        weights = jnp.array([1.0, 0.0])
        state = adam_init(weights)
        optimiser = optax.adam(learning_rate)
        other = optimiser.init(weights)
        for _ in range(2):
            grads = jax.grad(lambda w: jnp.sum((w[0] - target) ** 2) + 0 * w[1])(weights)
            if adam == "safe":
                change, state = safe_adam(grads, state, learning_rate)
            else:
                change, other = optimiser.update(grads, other)
            weights = weights + change
        return jnp.sum(weights**2)

    def derivatives(adam):
        f = partial(after, adam=adam)
        return jax.jit(lambda x, y: (jax.grad(f, (0, 1))(x, y), jax.hessian(f, (0, 1))(x, y)))(0.1, 0.3)

    assert all(np.isfinite(x) for x in jax.tree.leaves(derivatives("safe")))
    assert not all(np.isfinite(x) for x in jax.tree.leaves(derivatives("optax"))), "then this file's own is needless"
    with jax.enable_x64(True):
        f = jax.jit(jax.value_and_grad(partial(after, adam="safe")))
        grad = f(jnp.float64(0.1), jnp.float64(0.3))[1]
        ends = [f(jnp.float64(0.1 + e), jnp.float64(0.3))[0] for e in (1e-6, -1e-6)]
        close(grad, (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


def test_annealed():
    value = jnp.float32(2.0)
    steps = jnp.array([0, 25, 50, 100, 1000])
    close(annealed(value, steps, jnp.int32(100)), [2, 1.5, 1, 0, 0])
    close(annealed(value, steps, jnp.int32(0)), np.full(5, 2.0))
    assert annealed(value, jnp.int32(3), jnp.int32(9)).dtype == jnp.float32
    assert np.isfinite(jax.grad(annealed)(value, jnp.int32(3), jnp.int32(0)))


def test_episode_metrics():
    finished = jnp.array([[True, False], [False, True]])
    metrics = episode_metrics(jnp.array([[3.0, 99.0], [99.0, 5.0]]), jnp.array([[1, 7], [7, 2]]), finished)
    assert metrics["episode_return"] == 4 and metrics["episode_length"] == 1.5 and metrics["episodes"] == 2
    none = episode_metrics(jnp.ones((2, 2)), jnp.ones((2, 2), int), jnp.zeros((2, 2), bool))
    assert np.isnan(none["episode_return"]) and np.isnan(none["episode_length"]) and none["episodes"] == 0
    infinite = episode_metrics(jnp.array([[jnp.inf, 1.0]]), jnp.ones((1, 2), int), jnp.array([[False, True]]))
    assert infinite["episode_return"] == 1, "what has not ended does not count"


# ---- a training loop of an algorithm that only counts


@pytree
class CounterHyper:
    rate: jax.Array = 0.5
    horizon: jax.Array = 100


class CounterState(NamedTuple):
    key: Any
    total: Any
    step: Any


def counter(steps_per_update=8):
    def init(key, hyper=None, env_params=None):
        return CounterState(key, hyper.rate, jnp.int32(0))

    def collect(state):
        return state._replace(step=state.step + steps_per_update), None

    def learn(state, rollout):
        key, draw = jax.random.split(state.key)
        return state._replace(key=key, total=state.total + 1), {"total": state.total, "draw": jax.random.uniform(draw)}

    venv = vectorize(make("CartPole-v1")[0], 2)
    return Algorithm(
        name="counter",
        config=None,
        hyper=CounterHyper,
        venv=venv,
        steps_per_update=steps_per_update,
        init=init,
        collect=collect,
        learn=learn,
        policy=lambda state: None,
        initial_carry=lambda shape=(): (),
        act=lambda policy, key, obs, carry=(), greedy=False: (jnp.int32(0), carry),
    )


@pytest.mark.parametrize(("total", "updates"), [(1, 1), (8, 1), (9, 2), (80, 10)])
def test_train_makes_at_least_the_steps_asked_for(total, updates):
    algo = counter()
    assert num_updates(algo, total) == updates
    state, metrics = train(algo, jax.random.key(0), total, CounterHyper(rate=jnp.float32(3)))
    assert metrics["total"].shape == (updates,) and state.step == 8 * updates >= total
    np.testing.assert_array_equal(metrics["total"], 3 + np.arange(updates))


def test_train_is_pure_and_batches_over_keys_and_hypers():
    algo = counter()
    rates = CounterHyper(rate=jnp.array([1.0, 2.0]))

    def run(key, hyper):
        return train(algo, key, 24, hyper)[1]

    grid = jax.jit(jax.vmap(jax.vmap(run, (None, CounterHyper(0, None))), (0, None)))(
        jax.random.split(jax.random.key(0), 3), rates.replace(horizon=1)
    )
    assert grid["total"].shape == (3, 2, 3)
    np.testing.assert_array_equal(grid["total"][0], [[1, 2, 3], [2, 3, 4]])
    assert len(np.unique(grid["draw"][:, 0])) == 9


@pytest.mark.parametrize("total", [0, -5])
def test_no_steps_are_refused(total):
    with pytest.raises(ValueError, match=f"total_steps={total}: it must be at least 1"):
        num_updates(counter(), total)


def test_starting_values_fill_in_defaults_and_strengthen():
    env, params = make("CartPole-v1")
    venv = vectorize(env, 2)
    hyper, env_params = starting_values(CounterHyper, venv, None, None)
    assert hyper.rate == 0.5 and jax.tree.all(jax.tree.map(lambda a, b: a == b, env_params, params))
    # A whole number for a float, and a float for a whole number, must not become another program.
    for given in (CounterHyper(rate=1, horizon=1e6), CounterHyper(rate=np.float64(1), horizon=np.int64(10**6))):
        hyper, _ = starting_values(CounterHyper, venv, given, None)
        assert hyper.rate.dtype == jnp.float32 and hyper.horizon.dtype == jnp.int32
        assert hyper.rate == 1 and hyper.horizon == 10**6 and not hyper.rate.weak_type
    batched, _ = starting_values(CounterHyper, venv, CounterHyper(rate=np.array([1, 2])), None)
    assert batched.rate.dtype == jnp.float32 and batched.rate.shape == (2,)
    _, env_params = starting_values(CounterHyper, venv, None, params.replace(length=1.0))
    assert env_params.length.dtype == jnp.float32 and not env_params.length.weak_type
    with pytest.raises(TypeError, match="int.*not this algorithm's Hyper"):
        starting_values(CounterHyper, venv, 3, None)
    with pytest.raises(ValueError, match="length"):
        starting_values(CounterHyper, venv, None, params.replace(length=-1.0))


def test_as_vector_env():
    env = make("CartPole-v1")[0]
    venv = vectorize(env, 3, "dense")
    assert as_vector_env(venv, 3) is venv
    assert as_vector_env(env, 3) == vectorize(env, 3)
    with pytest.raises(ValueError, match="num_envs=3 but the config says 4; make them equal"):
        as_vector_env(venv, 4)


def test_descend_is_one_clipped_adam_step():
    weights = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    flat = ravel_pytree(weights)[0]
    new, state, norm = descend(flat, adam_init(flat), grads, 0.1, max_grad_norm=1.0)
    assert norm == 5 and state.count == 1
    # The first step of Adam has the size of the learning rate, whatever the clipping; its moments do not.
    np.testing.assert_allclose(new, [0.9, 2.0, 2.9], rtol=1e-6)
    np.testing.assert_allclose(state.mean, [0.06, 0.0, 0.08], rtol=1e-6)


@pytest.mark.parametrize(
    "ratio, due",
    [(0.5, [0, 1, 0, 1]), (1.0, [1] * 4), (2.0, [2] * 4), (9.0, [4] * 4), (jnp.inf, [4] * 4), (0.0, [0] * 4)],
)
def test_gradient_steps_follow_the_replay_ratio(ratio, due):
    got = [gradient_steps_due(jnp.int32(step), 1, jnp.float32(ratio), 4) for step in (1, 2, 3, 4)]
    np.testing.assert_array_equal(got, due)


def test_the_replay_ratio_holds_after_many_steps():
    """float32 has no odd numbers beyond 2^24."""
    steps = jnp.int32(2**25) + jnp.arange(8, dtype=jnp.int32)
    np.testing.assert_array_equal(jax.vmap(lambda s: gradient_steps_due(s, 1, jnp.float32(1), 4))(steps), 1)


def with_space(action_space, num_agents=1):
    class Other(type(make("CartPole-v1")[0])):
        def action_space(self, params):
            return action_space

    Other.num_agents = num_agents
    return Other(id="other")


def test_spaces_of_names_what_would_do():
    with pytest.raises(ValueError, match=r"dqn acts in Discrete spaces, not in Pendulum-v1's Box.*act there:.*ppo"):
        spaces_of("dqn", make("Pendulum-v1")[0], Discrete)
    with pytest.raises(ValueError, match=r"x acts in Discrete and one-dimensional Box spaces, not in other's"):
        spaces_of("x", with_space(Box(-1.0, 1.0, (2, 2))), Discrete, Box)
    with pytest.raises(ValueError, match=r"2 agents; x trains one\. .*wrappers\.agents_as_slots"):
        spaces_of("x", with_space(Discrete(2), num_agents=2), Discrete)
    assert spaces_of("x", vectorize(with_space(Discrete(2)), 3), Discrete)[1] == Discrete(2)

"""Cloning by diffusion: the forward process, the loss and the steps back by hand, and laws whose noise is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ddpm_bc
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.testing.rules import step

KEY = jax.random.key(0)
ENV = ObservationActionReward("box")


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def signal_of(time, exp=np.exp):
    return exp(-0.1 * time - 4.95 * time**2)


def test_the_schedule_preserves_variance():
    """The closed form of s_t is the product of the steps' 1 - b_t, and b_t that of IDQL's code."""
    for T in (1, 4, 10):
        beta, signal = ddpm_bc.schedule(T)
        t = np.arange(1, T + 1)
        close(beta, 1 - np.exp(-0.1 / T - 0.5 * 9.9 * (2 * t - 1) / T**2))
        close(signal, np.cumprod(1 - beta))
        close(signal, signal_of(t / T))


def test_noise_step_by_step_is_noise_at_once():
    """From a_0 = 0.7, a_t = sqrt(1 - b_t) a_(t-1) + sqrt(b_t) e has the mean and the variance of `noised`."""
    beta, signal = ddpm_bc.schedule(5)
    mean, variance = 0.7, 0.0
    for b, s in zip(beta, signal, strict=True):
        mean, variance = np.sqrt(1 - b) * mean, (1 - b) * variance + b
        at = [float(ddpm_bc.noised(jnp.array([0.7]), jnp.array([e]), jnp.float32(s))[0]) for e in (0.0, 1.0)]
        close(at, [mean, mean + np.sqrt(variance)])
    close(ddpm_bc.noise_loss(jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 5.0]])), (1 + 9) / 2)


def test_a_step_back_by_hand():
    """b 0.5 and s 0.4: 0.8 is left before. The predicted action is (0.5 - sqrt(0.6) 0.1) / sqrt(0.4), then clipped."""
    point, predicted = jnp.array([0.5, 2.0]), jnp.array([0.1, -1.0])
    action = np.array([(0.5 - np.sqrt(0.6) * 0.1) / np.sqrt(0.4), 1.0])
    assert action[0] < 1 and (2 + np.sqrt(0.6)) / np.sqrt(0.4) > 1
    expected = (np.sqrt(0.8) * 0.5 * action + np.sqrt(0.5) * 0.2 * np.array([0.5, 2.0])) / 0.6
    close(ddpm_bc.step_back(point, predicted, 0.5, 0.4), expected)
    close(ddpm_bc.step_back(jnp.array([0.5]), jnp.array([0.1]), 0.4, 0.6), [(0.5 - np.sqrt(0.4) * 0.1) / np.sqrt(0.6)])


def test_the_known_noise_of_a_point_leads_to_it():
    """Of a single action the noise in a_t is known, and the last step ends at the action from anywhere."""

    def predict(point, t):
        signal = signal_of(t, jnp.exp)[..., None]
        return (point - jnp.sqrt(signal) * 0.3) / jnp.sqrt(1 - signal)

    noise = jax.random.normal(KEY, (5, 7, 2))
    close(ddpm_bc.denoise(predict, noise[0], noise[1:]), np.full((7, 2), 0.3), atol=1e-5)


def test_normal_actions_keep_their_mean_and_deviation():
    """The chain of a normal law is normal, and its moments follow from the steps' own formula."""
    mean, std, T = 0.2, 0.3, 20

    def predict(point, t):
        signal = signal_of(t, jnp.exp)[..., None]
        left = signal * std**2 + 1 - signal
        return (point - jnp.sqrt(signal) * mean) * jnp.sqrt(1 - signal) / left

    first, last = jax.random.normal(KEY, (2, 1, 100_000, 1))[:, 0]
    noise = jnp.concatenate([last[None], jax.random.normal(jax.random.key(1), (T - 1, 100_000, 1))])
    found = np.asarray(ddpm_bc.denoise(predict, first, noise, clip=np.inf))
    variance, middle = 1.0, 0.0
    for t in range(T, 0, -1):
        before, signal = signal_of((t - 1) / T), signal_of(t / T)
        beta = 1 - signal / before
        gain = np.sqrt(signal) * std**2 / (signal * std**2 + 1 - signal)  # E[a | a_t] = mean + gain (a_t - ...)
        keep = np.sqrt(before) * beta / (1 - signal) * gain + np.sqrt(1 - beta) * (1 - before) / (1 - signal)
        middle, variance = keep * middle, keep**2 * variance + beta * (t > 1)
        if t == T:
            middle = -keep * np.sqrt(signal) * mean  # a_T begins at 0, not at sqrt(s_T) mean
    close(found.std(), np.sqrt(variance), rtol=0.01)
    close(found.mean(), mean + middle, atol=0.005)
    assert abs(found.mean() - mean) < 0.02 and abs(found.std() - std) < 0.02


def test_two_points_are_both_drawn_as_often_as_they_are():
    """A fifth of the actions is -0.5 and the rest 0.5: the noise in a_t is known, as odds of two normal laws."""

    def predict(point, t):
        signal = signal_of(t, jnp.exp)[..., None]
        odds = jnp.sqrt(signal) * point / (1 - signal) + jnp.log(4.0)  # 2 * 0.5 sqrt(s) a_t / (1 - s)
        action = jax.nn.sigmoid(odds) - 0.5
        return (point - jnp.sqrt(signal) * action) / jnp.sqrt(1 - signal)

    noise = jax.random.normal(KEY, (101, 20_000, 1))
    found = np.asarray(ddpm_bc.denoise(predict, noise[0], noise[1:]))
    near = [np.mean(np.abs(found - at) < 0.05) for at in (-0.5, 0.5)]
    close(near, [0.2, 0.8], atol=0.02)


class Known:
    """Noise that is predicted as a a_t + b t, and of which the weights are `(a, b)`."""

    def apply(self, weights, x, action, t):
        return weights[0] * action + weights[1] * t[..., None]


def test_a_gradient_step_by_hand():
    rule = ddpm_bc._DDPMBC(ddpm_bc.Diffusion(Known(), Box(-1.0, 1.0, (1,)), 4, 2))
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (6, 2)), jnp.float32)
    batch = Transition(jnp.zeros((6, 1)), action, jnp.zeros(6), jnp.zeros(6, bool), jnp.zeros((6, 1)))
    weights, hyper = {"actor": (jnp.float32(0.5), jnp.float32(-0.3))}, ddpm_bc.Hyper(learning_rate=1.0)
    report, change = step(rule, weights, {}, batch, strongly_typed(hyper), KEY)
    noise_key, time_key = jax.random.split(KEY)
    noise = np.asarray(jax.random.normal(noise_key, (6, 2)))
    t = (np.asarray(jax.random.randint(time_key, (6,), 0, 4))[:, None] + 1) / 4
    assert len(np.unique(t)) > 1 and np.all(t > 0)
    point = np.sqrt(signal_of(t)) * action + np.sqrt(1 - signal_of(t)) * noise
    error = 0.5 * point - 0.3 * t - noise
    close(report["actor_loss"], np.mean(error**2))
    close(change["actor"], [np.mean(2 * error * point), np.mean(2 * error * t)])


def test_all_weights_learn_and_actions_are_in_the_box():
    algo = ddpm_bc.make(ENV, ddpm_bc.Config(num_envs=4, buffer_size=64, batch_size=32, hidden=(8,)))
    state = algo.init(KEY, ddpm_bc.Hyper(learning_starts=0))
    run = jax.jit(lambda state: jax.lax.scan(lambda state, _: algo.update(state), state, length=3)[0])
    after = run(state)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), state.weights, after.weights)
    assert all(jax.tree.leaves(moved)), moved
    space, obs = ENV.action_space(ENV.default_params), jnp.ones((50, 1))
    for greedy in (False, True):
        action = np.asarray(algo.act(algo.policy(after), KEY, obs, greedy=greedy)[0])
        assert np.all((action >= space.low) & (action <= space.high))
        assert (len(np.unique(action)) == 1) == greedy
    with pytest.raises(ValueError, match="num_diffusion_steps=0"):
        ddpm_bc.Config(num_diffusion_steps=0)


def sides(key, state, n):
    """Half of the data goes left, half goes right."""
    action = jnp.where(jax.random.bernoulli(key, 0.5, (n, 1)), 0.5, -0.5)
    return Transition(jnp.ones((n, 1)), action, jnp.zeros(n), jnp.ones(n, bool), jnp.ones((n, 1)))


@pytest.mark.slow
@pytest.mark.light
def test_both_ways_are_cloned():
    config = ddpm_bc.Config(num_updates=50, batch_size=128, hidden=(32, 32), num_diffusion_steps=20)
    algo = ddpm_bc.make(ENV, config, replay=Replay(lambda item: (), None, sides))

    @jax.jit
    def run(key):
        state, _ = jaxrl.train(algo, key, 4000, ddpm_bc.Hyper(learning_rate=1e-2))
        return algo.act(algo.policy(state), key, jnp.ones((2000, 1)))[0]

    action = np.asarray(run(KEY))
    sides_at = ENV.action_space(ENV.default_params).from_unit(jnp.array([[-0.5], [0.5]]))
    near = [np.mean(np.abs(action - at) < 0.2) for at in sides_at]
    assert min(near) > 0.35 and sum(near) > 0.85, near

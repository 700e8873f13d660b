"""Flow matching and ReinFlow: paths and losses by hand, the density of a chain, what is copied, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import jaxrl
from jaxrl.algos import flow_bc, reinflow
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


# ---- cloning


def test_lines_and_their_velocity():
    noise, action, t = jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 1.0]]), jnp.array([0.25])
    close(flow_bc.between(noise, action, t), [[1.5, 0.25]])
    close(flow_bc.flow_matching_loss(jnp.zeros((1, 2)), noise, action), (4 + 1) / 2)
    close(flow_bc.flow_matching_loss(action - noise, noise, action), 0)


def test_euler_by_hand():
    """Steps at 0, 1/4, 1/2 and 3/4, never at 1."""
    found = flow_bc.follow(lambda a, t: 8 * t[..., None] * jnp.ones_like(a), jnp.array([[1.0], [2.0]]), 4)
    close(found, [[1 + 8 * (0.25 + 0.5 + 0.75) / 4], [2 + 3.0]])
    close(flow_bc.follow(lambda a, t: a, jnp.ones((1,)), 3), [(4 / 3) ** 3])


class Known:
    """A velocity that is a a_t + b t, and of which the weights are `(a, b)`."""

    def apply(self, weights, x, action, t):
        return weights[0] * action + weights[1] * t[..., None]


def test_a_gradient_step_by_hand():
    rule = flow_bc._FlowBC(flow_bc.Flow(Known(), Box(-1.0, 1.0, (1,)), 2, 2))
    rng = np.random.default_rng(0)
    action = jnp.asarray(rng.uniform(-1, 1, (6, 2)), jnp.float32)
    batch = Transition(jnp.zeros((6, 1)), action, jnp.zeros(6), jnp.zeros(6, bool), jnp.zeros((6, 1)))
    weights, hyper = {"actor": (jnp.float32(0.5), jnp.float32(-0.3))}, flow_bc.Hyper(learning_rate=1.0)
    report, change = step(rule, weights, {}, batch, strongly_typed(hyper), KEY)
    noise_key, time_key = jax.random.split(KEY)
    noise, t = np.asarray(jax.random.normal(noise_key, (6, 2))), np.asarray(jax.random.uniform(time_key, (6,)))[:, None]
    point = (1 - t) * noise + t * action
    error = 0.5 * point - 0.3 * t - (action - noise)
    close(report["actor_loss"], np.mean(error**2))
    close(change["actor"], [np.mean(2 * error * point), np.mean(2 * error * t)])


def sides(key, state, n):
    """Half of the data goes left, half goes right."""
    action = jnp.where(jax.random.bernoulli(key, 0.5, (n, 1)), 0.5, -0.5)
    return Transition(jnp.ones((n, 1)), action, jnp.zeros(n), jnp.ones(n, bool), jnp.ones((n, 1)))


@pytest.mark.slow
@pytest.mark.light
def test_both_ways_are_cloned():
    config = flow_bc.Config(num_updates=50, batch_size=128, hidden=(64, 64), num_flow_steps=40)
    algo = flow_bc.make(ENV, config, replay=Replay(lambda item: (), None, sides))

    @jax.jit
    def run(key):
        state, _ = jaxrl.train(algo, key, 4000, flow_bc.Hyper(learning_rate=3e-3))
        return algo.act(algo.policy(state), key, jnp.ones((2000, 1)))[0]

    action = np.asarray(run(KEY))
    sides_at = ENV.action_space(ENV.default_params).from_unit(jnp.array([[-0.5], [0.5]]))
    near = [np.mean(np.abs(action - at) < 0.2) for at in sides_at]
    assert min(near) > 0.35 and sum(near) > 0.9, near


# ---- ReinFlow


def test_the_density_of_a_chain_is_that_of_its_gaussians():
    """With a linear velocity and constant noise the whole chain is one normal vector, whose covariance is known."""
    K, slope, shift, sigma = 3, 0.4, -0.6, 0.2
    grow = 1 + slope / K
    # a_k = grow^k a_0 + sigma sum_j grow^(k - j) e_j + drift_k, of independent a_0, e_1, ..., e_K
    mix, drift = np.zeros((K + 1, K + 1)), np.zeros(K + 1)
    for k in range(K + 1):
        mix[k, 0] = grow**k
        mix[k, 1 : k + 1] = [sigma * grow ** (k - j) for j in range(1, k + 1)]
        drift[k] = 0 if k == 0 else grow * drift[k - 1] + shift * (k - 1) / K / K
    chain = drift + np.random.default_rng(0).normal(size=(5, 2, K + 1)) @ mix.T
    expected = multivariate_normal(drift, mix @ mix.T).logpdf(chain).sum(1)  # two dimensions
    points = jnp.asarray(np.moveaxis(chain, 1, 2))
    t = jnp.arange(K)[:, None] / K
    mean = points[:, :-1] + (slope * points[:, :-1] + shift * t) / K
    close(reinflow.chain_log_prob(points, mean, jnp.full(mean.shape, sigma)), expected, rtol=1e-4)
    close(reinflow.step_entropy(jnp.full((1, K, 2), sigma)), np.log(sigma * np.sqrt(2 * np.pi * np.e)))


SMALL = reinflow.Config(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,), noise_hidden=(4,))


def test_chains_and_one_step():
    """The stored density is that of the networks; at the weights that acted the ratio is 1 and nothing is clipped."""
    algo = reinflow.make(ENV, SMALL)
    learner, hyper = algo.init.__self__, reinflow.Hyper(std_min=0.3, std_max=0.5, learning_rate=1e-2)

    def run(key):
        state, rollout = algo.collect(algo.init(key, hyper))
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rollout.obs, rollout.chain, rollout.log_prob))
        obs, chain, log_prob = flat
        moves = [learner.steps(state.weights, obs, chain[:, k], jnp.full(32, k / 4), state.hyper) for k in range(4)]
        after, report = algo.learn(state, rollout)
        frozen, _ = algo.learn(state.replace(hyper=state.hyper.replace(warmup_steps=jnp.int32(32))), rollout)
        return state.weights, after.weights, frozen.weights, report, chain, log_prob, moves

    before, after, frozen, report, chain, log_prob, moves = jax.jit(run)(KEY)
    expected = -0.5 * np.sum(np.asarray(chain[:, 0]) ** 2 + np.log(2 * np.pi), -1)
    for k, (mean, std) in enumerate(moves):
        assert np.all((std > 0.3) & (std < 0.5))
        z = (chain[:, k + 1] - mean) / std
        expected = expected - np.sum(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi), -1)
    close(log_prob, expected, rtol=1e-4, atol=1e-4)
    close(report["approx_kl"], 0, atol=1e-5)
    close([report["policy_loss"], report["clipped"]], [0, 0], atol=1e-4)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), before, after)
    assert all(jax.tree.leaves(moved)), moved
    for name in ("velocity", "noise"):
        jax.tree.map(np.testing.assert_array_equal, before[name], frozen[name])
    learned = jax.tree.map(lambda x, y: bool(np.any(x != y)), before["critic"], frozen["critic"])
    assert all(jax.tree.leaves(learned)), learned


def test_it_starts_from_a_cloned_velocity_and_is_deployed_without_noise():
    sizes = dict(hidden=(8,), num_flow_steps=4)
    cloned_algo = flow_bc.make(ENV, flow_bc.Config(num_envs=4, buffer_size=8, **sizes))
    cloned, algo = cloned_algo.init(jax.random.key(1)), reinflow.make(ENV, SMALL)
    state = reinflow.start(algo, cloned, KEY)
    jax.tree.map(np.testing.assert_array_equal, state.weights["velocity"], cloned.weights["actor"])
    assert algo.deployed == cloned_algo.deployed == "sampled"
    obs = jnp.ones((3, *jnp.shape(state.obs)[1:]))
    for greedy in (False, True):
        actions = [x.act(x.policy(s), KEY, obs, greedy=greedy)[0] for x, s in ((algo, state), (cloned_algo, cloned))]
        np.testing.assert_array_equal(*actions)
    wider = flow_bc.make(ENV, flow_bc.Config(num_envs=4, buffer_size=8, hidden=(9,))).init(KEY)
    with pytest.raises(ValueError, match=r"cloned velocity has weights .*9.*, this reinflow's has .*: set `hidden`"):
        reinflow.start(algo, wider, KEY)


def test_settings_that_cannot_be():
    for module in (flow_bc, reinflow):
        with pytest.raises(ValueError, match="num_flow_steps=0"):
            module.Config(num_flow_steps=0)
    with pytest.raises(ValueError, match="std_min=0.3, std_max=0.2: it must be 0 < std_min <= std_max"):
        reinflow.make(ENV, SMALL).init(KEY, reinflow.Hyper(std_min=0.3, std_max=0.2))
    settings = strongly_typed(reinflow.Hyper())  # arrays that are known while a program around them is traced
    jax.eval_shape(lambda key: reinflow.make(ENV, SMALL).init(key, settings), KEY)

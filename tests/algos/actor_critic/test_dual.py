"""f-DVL, XQL and ReCOIL: losses against arrays computed by hand, and what each makes of data with a known best."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import dvl, recoil
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Transition
from jaxrl.nn.losses import advantage_weighted_loss
from jaxrl.replay.ring import uniform
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
ENV, PARAMS = ObservationActionReward("box"), ObservationActionReward("box").default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=50, batch_size=64, hidden=(16,))


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-6, atol=1e-7)


def test_values_losses_by_hand():
    d = jnp.array([2.0, -1.0, -6.0])
    close(dvl.chi2(d, 0.75), np.mean([0.75 * 3 - 0.25 * 2, 0.25 * 1, 0.75 * 3 + 0.25 * 6]))
    close(dvl.total_variation(d, 0.75), np.mean([0.75 * 2 - 0.25 * 2, 0.25, 1.5]))
    z = np.array([1.0, -0.5, -3.0])
    for loss in (dvl.gumbel, recoil.value_loss):
        close(loss(d, 2.0), np.mean(np.exp(z) - z - 1) / np.exp(1))
        close(loss(d, 2.0, 0.5), np.mean(np.exp([0.5, -0.5, -3.0]) - [1.5, 0.5, -2.0]) / np.exp(0.5))
        close(loss(jnp.array([-4.0, -8.0]), 2.0), np.mean(np.exp([-2.0, -4.0]) - [-1.0, -3.0]) * np.exp(1))


@pytest.mark.parametrize(
    "loss, temperature, wanted",
    [
        ("chi2", 0.6, 1 / 3),  # where (1 + d / 2) of those above V is (1 - l) / l on average
        ("total_variation", 0.75, 1.0),  # where a share of (1 - l) / l = 1/3 is above: none, since a half is too many
        ("gumbel", 0.5, 0.5 * np.log(np.mean(np.exp([0.0, 2.0])))),
    ],
)
def test_where_the_slope_of_the_values_loss_is_zero(loss, temperature, wanted):
    """Of Q = 0 and 1, equally often."""
    v, q = jnp.linspace(-1.0, 3.0, 4001), jnp.array([0.0, 1.0])
    slopes = jax.vmap(jax.grad(lambda v: dvl.VALUE_LOSSES[loss](q - v, temperature)))(v)
    np.testing.assert_allclose(v[jnp.argmax(slopes > 1e-6)], wanted, atol=2e-3)


def test_the_other_losses_by_hand():
    close(dvl.huber_loss(jnp.array([[0.0, 1.0], [2.0, 31.0]]), jnp.array([1.0, 1.0])), 0.25 + (0.5 + 200 + 200) / 2)
    advantage, log_prob = jnp.array([1.0, 50.0]), jnp.array([-1.0, -3.0])
    close(advantage_weighted_loss(log_prob, 2 * advantage), (np.exp(2) + 300) / 2)
    ended, ahead = jnp.array([True, False]), jnp.array([7.0, 3.0])
    close(recoil.recoil_target(ended, ahead, 0.5, 2.0), [-2 - 2.0, -2 + 1.5])
    q = jnp.array([[1.0, 2.0, 3.0, 4.0]])
    close(recoil.recoil_loss(q, jnp.array([1.0, 1.0, 1.0, 1.0]), 4.0), ((9 + 4) / 2 + (0 + 1 + 4 + 9) / 4) / 2)


def test_refusals():
    with pytest.raises(ValueError, match="divergence='kl': it is one of chi2, total_variation, gumbel"):
        dvl.Config(divergence="kl")
    with pytest.raises(ValueError, match="random_actions=-1"):
        dvl.Config(random_actions=-1)
    with pytest.raises(ValueError, match=r"recoil.demonstrated\(expert, other\)"):
        recoil.make(ENV)
    with pytest.raises(ValueError, match="batch_size=0"):
        recoil.Config(batch_size=0)


def one_step_data(middle, width, n=2000):
    """Episodes of a step: actions around `middle`, reward -(a - 0.3)^2, in units of the box."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (n, *ENV.observation_space(PARAMS).shape)).astype(np.float32)
    unit = (middle + width * rng.uniform(-1.0, 1.0, (n, *SPACE.shape))).astype(np.float32)
    reward = -np.sum((unit - 0.3) ** 2, -1)
    true = np.ones(n, bool)
    return Dataset(obs, np.asarray(SPACE.from_unit(jnp.asarray(unit))), reward, true, true, obs)


def mean_action(algo, hyper, steps):
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, steps, hyper, PARAMS))(KEY)
    assert np.all(np.isfinite(metrics["loss"]))
    obs = jnp.asarray(one_step_data(0.0, 1.0, 64).obs)
    action, _ = algo.act(algo.policy(state), KEY, obs, greedy=True)
    return np.asarray(datasets.to_unit(SPACE, action)).mean()


@pytest.mark.slow
@pytest.mark.parametrize("divergence, temperature", [("chi2", 0.7), ("total_variation", 0.8), ("gumbel", 0.3)])
def test_dvl_finds_the_best_action_of_the_data(divergence, temperature):
    memory = datasets.stored(one_step_data(-0.25, 0.75), SPACE)
    algo = dvl.make(ENV, dvl.Config(**SIZES, divergence=divergence, random_actions=divergence == "chi2"), replay=memory)
    hyper = dvl.Hyper(learning_rate=1e-2, tau=0.05, temperature=temperature, beta=10.0)
    assert abs(mean_action(algo, hyper, 1500) - 0.3) < 0.15


@pytest.mark.slow
def test_recoil_does_as_the_demonstrations():
    """Among uniform actions, which are worth less."""
    parts = one_step_data(0.3, 0.05, 50), one_step_data(0.0, 1.0)
    memory = recoil.demonstrated(*(datasets.stored(part, SPACE) for part in parts))
    algo = recoil.make(ENV, recoil.Config(**SIZES), replay=memory)
    assert abs(mean_action(algo, recoil.Hyper(learning_rate=1e-2, tau=0.05), 1500) - 0.3) < 0.1


@pytest.mark.slow
@pytest.mark.light
def test_a_pair_of_memories():
    """As many of the one as of the other, demonstrations first; what is done goes into the other."""
    stored = datasets.stored(one_step_data(0.3, 0.05, 50), SPACE)
    memory = recoil.demonstrated(stored, uniform(4))
    item = Transition(jnp.zeros(1), jnp.zeros(SPACE.shape), jnp.float32(0), jnp.bool_(False), jnp.zeros(1))
    state = memory.add(memory.init(item), jax.tree.map(lambda x: jnp.stack([x, x]), item))
    pair = memory.sample(KEY, state, 8)
    mixture = pair.mixture()
    assert mixture.reward.shape == (16,) and mixture.terminated[:8].all() and not mixture.terminated[8:].any()
    assert recoil.demonstrated(stored, stored).add is None

"""Derivatives of whole training runs, and counters that outlast them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithm import num_updates, train
from jaxrl.algos import ppo, ppo_rnn, pqn_rnn
from jaxrl.rollout import ticked
from jaxrl.testing.probes import ObservationActionReward

SMALL = dict(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))
KEY = jax.random.key(0)


def last_loss(algo, module, remat=False):
    """Of the learning rate: the loss after a run of three updates."""

    def run(rate):
        hyper = module.Hyper(learning_rate=rate)
        return train(algo, KEY, 3 * algo.steps_per_update, hyper, remat=remat)[1]["loss"][-1]

    return run


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [ppo_rnn, pqn_rnn])
@pytest.mark.parametrize("rnn", ["gru", "lstm"])
def test_recurrent_training_has_a_forward_derivative(module, rnn):
    config = module.Config(rnn=rnn, rnn_size=4, **SMALL)
    algo = module.make(ObservationActionReward("discrete"), config)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(last_loss(algo, module), (1e-2,), (1.0,))
    plain = module.make(
        ObservationActionReward("discrete"), module.Config(rnn=rnn, rnn_size=4, forward_mode=True, **SMALL)
    )
    run = last_loss(plain, module)
    value, slope = jax.jit(lambda rate: jax.jvp(run, (rate,), (1.0,)))(1e-2)
    wanted, backwards = jax.jit(jax.value_and_grad(last_loss(algo, module)))(1e-2)
    np.testing.assert_allclose(value, wanted, rtol=1e-4)
    np.testing.assert_allclose(slope, backwards, rtol=1e-3)
    assert slope != 0


@pytest.mark.slow
@pytest.mark.light
def test_rematerialised_training_has_the_same_gradient():
    algo = ppo.make(ObservationActionReward(), ppo.Config(**SMALL))
    kept, again = (jax.jit(jax.grad(last_loss(algo, ppo, remat)))(1e-2) for remat in (False, True))
    np.testing.assert_allclose(again, kept, rtol=1e-4)
    assert kept != 0


def test_the_step_counter_does_not_turn_negative():
    most = np.iinfo(np.int32).max
    step = jnp.asarray([0, most - 10, most - 3, most], jnp.int32)
    np.testing.assert_array_equal(jax.vmap(lambda x: ticked(x, 10))(step), [10, most, most, most])


def test_more_steps_than_an_int32_counts():
    algo = ppo.make(ObservationActionReward(), ppo.Config(**SMALL))
    assert num_updates(algo, 3_000_000_000) == 93_750_000

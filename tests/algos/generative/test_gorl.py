"""GoRL: the first decoder, the penalty and the limits of stages by hand, what a new stage replaces and keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from jaxrl.algos import gorl
from jaxrl.environment import strongly_typed
from jaxrl.nn import nets
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
ENV = ObservationActionReward("box")
SMALL = dict(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, num_flow_steps=3, hidden=(8,))
SMALL |= dict(encoder_hidden=(4,), refit_rollouts=2, refit_steps=3, refit_batch_size=16)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def test_the_penalty_on_z():
    mean, std = jnp.array([[1.0, -2.0], [0.0, 1.0]]), jnp.array([[1.0, 1.0], [0.5, 2.0]])
    close(gorl.z_penalty(mean, std), (1 + 4 + 0 + 1) / 4 + (1 + 1 + 0.25 + 4) / 4)


@pytest.mark.slow
@pytest.mark.light
def test_stages():
    """Two updates a stage: the first one acts by z itself; the second one ends with a new decoder and encoder."""
    algo = gorl.make(ENV, gorl.Config(**SMALL, stage_updates=2))
    learner = algo.init.__self__

    def run(key):
        states, rollouts, reports = [algo.init(key, gorl.Hyper(learning_rate=1e-2))], [], []
        for _ in range(3):
            state, rollout = algo.collect(states[-1])
            state, report = algo.learn(state, rollout)
            states, rollouts, reports = [*states, state], [*rollouts, rollout], [*reports, report]
        pi = learner.latent(states[0].weights["encoder"], rollouts[0].obs)
        return states, rollouts, reports, (pi.mean, jnp.exp(pi.log_std))

    states, rollouts, reports, (mean, std) = jax.jit(run)(KEY)
    first = rollouts[0]
    close(first.action, np.clip(first.z, -1, 1))  # the identity, which the normal distribution is clipped by
    close(first.log_prob, norm.logpdf(first.z, mean, std).sum(-1), rtol=1e-4)
    close([mean, std], [np.zeros(mean.shape), np.ones(std.shape)], atol=0.1)
    close(reports[0]["approx_kl"], 0, atol=1e-5)  # one step of gradients, at the weights that acted

    def moved(before, after):
        return jax.tree.map(lambda x, y: bool(np.any(x != y)), before, after)

    weights = [state.weights for state in states]
    for name in ("encoder", "critic"):
        assert all(jax.tree.leaves(moved(weights[0][name], weights[1][name]))), name
    jax.tree.map(np.testing.assert_array_equal, weights[0]["decoder"], weights[1]["decoder"])
    assert np.isnan(reports[0]["decoder_loss"]) and np.isfinite(reports[1]["decoder_loss"])
    assert all(jax.tree.leaves(moved(weights[1]["decoder"], weights[2]["decoder"])))
    assert states[2].optimizer["encoder"].count == 0 and states[2].optimizer["critic"].count == 2
    jax.tree.map(np.testing.assert_array_equal, weights[2]["decoder"], weights[3]["decoder"])
    assert np.any(np.abs(rollouts[2].action - np.clip(rollouts[2].z, -1, 1)) > 1e-4)

    obs, action = states[2].buffer  # the stage's two rollouts, in order
    for part, name in ((obs, "obs"), (action, "action")):
        np.testing.assert_array_equal(part, np.concatenate([getattr(x, name) for x in rollouts[:2]]))


def test_a_fit_is_a_branch_also_of_several_seeds():
    """Where the predicate of a `cond` is batched, both of its sides are computed, at every update."""
    algo = gorl.make(ENV, gorl.Config(**SMALL, stage_updates=2))
    keys = jax.random.split(KEY, 2)
    states, rollouts = jax.eval_shape(jax.vmap(lambda key: algo.collect(algo.init(key))), keys)
    jaxpr = jax.make_jaxpr(jax.vmap(algo.learn))(states, rollouts)
    lengths = [x.params["length"] for x in jaxpr.jaxpr.eqns if x.primitive.name == "scan"]
    assert SMALL["refit_steps"] not in lengths and "cond" in {x.primitive.name for x in jaxpr.jaxpr.eqns}


def test_later_stages_have_limits_of_their_own():
    """At the old policy the ratio is 1: the loss is the penalty, with the coefficient of its stage."""
    algo = gorl.make(ENV, gorl.Config(**SMALL, stage_updates=2))
    learner, hyper = algo.init.__self__, gorl.Hyper(z_coef=0.5, later_z_coef=2.0, ent_coef=0.0)
    hyper = strongly_typed(hyper)

    def run(key):
        state = algo.init(key, hyper)
        obs, z = jnp.ones((6, 1)), jax.random.normal(key, (6, 1))
        log_prob = learner.latent(state.weights["encoder"], obs).log_prob(z)
        batch = gorl.Batch(obs, z, log_prob, jnp.arange(6.0), jnp.zeros(6))
        learning = {
            name: nets.net(state.weights[name], x, learner.optimizer, name=name) for name, x in state.optimizer.items()
        }
        return [learner.gradient_step(learning, batch, hyper, jnp.bool_(later))[1] for later in (False, True)]

    early, late = jax.jit(run)(KEY)
    close(early["policy_loss"], 0, atol=1e-6)
    close(early["encoder_loss"], 0.5 * early["z_penalty"], rtol=1e-4)
    close(late["encoder_loss"], 2.0 * late["z_penalty"], rtol=1e-4)


def test_settings_that_cannot_be():
    with pytest.raises(ValueError, match="refit_rollouts=11: it must be at most stage_updates=5"):
        gorl.Config(refit_rollouts=11, stage_updates=5)
    with pytest.raises(ValueError, match="num_flow_steps=0"):
        gorl.Config(num_flow_steps=0)


@pytest.mark.slow
@pytest.mark.light
def test_the_new_decoder_has_both_modes():
    """Actions at -0.5 and 0.5 in the stored rollouts: from N(0, I) the decoder draws both, whatever the encoder did."""
    sizes = {**SMALL, "hidden": (32, 32), "refit_steps": 3000, "refit_batch_size": 128, "num_flow_steps": 10}
    learner = gorl.make(ENV, gorl.Config(**sizes)).init.__self__

    @jax.jit
    def run(key):
        side = jnp.where(jax.random.bernoulli(key, 0.5, (16, 4, 1)), 0.5, -0.5)
        hyper = strongly_typed(gorl.Hyper(decoder_learning_rate=5e-3, max_grad_norm=1.0))
        decoder, encoder, _, _ = learner.next_stage(key, (jnp.ones((16, 4, 1)), side), hyper)
        obs = jnp.ones((2000, 1))
        return learner.decode(decoder, obs, learner.latent(encoder, obs).sample(key)), jnp.mean(side > 0)

    action, share = run(KEY)
    near = [np.mean(np.abs(np.asarray(action) - at) < 0.15) for at in (-0.5, 0.5)]
    close(near, [0.9 * (1 - share), 0.9 * share], atol=0.1)

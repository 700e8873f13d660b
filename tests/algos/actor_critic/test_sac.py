"""SAC and CrossQ: targets, losses and normalisation against arrays computed by hand, and what an update does."""

from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl import make
from jaxrl.algos import crossq, ddpg, dqn, sac, td3
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.nn.actor_critic import TanhGaussian
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import Masked, ObservationActionReward, Privileged
from jaxrl.testing.rules import step

SIZES = dict(num_envs=2, num_steps=2, num_updates=2, batch_size=8, buffer_size=32, hidden=(8,))
WIDE = {**SIZES, "critic_hidden": (8,), "policy_delay": 2}
START = dict(learning_starts=4, learning_rate=1e-2, alpha_learning_rate=1e-2)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- what is reported


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [sac, crossq])
def test_updates_without_a_gradient_step_report_nothing(module):
    """Zeros would make the mean of a row, as `fit` logs it, that of something else: alpha 0.25 in place of 1."""
    config = module.Config(**{**(WIDE if module is crossq else SIZES), "num_updates": 1})
    algo = module.make(ObservationActionReward("box"), config)
    update = jax.jit(algo.update)
    state = algo.init(jax.random.key(0), module.Hyper(learning_starts=0, replay_ratio=0.125))
    rows = []
    for _ in range(4):
        state, metrics = update(state)
        rows.append(metrics)
    steps = [int(row["gradient_steps"]) for row in rows]
    assert steps == [0, 1, 0, 1]
    for name in ("loss", "alpha", "q_value", "grad_norm"):
        np.testing.assert_array_equal(np.isfinite([row[name] for row in rows]), np.array(steps) > 0, name)
    assert all(0.9 < row["alpha"] < 1.1 for row in rows[1::2])


@pytest.mark.parametrize("module", [sac, crossq, td3, ddpg, dqn])
def test_a_replay_ratio_that_the_updates_cannot_hold_is_refused(module):
    env = ObservationActionReward("discrete" if module is dqn else "box")
    algo = module.make(env, module.Config(num_envs=2, num_steps=2, num_updates=2, buffer_size=32))
    for fine in (0.5, 0.1, np.inf):
        jax.eval_shape(lambda fine=fine: algo.init(jax.random.key(0), module.Hyper(replay_ratio=fine)))
    with pytest.raises(
        ValueError, match=r"replay_ratio=4.0: with .* = 4 steps an update it needs num_updates=16, .* 2"
    ):
        algo.init(jax.random.key(0), module.Hyper(replay_ratio=4))


# ---- targets and losses


def test_soft_value_of_a_sampled_action_by_hand():
    q, log_prob = jnp.array([[1.0, 2.0], [3.0, 0.0]]), jnp.array([-1.0, -2.0])
    close(sac.soft_value(q, log_prob, 0.5), [1.5, 1.0])


class Table:
    """The values of numbered states, whatever the action, and statistics that count the batches."""

    def apply(self, variables, obs, action, train=False, mutable=None):
        q = variables["q"][obs]
        return q if mutable is None else (q, {"batch_stats": jax.tree.map(lambda x: x + 1, variables["batch_stats"])})


class Known(TanhNormal):
    """Log-densities that are its mean."""

    def sample_and_log_prob(self, key):
        return jnp.zeros_like(self.mean), self.mean[:, 0]


class Actor(TanhGaussian):
    def __call__(self, weights, obs):
        mean = jnp.array([0.0, 0.0, -1.0, -2.0])[obs][:, None]
        return Known(mean, mean)


def test_crossqs_soft_target_by_hand():
    """Of the critics themselves at next states 2 and 3, whose values have no gradient; halved squares."""
    rule = crossq._CrossQ(crossq.Config(policy_delay=2), Table(), Actor(nn.Module()))
    q = jnp.array([[0.5, 0.0, 1.0, 2.0], [1.0, -1.0, 3.0, 0.0]])
    weights = {"critic": {"q": q}, "actor": jnp.zeros(1), "log_alpha": jnp.log(0.5)}
    zeros = jnp.zeros((2, 1))
    batch = Transition(jnp.arange(2), zeros, jnp.array([1.0, 2.0]), jnp.array([False, False]), jnp.arange(2, 4))
    hyper = crossq.Hyper(gamma=0.5, learning_rate=1.0)
    report, change = step(rule, weights, {}, batch, hyper, jax.random.key(0), {"batch_stats": {"steps": jnp.zeros(2)}})
    close(q[:, :2] - 2 * change["critic"]["q"][:, :2], [[1 + 0.5 * 1.5, 2 + 0.5 * 1.0]] * 2)
    close(change["critic"]["q"][:, 2:], 0)
    close(report["q_value"], q[:, :2].mean())


def test_soft_value_of_a_discrete_policy_by_hand():
    q, probability = jnp.array([[[1.0, 2.0]], [[3.0, 0.0]]]), np.array([[0.25, 0.75]])
    expected = 0.25 * (1 + 0.5 * np.log(4)) + 0.75 * (0 - 0.5 * np.log(0.75))
    close(sac.soft_value(q, jnp.log(jnp.asarray(probability)), 0.5), [expected])
    # A forbidden action, whose log-probability is large and finite, counts for nothing.
    barred = jnp.array([[0.0, -1e8]])
    close(sac.soft_value(jnp.array([[[1.0, 9.0]], [[2.0, 9.0]]]), barred, 0.5), [1.0])


def test_targets_and_losses_by_hand():
    reward, terminated = jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])
    close(td_target(reward, terminated, jnp.array([1.0, 4.0, -1.0]), 0.5), [1.5, 2.0, 2.5])
    close(0.5 * critic_loss(jnp.array([[0.0, 1.0], [2.0, 3.0]]), jnp.array([1.0, 1.0])), 0.5 * (0.5 + 2.5))
    slope = jax.grad(temperature_loss)
    close(slope(jnp.float32(0.3), jnp.float32(-0.5), -1.0), 0.5)  # more random than it should be: the temperature falls
    close(jax.grad(temperature_loss, 1)(jnp.float32(0.3), jnp.float32(-0.5), -1.0), 0)


def test_default_target_entropy():
    assert sac.default_target_entropy(Box(-1.0, 1.0, (3,))) == -3
    assert sac.default_target_entropy(Discrete(4)) == pytest.approx(0.89 * np.log(4))
    allowed = jnp.array([[True, True, False, False], [True, False, False, False], [True, True, True, True]])
    close(sac.default_target_entropy(Discrete(4), allowed), 0.89 * (np.log(2) + 0 + np.log(4)) / 3)


def test_the_temperature_of_masked_actions_has_an_end():
    """Of four actions two are allowed: no policy has the entropy 0.89 log 4, which alpha would chase for ever."""
    algo = sac.make(Masked(), sac.Config(**SIZES))
    hyper = sac.Hyper(learning_starts=0, alpha_learning_rate=1.0)
    state = jax.jit(algo.init)(jax.random.key(0), hyper)
    obs = jax.tree.map(lambda x: x[None], {"obs": jnp.zeros(1), "action_mask": jnp.arange(4) < 2})
    batch = Transition(obs, jnp.zeros(1, jnp.int32), jnp.zeros(1), jnp.zeros(1, bool), obs)

    def target(hyper):
        weights = state.weights, state.target_weights
        report, change = step(algo.learn.__self__.rule, *weights, batch, hyper, jax.random.key(0))
        return report["entropy"] - change["log_alpha"]

    close(target(hyper), 0.89 * np.log(2))
    close(target(hyper.replace(target_entropy=0.3)), 0.3)


def test_renormalisation_by_hand():
    x = jnp.array([[0.0, 10.0], [2.0, 30.0]])  # means 1 and 20, standard deviations 1 and 10
    mean, var = jnp.array([0.5, 100.0]), jnp.array([4.0, 1.0])
    plain, batch_mean, batch_var = crossq.renormalize(x, mean, var, False, 0.0)
    close(plain, [[-1, -1], [1, 1]])
    close(batch_mean, [1, 20])
    close(batch_var, [1, 100])
    # First column: what the running statistics say. Second: r = 10 / 1 and d = -80 / 1 are cut to 3 and -5.
    warm, _, _ = crossq.renormalize(x, mean, var, True, 0.0)
    close(warm, [[-0.25, -3 - 5], [0.75, 3 - 5]])
    # The correction is not differentiated: the gradient is that of plain normalisation, scaled by r.
    weights = jnp.array([[1.0, 2.0], [0.5, -1.0]])
    linear = [
        jax.grad(lambda x, on=on: jnp.sum(weights * crossq.renormalize(x, mean, var, on, 0.0)[0]))(x)
        for on in (False, True)
    ]
    close(linear[1], linear[0] * jnp.array([0.5, 3.0]), atol=1e-6)


def test_running_statistics_follow_training_batches_only():
    layer = crossq.BatchRenorm(momentum=0.75, warmup=1)
    x = jnp.array([[0.0], [4.0]])
    variables = layer.init(jax.random.key(0), x, True)
    close(variables["batch_stats"]["mean"], [0])
    y, new = layer.apply(variables, x, True, mutable=["batch_stats"])
    close(y, [[-1], [1]], rtol=1e-3)
    close(new["batch_stats"]["mean"], [0.5])
    close(new["batch_stats"]["var"], [0.75 + 0.25 * 4])
    assert new["batch_stats"]["steps"] == 1
    evaluated = layer.apply({**variables, **new}, x, False)
    close(evaluated, (x - 0.5) / np.sqrt(1.75 + 1e-3))
    again, _ = layer.apply({**variables, **new}, x, True, mutable=["batch_stats"])
    close(again, evaluated, atol=1e-6)  # past the warm-up, within the limits


# ---- what an update does


@cache
def jitted(module, env_id="Pendulum-v1", **changes):
    env, _ = make(env_id)
    algo = module.make(env, module.Config(**{**(WIDE if module is crossq else SIZES), **changes}))
    return algo, jax.jit(algo.init), jax.jit(algo.update)


def flat(weights):
    return np.asarray(ravel_pytree(weights)[0])


@pytest.mark.slow
@pytest.mark.parametrize("case", [(sac, "Pendulum-v1"), (sac, "CartPole-v1"), (crossq, "Pendulum-v1")])
def test_learning_starts_and_every_parameter_group_learns(case):
    module, env_id = case
    _, init, update = jitted(module, env_id)
    first = state = init(jax.random.key(0), module.Hyper(**START))
    state, metrics = update(state)
    np.testing.assert_array_equal(flat(state.weights), flat(first.weights))
    assert metrics["gradient_steps"] == 0 and np.isnan(metrics["loss"])
    state, metrics = update(state)
    assert metrics["gradient_steps"] == 2 and metrics["loss"] > 0 and 0 < metrics["active_units"] < 1
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)), moved
    if module is crossq:
        assert state.optimizer["actor"].count == 1 and state.optimizer["critic"].count == 2
        assert set(state.weights["critic"]) == {"params"}
        np.testing.assert_array_equal(state.extra["batch_stats"]["BatchRenorm_0"]["steps"], [2, 2])
        assert np.any(flat(state.extra) != flat(first.extra))


@pytest.mark.slow
@pytest.mark.light
def test_targets_follow_every_gradient_step():
    _, init, update = jitted(sac, num_updates=1)
    state, _ = update(init(jax.random.key(0), sac.Hyper(**START, tau=0.25)))
    first = flat(state.target_weights)
    state, _ = update(state)
    close(flat(state.target_weights), 0.75 * first + 0.25 * flat(state.weights["critic"]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "rises"), [(5.0, True), (-50.0, False)])
def test_temperature_follows_the_target_entropy(target, rises):
    _, init, update = jitted(sac)
    state, _ = update(init(jax.random.key(0), sac.Hyper(**START, target_entropy=target, alpha=0.5)))
    close(np.exp(state.weights["log_alpha"]), 0.5)
    state, _ = update(state)
    assert (state.weights["log_alpha"] > np.log(0.5)) == rises


def test_a_temperature_may_be_held():
    _, init, update = jitted(sac)
    state = init(jax.random.key(0), sac.Hyper(**{**START, "alpha_learning_rate": 0.0}, alpha=0.125))
    state, metrics = update(update(state)[0])
    close(metrics["alpha"], 0.125)
    close(state.weights["log_alpha"], np.log(0.125))


@pytest.mark.slow
@pytest.mark.light
def test_masked_actions_are_never_taken():
    algo = sac.make(Masked(id="SAC's mask"), sac.Config(**{**SIZES, "num_envs": 16, "buffer_size": 256}))
    state = algo.init(jax.random.key(0), strongly_typed(sac.Hyper(learning_starts=1000)))
    collect = jax.jit(algo.collect)
    for count in (0, 1000):  # at random, and by the policy
        _, rollout = collect(state.replace(step=jnp.int32(count)))
        mask, action = rollout.transition.obs["action_mask"], rollout.transition.action
        assert np.take_along_axis(np.asarray(mask), np.asarray(action)[..., None], -1).all()
        assert len(np.unique(action)) == 4
    greedy, _ = algo.act(algo.policy(state), jax.random.key(0), state.obs, greedy=True)
    assert np.take_along_axis(np.asarray(state.obs["action_mask"]), np.asarray(greedy)[:, None], -1).all()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("case", [(sac, "box"), (sac, "discrete"), (crossq, "box")])
def test_critics_see_what_is_privileged_and_the_actor_does_not(case):
    module, kind = case
    config = module.Config(**(WIDE if module is crossq else SIZES))
    algo = module.make(Privileged(kind, id="SAC's probe"), config)
    state = jax.eval_shape(algo.init, jax.random.key(0))
    assert state.weights["actor"]["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (1, 8)
    critic = state.weights["critic"]["params"]
    critic = critic if module is crossq else critic["MLP_0"]
    assert critic["Dense_0"]["kernel"].shape == (2, 2 if kind == "discrete" else 3, 8)
    action, _ = algo.act(algo.policy(algo.init(jax.random.key(0))), jax.random.key(0), {"obs": jnp.zeros((5, 1))})
    assert action.shape == ((5,) if kind == "discrete" else (5, 1))


@pytest.mark.slow
def test_keeps_the_contract_with_discrete_actions():
    check_algorithm(sac.make(ObservationActionReward(), sac.Config(**SIZES)), hyper=sac.Hyper(**START), num_updates=4)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("case", [(sac, "box", 61), (sac, "discrete", 62), (crossq, "box", 63)])
def test_no_key_is_used_twice(case):
    module, kind, seed = case

    def run(key):
        env = ObservationActionReward(kind, id="key reuse")
        algo = module.make(env, module.Config(**(WIDE if module is crossq else SIZES)))
        state, _ = algo.update(algo.init(key, module.Hyper(**START)))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key(seed))


# ---- what is refused


class Linear(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, obs, action=None):
        return nn.Dense(self.outputs)(obs)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sac.Config(batch_size=0), r"batch_size=0.*at least 1"),
        (lambda: crossq.Config(policy_delay=0), r"policy_delay=0.*at least 1"),
        (lambda: crossq.Config(momentum=1.0), r"momentum=1.0.*below 1"),
        (
            lambda: sac.make(make("CartPole-v1")[0], sac.Config(**SIZES), actor=Linear(3)),
            r"actions \(2, 3\).*needs \(2, 2\)",
        ),
        (lambda: crossq.make(make("CartPole-v1")[0]), r"one-dimensional Box.*CartPole-v1"),
        (lambda: sac.make(ObservationActionReward("multi_discrete")), r"MultiDiscrete"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

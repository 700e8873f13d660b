"""TD3, DDPG and MEX: targets and losses against arrays computed by hand, and what an update does and leaves alone."""

import dataclasses
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl import make, vectorize
from jaxrl.algos import ddpg, td3
from jaxrl.algos.actor_critic import mex
from jaxrl.environment import strongly_typed
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward, Privileged

SIZES = dict(num_envs=2, num_steps=2, num_updates=2, batch_size=8, buffer_size=32, hidden=(8,))
START = dict(learning_starts=4, learning_rate=1e-2)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- targets and losses

REWARD = jnp.array([1.0, 2.0, 3.0])
TERMINATED = jnp.array([False, True, False])


def test_targets_by_hand():
    next_q = jnp.array([[1.0, 5.0, 2.0], [2.0, 4.0, -1.0]])
    close(td_target(REWARD, TERMINATED, jnp.min(next_q, 0), 0.5), [1.5, 2.0, 2.5])
    close(td_target(REWARD, TERMINATED, next_q[1], 0.5), [2.0, 2.0, 2.5])


def test_losses_by_hand():
    q, target = jnp.array([[0.0, 1.0], [2.0, 3.0]]), jnp.array([1.0, 1.0])
    close(critic_loss(q, target), 0.5 + 2.5)
    close(critic_loss(q[1:], target), 2.5)
    close(jax.grad(critic_loss)(q, target), [[-1.0, 0.0], [1.0, 2.0]])


def test_target_is_that_of_rlax():
    rlax = pytest.importorskip("rlax")
    q, next_q = jnp.array([0.5, -1.0, 2.0]), jnp.array([2.0, 1.0, 0.5])
    error = jax.vmap(rlax.td_learning)(q, REWARD, 0.9 * ~TERMINATED, next_q)
    close(td_target(REWARD, TERMINATED, next_q, 0.9) - q, error)


def test_noise_stays_in_the_box_and_advantage_is_over_a_soft_maximum():
    key, action = jax.random.key(0), jnp.linspace(-1, 1, 64)[:, None]
    drawn = np.clip(0.4 * jax.random.normal(key, action.shape), -0.5, 0.5)
    smoothed = td3.smoothed(key, action, 0.4, 0.5)
    close(smoothed, np.clip(action + drawn, -1, 1))
    assert np.abs(smoothed).max() == 1 and np.abs(smoothed - action).max() == 0.5
    advantage = mex.advantage(jnp.array([[1.0], [3.0]]), jnp.array([[[0.0, 0.0, 0.0]], [[3.0, 3.0, 3.0]]]))
    close(advantage, [[1 - np.log(3)], [-np.log(3)]])


# ---- what an update does


@cache
def jitted(module, **changes):
    env, _ = make("Pendulum-v1")
    algo = module.make(env, module.Config(**{**SIZES, **changes}))
    return algo, jax.jit(algo.init), jax.jit(algo.update)


def started(module, seed=0, **hyper):
    algo, init, update = jitted(module)
    return init(jax.random.key(seed), module.Hyper(**{**START, **hyper})), update


def flat(weights):
    return np.asarray(ravel_pytree(weights)[0])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [td3, ddpg])
def test_learning_starts_and_targets_follow(module):
    state, update = started(module, tau=0.25)
    first = state
    state, metrics = update(state)
    np.testing.assert_array_equal(flat(state.weights), flat(first.weights))
    assert metrics["gradient_steps"] == 0 and np.isnan(metrics["loss"]) and state.optimizer["critic"].count == 0
    np.testing.assert_array_equal(state.replay.size, 4)
    # Random actions are spread over the box, where the untrained actor's are near its middle.
    state, metrics = update(state)
    assert metrics["gradient_steps"] == 2 and metrics["loss"] > 0 and 0 < metrics["active_units"] < 1
    assert state.optimizer["critic"].count == 2
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)), moved
    if module is td3:  # the second gradient step is the actor's first, and the only one after which targets moved
        assert state.optimizer["actor"].count == 1
        close(flat(state.target_weights), 0.75 * flat(first.weights) + 0.25 * flat(state.weights), atol=1e-6)


@pytest.mark.slow
def test_the_actor_waits_its_turn_and_steps_follow_the_replay_ratio():
    state, update = started(td3, replay_ratio=0.25)  # one of two gradient steps an update
    state, _ = update(state)
    for count in (1, 2, 3):
        before, (state, metrics) = state, update(state)
        assert metrics["gradient_steps"] == 1 and state.optimizer["critic"].count == count
        assert state.optimizer["actor"].count == count // 2
        assert np.any(flat(before.weights["actor"]) != flat(state.weights["actor"])) == (count == 2)
        assert np.any(flat(before.target_weights) != flat(state.target_weights)) == (count == 2)
        assert np.isfinite(metrics["actor_loss"]) == (count == 2)  # not a number where it waits, and no zero


@pytest.mark.slow
def test_first_actions_are_uniform_and_the_replay_holds_true_successors():
    env, params = make("Pendulum-v1")
    config = td3.Config(**{**SIZES, "num_envs": 64, "num_steps": 6, "buffer_size": 512})
    algo = td3.make(env, config)
    hyper = strongly_typed(td3.Hyper(learning_starts=1000, exploration_noise=0.0))
    state = algo.init(jax.random.key(1), hyper, params.replace(max_steps=jnp.int32(3)))
    collect = jax.jit(algo.collect)
    after, rollout = collect(state)
    action = rollout.transition.action
    assert abs(action.mean()) < 0.1 and abs(action.std() - 1 / np.sqrt(3)) < 0.05 and abs(action).max() <= 1
    done = rollout.ends.done
    assert done[2].all() and done[5].all() and done.sum() == 128 and not rollout.transition.terminated.any()
    # An episode's last successor is not the next one's first observation.
    assert np.any(rollout.transition.next_obs[2] != rollout.transition.obs[3], -1).all()
    np.testing.assert_array_equal(rollout.transition.next_obs[0], rollout.transition.obs[1])
    _, later = collect(state.replace(step=jnp.int32(1000)))
    expected, _ = algo.act(algo.policy(state), jax.random.key(0), state.obs, greedy=True)
    close(2 * later.transition.action[0], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_optimism_raises_values():
    """The reported loss falls by eta times the sum of mean values; the gradient goes with it."""
    _, init, update = jitted(mex, num_updates=1)
    losses = {}
    for eta in (0.0, 0.5):
        state, _ = update(init(jax.random.key(0), mex.Hyper(**START, optimism=eta)))
        state, metrics = update(state)
        losses[eta] = metrics["loss"], metrics["q_value"]
    close(losses[0.0][1], losses[0.5][1])
    close(losses[0.5][0], losses[0.0][0] - 0.5 * 2 * losses[0.0][1], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_optimism_about_the_actor_is_a_loss_of_the_critics():
    _, init, update = jitted(mex, num_updates=1, baseline=True)
    weights = []
    for eta in (0.0, 0.5):
        state, _ = update(update(init(jax.random.key(0), mex.Hyper(**START, optimism=eta)))[0])
        weights.append(state.weights)
    assert np.any(flat(weights[0]["critic"]) != flat(weights[1]["critic"]))
    close(flat(weights[0]["actor"]), flat(weights[1]["actor"]))  # it has not had its turn


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [td3, ddpg])
def test_critics_see_what_is_privileged_and_the_actor_does_not(module):
    algo = module.make(Privileged("box", id="TD3's probe"), module.Config(**SIZES))
    state = algo.init(jax.random.key(0), module.Hyper(**START))
    assert state.weights["actor"]["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (1, 8)
    assert state.weights["critic"]["params"]["MLP_0"]["Dense_0"]["kernel"].shape[-2:] == (3, 8)
    assert set(state.replay.items.obs) == {"obs", "privileged"}
    action, _ = algo.act(algo.policy(state), jax.random.key(0), {"obs": jnp.zeros((5, 1))})
    assert action.shape == (5, 1)


def test_layer_norm_is_in_the_critics_only():
    env, _ = make("Pendulum-v1")
    algo = td3.make(env, td3.Config(**SIZES, layer_norm=True))
    weights = jax.eval_shape(algo.init, jax.random.key(0)).weights
    assert "LayerNorm_0" in weights["critic"]["params"]["MLP_0"]
    assert "LayerNorm_0" not in weights["actor"]["params"]["MLP_0"]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [td3, ddpg])
def test_no_key_is_used_twice(module):
    def run(key):
        algo = module.make(ObservationActionReward("box", id="key reuse"), module.Config(**SIZES))
        state, _ = algo.update(algo.init(key, module.Hyper(**START)))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key({td3: 51, ddpg: 52}[module]))


# ---- what may be brought along, and what is refused


class Linear(nn.Module):
    outputs: int = 1

    @nn.compact
    def __call__(self, obs, action=None):
        x = nn.Dense(self.outputs)(obs if action is None else jnp.concatenate([obs, action], -1))
        return jnp.tanh(x) if action is None else x[..., 0]


def test_bring_your_own_networks_and_vector_env():
    venv = vectorize(make("Pendulum-v1")[0], 2, "dense")
    algo = td3.make(venv, td3.Config(**SIZES), actor=Linear(), critic=Linear())
    assert algo.venv is venv
    state, metrics = jax.eval_shape(lambda key: algo.update(algo.init(key)), jax.random.key(0))
    assert state.weights["critic"]["params"]["Dense_0"]["kernel"].shape == (2, 4, 1)
    assert metrics["active_units"].shape == ()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: td3.Config(num_envs=0), r"num_envs=0.*at least 1"),
        (lambda: td3.Config(policy_delay=0), r"policy_delay=0.*at least 1"),
        (lambda: ddpg.Config(num_envs=4, num_steps=8, buffer_size=31), r"buffer_size=31.*32 transitions"),
        (
            lambda: td3.make(make("Pendulum-v1")[0], td3.Config(**SIZES), actor=Linear(2)),
            r"actions \(2, 2\).*needs \(2, 1\)",
        ),
        (lambda: td3.make(make("CartPole-v1")[0]), r"one-dimensional Box.*CartPole-v1"),
        (lambda: ddpg.make(vectorize(make("Pendulum-v1")[0], 4)), r"num_envs=4 but the config says 1"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_configs_are_static_and_hypers_are_leaves():
    assert hash(td3.Config()) == hash(td3.Config()) and dataclasses.is_dataclass(td3.Config)
    assert all(x.shape == () for x in jax.tree.leaves(strongly_typed(td3.Hyper())))

"""PQN, also recurrent: targets and losses against arrays computed by hand and rlax, what a carry remembers."""

import dataclasses
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, train
from jaxrl.algos import pqn, pqn_rnn
from jaxrl.environment import strongly_typed
from jaxrl.nn.action_values import best_value, epsilon_at
from jaxrl.returns import lambda_returns
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import DelayedReward, Masked, ObservationActionReward

TINY = pqn.Config(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(8,))
GRU = pqn_rnn.Config(**dataclasses.asdict(TINY), rnn_size=8, burn_in=3)
LSTM = dataclasses.replace(GRU, rnn="lstm", burn_in=0)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


class Table(nn.Module):
    """Values linear in the observation."""

    outputs: int = 2

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.outputs, use_bias=False)(obs)


class Sequences(nn.Module):
    """The same of sequences; nothing is remembered."""

    outputs: int = 2

    def initial_carry(self, batch_shape):
        return ()

    @nn.compact
    def __call__(self, hidden, obs, start):
        return hidden, nn.Dense(self.outputs, use_bias=False)(obs)


BATCH = pqn.Batch(jnp.eye(2), jnp.array([0, 1]), jnp.array([0.0, 7.0]))
PAST = pqn_rnn.Past((), jnp.zeros((0, 2, 2)), jnp.zeros((0, 2), bool))
SEQUENCE = pqn_rnn.Batch(*jax.tree.map(lambda x: x[None], BATCH), jnp.ones((1, 2), bool), PAST)


@pytest.mark.parametrize(
    ("module", "batch", "net"), [(pqn, BATCH, Table()), (pqn_rnn, SEQUENCE, Sequences())], ids=["pqn", "pqn_rnn"]
)
def test_loss_by_hand(module, batch, net):
    """Values 1, 3 and 2, 5 at the unit vectors: errors 1 - 0 and 5 - 7 of the actions taken."""
    weights = {"params": {"Dense_0": {"kernel": jnp.array([[1.0, 3.0], [2.0, 5.0]])}}}
    total, report = module.loss(weights, batch, net)
    close(total, (0.5 * 1 + 0.5 * 4) / 2)
    close(report["q_value"], 3)
    slope = jax.grad(lambda w: module.loss(w, batch, net)[0])(weights)["params"]["Dense_0"]["kernel"]
    close(slope, [[0.5, 0], [0, -1]])


def test_targets_are_pengs_q_lambda():
    """A column by hand (gamma 0.5, lambda 0.5), then rlax where nothing is cut."""
    reward, value = jnp.array([1.0, 2.0, 4.0])[:, None], jnp.array([8.0, 16.0, 32.0])[:, None]
    none, middle = jnp.zeros((3, 1), bool), jnp.array([False, True, False])[:, None]

    def at(terminated, truncated):
        return lambda_returns(reward, value, terminated, truncated, 0.5, 0.5)[:, 0]

    # Last: 4 + 32 / 2 = 20. Before: 2 + (16 + 20) / 4 = 11; 1 + (8 + 11) / 4 = 5.75.
    close(at(none, none), [5.75, 11, 20])
    close(at(middle, none), [1 + (8 + 2) / 4, 2, 20])
    close(at(none, middle), [1 + (8 + 10) / 4, 2 + 16 / 2, 20])
    rlax = pytest.importorskip("rlax")
    q = jax.random.normal(jax.random.key(0), (4, 3))
    terminated = jnp.array([False, True, False])
    error = rlax.q_lambda(q[:-1], jnp.array([0, 1, 2]), reward[:, 0], 0.5 * ~terminated, q[1:], jnp.float32(0.5))
    best = best_value(q)[1:, None]
    target = lambda_returns(reward, best, terminated[:, None], none, 0.5, 0.5)[:, 0]
    close(error, target - jnp.diagonal(q[:-1]))


def test_best_value_is_of_allowed_actions():
    q = jnp.array([[1.0, 5.0, 3.0], [-2.0, -7.0, -1.0]])
    close(best_value(q), [5, -1])
    close(best_value(q, jnp.array([[True, False, True], [True, True, False]])), [3, -2])


@pytest.mark.parametrize("module", [pqn, pqn_rnn])
def test_exploration_is_linear(module):
    hyper = strongly_typed(module.Hyper(epsilon_start=1.0, epsilon_end=0.2, exploration_steps=100))
    close([epsilon_at(jnp.int32(s), hyper) for s in (0, 50, 100, 1000)], [1, 0.6, 0.2, 0.2])
    close(epsilon_at(jnp.int32(0), hyper.replace(exploration_steps=jnp.int32(0))), 0.2)


def module_of(config):
    return pqn_rnn if isinstance(config, pqn_rnn.Config) else pqn


@cache
def cartpole(config=TINY):
    """Episodes cut after three steps: every third bootstraps from its final observation."""
    env, params = make("CartPole-v1")
    algo = module_of(config).make(env, config)
    params = params.replace(max_steps=jnp.int32(3))
    return algo, jax.jit(lambda key, hyper=None: algo.init(key, hyper, params)), jax.jit(algo.collect)


@cache
def network(config):
    env, params = make("CartPole-v1")
    body = config.hidden, config.activation, config.layer_norm
    if config is TINY:
        return pqn.QNetwork(env.observation_space(params), 2, *body)
    return pqn_rnn.QNetwork(env.observation_space(params), 2, *body, config.rnn, config.rnn_size)


def sequence_values(config, weights, hidden, obs, start):
    """Action values of a sequence, replayed from `hidden`."""
    if config is TINY:
        return jax.jit(network(config).apply)(weights, obs)
    return jax.jit(network(config).apply)(weights, hidden, obs, start)[1]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, GRU, LSTM], ids=["none", "gru", "lstm"])
def test_a_rollout_bootstraps_from_the_final_observation_of_its_own_episode(config):
    """Every episode by itself, from nothing remembered: all values, and that of its final observation at the end."""
    _, init, collect = cartpole(config)
    state = init(jax.random.key(1))
    recurrent = config is not TINY
    assert not recurrent or np.all(state.carry.start)
    after, rollout = collect(state)
    np.testing.assert_array_equal(rollout.truncated.sum(0), 2)  # steps 2 and 5; the rollout ends in an episode
    if recurrent:
        np.testing.assert_array_equal(rollout.start.T, [np.arange(8) % 3 == 0] * 4)
    start = jnp.zeros((4, 4), bool)
    nothing = network(config).initial_carry((4,)) if recurrent else ()
    for first in (0, 3):
        steps = slice(first, first + 3)
        obs = rollout.obs[steps]
        env, params = make("CartPole-v1")

        @jax.vmap
        def step(obs, action, env=env, params=params):
            x = dict(zip(("x", "x_dot", "theta", "theta_dot"), obs, strict=True))
            at = env.initial(jax.random.key(0), params).replace(**x)
            return env.step(jax.random.key(0), at, action, params).obs

        final = step(obs[2], rollout.action[first + 2])
        episode = jnp.concatenate([obs, final[None]])
        q = sequence_values(config, state.weights, nothing, episode, start)
        close(rollout.value[steps], q.max(-1)[:3], atol=1e-5)
        close(rollout.next_value[steps], q.max(-1)[1:], atol=1e-5)
    # The last step's successor is where the next rollout begins.
    hidden = after.carry.hidden if recurrent else ()
    q = sequence_values(config, state.weights, hidden, after.obs[None], start[:1])
    close(rollout.next_value[-1], q[0].max(-1), atol=1e-5)


@pytest.mark.slow
def test_nothing_is_remembered_on_a_level_that_was_put_in():
    algo, init, collect = cartpole(GRU)
    state, _ = collect(init(jax.random.key(2)))
    slots = jnp.array([True, False, True, False])
    _, rollout = collect(algo.restart(state, jax.random.key(3), state.env_params, slots))
    np.testing.assert_array_equal(rollout.start[0], slots)


@pytest.mark.slow
@pytest.mark.parametrize("config", [GRU, dataclasses.replace(LSTM, burn_in=8)], ids=["gru", "lstm"])
def test_a_replay_of_the_sequence_is_what_happened(config):
    """Three rollouts with the same weights, which cut episodes: burn-in and replay give the values of acting."""
    _, init, collect = cartpole(config)
    state = init(jax.random.key(2))
    apply = jax.jit(network(config).apply)
    for _ in range(3):
        before = state
        state, rollout = collect(state)
        past = rollout.past
        assert jax.tree.leaves(past.obs)[0].shape == (config.burn_in, 4, 4)
        hidden, _ = apply(state.weights, *past)
        _, q = apply(state.weights, hidden, rollout.obs, rollout.start)
        close(q.max(-1), rollout.value, atol=1e-5)
        np.testing.assert_array_equal(rollout.start[0], before.carry.start)
    assert np.any(rollout.start) and not np.all(rollout.start[0])


@pytest.mark.slow
@pytest.mark.light
def test_burn_in_replaces_a_stale_carry_and_is_not_learnt_from():
    """A carry before the start of an episode in it does not matter, and gradients stop."""
    net, config = network(GRU), GRU
    _, init, _ = cartpole(config)
    weights = init(jax.random.key(3)).weights
    obs = jax.random.normal(jax.random.key(4), (7, 2, 4))
    hidden = jax.random.normal(jax.random.key(5), (1, 2, 8))
    start = jnp.zeros((7, 2), bool)

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1))
    def total(hidden, obs, start):
        past = pqn_rnn.Past(hidden, obs[:3], start[:3])
        batch = pqn_rnn.Batch(obs[3:], jnp.zeros((4, 2), jnp.int32), jnp.ones((4, 2)), start[3:], past)
        return pqn_rnn.loss(weights, batch, net)[0]

    stale, slopes = total(hidden, obs, start)
    assert stale != total(0 * hidden, obs, start)[0]
    assert np.all(slopes[0] == 0) and np.all(slopes[1][:3] == 0) and np.all(np.any(slopes[1][3:] != 0, (1, 2)))
    begun = start.at[1].set(True)
    close(total(hidden, obs, begun)[0], total(0 * hidden, obs, begun)[0])


@pytest.mark.slow
def test_a_deployed_carry_forgets_where_told():
    algo, init, _ = cartpole(GRU)
    state = init(jax.random.key(6))
    policy, key = algo.policy(state), jax.random.key(0)
    carry, obs = algo.initial_carry((3,)), jnp.ones((3, 4))
    assert np.all(carry.start) and np.all(carry.hidden == 0)
    _, carry = algo.act(policy, key, obs, carry, greedy=True)
    assert not np.any(carry.start)
    _, fresh = algo.act(policy, key, obs, algo.initial_carry((3,)))
    _, after = algo.act(policy, key, obs, carry._replace(start=jnp.array([False, True, False])))
    differs = np.any(after.hidden != fresh.hidden, -1)
    np.testing.assert_array_equal(differs, [True, False, True])
    with pytest.raises(ValueError, match="needs a carry.*initial_carry"):
        algo.act(policy, key, obs)
    with pytest.raises(ValueError, match=r"batch shape \(2,\), the observations have \(3,\); initial_carry"):
        algo.act(policy, key, obs, algo.initial_carry((2,)))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("config", [GRU, pytest.param(LSTM, marks=pytest.mark.slow)], ids=["gru", "lstm"])
def test_recurrent_variants_keep_the_contract(config):
    """Every group of weights learns (where episodes have two steps, so that there is something to carry)."""
    algo = pqn_rnn.make(DelayedReward(), dataclasses.replace(config, num_epochs=1))
    check_algorithm(algo, hyper=pqn_rnn.Hyper(learning_rate=1e-2), num_updates=3)


@pytest.mark.slow
def test_one_minibatch_by_hand():
    """A whole rollout as one minibatch: the reported loss is that of targets computed step by step."""
    config = dataclasses.replace(TINY, num_epochs=1, num_minibatches=1)
    algo, init, collect = cartpole(config)
    hyper = pqn.Hyper(gamma=0.9, q_lambda=0.7, reward_scale=0.1)
    state, rollout = collect(init(jax.random.key(7), hyper))
    _, metrics = jax.jit(algo.learn)(state, rollout)
    target = np.zeros((9, 4))
    for t in reversed(range(8)):
        cut = rollout.truncated[t] | rollout.terminated[t] | (t == 7)
        later = np.where(cut, rollout.next_value[t], 0.3 * rollout.next_value[t] + 0.7 * target[t + 1])
        target[t] = 0.1 * rollout.reward[t] + 0.9 * np.where(rollout.terminated[t], 0, later)
    q = network(TINY).apply(state.weights, rollout.obs)
    taken = np.take_along_axis(np.asarray(q), np.asarray(rollout.action)[..., None], -1)[..., 0]
    close(metrics["loss"], 0.5 * np.mean((taken - target[:8]) ** 2))
    close(metrics["q_value"], taken.mean())


@pytest.mark.slow
def test_forbidden_actions_are_neither_taken_nor_bootstrapped_from():
    algo = pqn.make(Masked(), TINY)
    state, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(8)))
    allowed = jnp.take_along_axis(rollout.obs["action_mask"], rollout.action[..., None], -1)
    assert np.all(allowed)
    obs = {
        "obs": jnp.zeros((2, 1)),
        "action_mask": jnp.array([[True, False, False, False], [False, False, False, True]]),
    }
    action, _ = algo.act(algo.policy(state), jax.random.key(0), obs, greedy=True)
    np.testing.assert_array_equal(action, [0, 3])


@pytest.mark.slow
def test_no_key_is_used_twice():
    algo = pqn_rnn.make(ObservationActionReward(id="key reuse"), dataclasses.replace(GRU, num_epochs=1))

    def run(key):
        state, _ = algo.update(algo.init(key))
        return algo.act(algo.policy(state), state.key, state.obs, state.carry)

    assert_no_key_reuse(run, jax.random.key(9))


@pytest.mark.slow
@pytest.mark.light
def test_a_recurrent_policy_remembers_a_bit():
    """Shown at the first two steps, asked for three steps later; without memory the best mean return is 0."""
    env, params = make("MemoryLength-bsuite")
    params = params.replace(memory_length=jnp.int32(3))
    config = pqn_rnn.Config(num_envs=16, num_steps=8, num_minibatches=2, hidden=(16,), rnn_size=16)
    hyper = pqn_rnn.Hyper(learning_rate=5e-3, exploration_steps=4000, epsilon_end=0.0)
    algo = pqn_rnn.make(env, config)
    _, metrics = jax.jit(lambda key: train(algo, key, 10_000, hyper, params))(jax.random.key(0))
    assert np.nanmean(metrics["episode_return"][-8:]) > 0.9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pqn.Config(num_steps=0), r"num_steps=0.*at least 1"),
        (lambda: pqn_rnn.Config(num_steps=0), r"num_steps=0.*at least 1"),
        (lambda: pqn_rnn.Config(rnn="lstn"), r"rnn='lstn'.*lstm"),
        (lambda: pqn_rnn.Config(rnn="none"), r"rnn='none'.*lstm.*pqn"),
        (lambda: pqn_rnn.Config(burn_in=65), r"burn_in=65.*0 to num_steps=64"),
        (lambda: pqn.Config(num_envs=3, num_steps=5, num_minibatches=6), r"num_envs \* num_steps = 15; 3 does"),
        (lambda: pqn_rnn.Config(num_envs=12, num_minibatches=8), r"num_envs = 12; 4 does"),
        (lambda: pqn.make(make("Pendulum-v1")[0], TINY), r"pqn acts in Discrete.*Pendulum-v1"),
        (lambda: pqn_rnn.make(make("Pendulum-v1")[0], GRU), r"pqn_rnn acts in Discrete.*Pendulum-v1"),
        (lambda: pqn.make(make("CartPole-v1")[0], TINY, network=Table(3)), r"values \(4, 3\).*needs \(4, 2\)"),
        (lambda: pqn_rnn.make(make("CartPole-v1")[0], GRU, network=Sequences(3)), r"values \(4, 3\).*needs \(4, 2\)"),
        (lambda: pqn.make(make("CartPole-v1")[0], dataclasses.replace(TINY, activation="rleu")), r"'rleu'.*relu"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

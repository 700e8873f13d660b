"""Recurrent PPO: what is remembered, replayed and bootstrapped, against episodes run one by one; and the protocol."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, train
from jaxrl.algos import a2c, ppo, ppo_rnn
from jaxrl.environment import strongly_typed
from jaxrl.nn.cells import CELLS
from jaxrl.nn.losses import normalized
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import DelayedReward, Masked, ObservationActionReward, Privileged

TINY = ppo_rnn.Config(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(8,), rnn_size=8, burn_in=3)
LSTM = dataclasses.replace(TINY, rnn="lstm", burn_in=8)
SHARED = dataclasses.replace(LSTM, shared=True, head_hidden=(8,))
BOX = Box(-1.0, 1.0, (4,))


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-5, **tolerance})


@cache
def cartpole(config):
    """Episodes cut after three steps: every third bootstraps from its final observation."""
    env, params = make("CartPole-v1")
    algo = ppo_rnn.make(env, config)
    params = params.replace(max_steps=jnp.int32(3))
    network = ppo_rnn.RecurrentActorCritic(
        env.observation_space(params),
        2,
        False,
        config.hidden,
        config.activation,
        config.rnn,
        config.rnn_size,
        shared=config.shared,
        head_hidden=config.head_hidden,
        window=config.window,
    )
    return algo, network, jax.jit(lambda key: algo.init(key, None, params)), jax.jit(algo.collect)


def final_observations(obs, action):
    env, params = make("CartPole-v1")
    x = dict(zip(("x", "x_dot", "theta", "theta_dot"), obs, strict=True))
    return env.step(jax.random.key(0), env.initial(jax.random.key(0), params).replace(**x), action, params).obs


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    "config",
    [TINY, LSTM, SHARED, *(dataclasses.replace(SHARED, rnn=name, window=4) for name in CELLS[2:])],
    ids=["gru", "lstm", "shared", *CELLS[2:]],
)
def test_acting_bootstrapping_and_replaying(config):
    """Three rollouts with the same weights.

    Each episode by itself, from nothing remembered, gives the values of acting and of its final observation, though the
    carry was reset there. Burn-in and replay, through starts of episodes and across rollouts, give them again.
    """
    _, network, init, collect = cartpole(config)
    critic = jax.jit(partial(network.apply, method="critic"))
    actor = jax.jit(partial(network.apply, method="actor"))
    state = init(jax.random.key(1))
    assert np.all(state.carry.start)
    for i in range(3):
        before = state
        state, rollout = collect(state)
        np.testing.assert_array_equal(rollout.start.T, [(np.arange(8) + 8 * i) % 3 == 0] * 4)
        np.testing.assert_array_equal(rollout.start[0], before.carry.start)
        assert rollout.past.obs.shape == (config.burn_in, 4, 4)
        for first in range(-8 * i % 3, 6, 3):
            steps = slice(first, first + 3)
            final = jax.vmap(final_observations)(rollout.obs[first + 2], rollout.action[first + 2])
            episode = jnp.concatenate([rollout.obs[steps], final[None]])
            _, value = critic(state.weights, network.initial_carry((4,)), episode, jnp.zeros((4, 4), bool))
            close(rollout.value[steps], value[:3])
            close(rollout.next_value[steps], value[1:])
        hidden = ppo_rnn.burnt_in(state.weights, rollout.past, network)
        _, value = critic(state.weights, hidden.seen_by_critic, rollout.obs, rollout.start)
        close(rollout.value, value)
        _, logits = actor(state.weights, hidden.actor, rollout.obs, rollout.start)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), rollout.action[..., None], -1)[..., 0]
        close(rollout.log_prob, log_prob)
        # The last step's successor is where the next rollout begins, with what is remembered: rollouts 0 and 1 end
        # inside an episode.
        if i < 2:
            hidden = state.carry.hidden.seen_by_critic
            _, value = critic(state.weights, hidden, state.obs[None], jnp.zeros((1, 4), bool))
            assert not np.any(rollout.truncated[-1] | rollout.terminated[-1])
            close(rollout.next_value[-1], value[0])


@pytest.mark.slow
@pytest.mark.light
def test_nothing_is_remembered_on_a_level_that_was_put_in():
    algo, network, init, collect = cartpole(TINY)
    state, _ = collect(init(jax.random.key(2)))
    slots = jnp.array([True, False, True, False])
    state = algo.restart(state, jax.random.key(3), state.env_params, slots)
    _, rollout = collect(state)
    np.testing.assert_array_equal(rollout.start[0], slots)
    fresh = network.apply(state.weights, network.initial_carry((4,)), state.obs[None], slots[None], method="critic")[1][
        0
    ]
    np.testing.assert_array_equal(np.isclose(rollout.value[0], fresh, rtol=1e-5), slots)


@pytest.mark.slow
@pytest.mark.light
def test_slots_that_are_masked_teach_nothing():
    algo, _, init, collect = cartpole(TINY)
    learn = jax.jit(algo.learn)
    state, rollout = collect(init(jax.random.key(7)))
    some = jnp.array([True, True, False, False])
    scrambled = rollout._replace(reward=rollout.reward.at[:, 2:].add(5.0))
    weights = [learn(state, x._replace(learn_mask=some))[0].weights for x in (rollout, scrambled)]
    jax.tree.map(np.testing.assert_array_equal, *weights)
    none, _ = learn(state, rollout._replace(learn_mask=jnp.zeros(4, bool)))
    jax.tree.map(np.testing.assert_array_equal, (none.weights, none.optimizer), (state.weights, state.optimizer))


class OwnScale(ppo_rnn.RecurrentActorCritic):
    """A standard deviation that depends on the observation."""

    def actor(self, hidden, obs, start):
        hidden, (mean, _) = super().actor(hidden, obs, start)
        return hidden, (mean, mean - 1)


@pytest.mark.slow
@pytest.mark.light
def test_the_spread_may_depend_on_the_observation():
    env, params = make("Pendulum-v1")
    network = OwnScale(env.observation_space(params), 1, True, (8,), "tanh", "gru", 8)
    algo = ppo_rnn.make(env, TINY, network=network)
    state, metrics = jax.jit(algo.update)(algo.init(jax.random.key(0)))
    assert np.isfinite(metrics["loss"])
    action, _ = algo.act(algo.policy(state), jax.random.key(0), jnp.ones((3, 3)), algo.initial_carry((3,)))
    assert action.shape == (3, 1)


def sequences(hidden_scale=1.0):
    key = jax.random.key(2)
    obs = jax.random.normal(key, (7, 2, 4))
    hidden = hidden_scale * jax.random.normal(jax.random.key(3), (1, 2, 8))
    return obs, hidden, jnp.zeros((7, 2), bool)


def batch_of(obs, hidden, start):
    past = ppo_rnn.Past(ppo_rnn.Hidden(hidden, hidden), obs[:3], start[:3])
    x = jnp.arange(8.0).reshape(4, 2) / 8
    return ppo_rnn.Batch(obs[3:], start[3:], past, jnp.zeros((4, 2), jnp.int32), x - 1, x, 1 - 2 * x, 3 * x)


@pytest.mark.slow
@pytest.mark.light
def test_burn_in_refreshes_the_carry_and_is_not_learnt_from():
    _, network, init, _ = cartpole(TINY)
    weights, hyper = init(jax.random.key(4)).weights, strongly_typed(ppo_rnn.Hyper())

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1))
    def total(hidden, obs, start):
        return ppo_rnn.loss(weights, batch_of(obs, hidden, start), hyper, TINY, network, BOX, Discrete(2))[0]

    obs, hidden, start = sequences()
    stale, slopes = total(hidden, obs, start)
    assert stale != total(0 * hidden, obs, start)[0]
    assert np.all(slopes[0] == 0) and np.all(slopes[1][:3] == 0) and np.all(np.any(slopes[1][3:] != 0, (1, 2)))
    begun = start.at[1].set(True)
    close(total(hidden, obs, begun)[0], total(0 * hidden, obs, begun)[0])


@pytest.mark.slow
@pytest.mark.light
def test_the_loss_is_ppos_of_what_the_networks_say():
    """The same numbers through `ppo.loss`'s parts, whose values are tested by hand in test_ppo.py."""
    _, network, init, _ = cartpole(TINY)
    weights = init(jax.random.key(5)).weights
    hyper = strongly_typed(ppo_rnn.Hyper(clip_eps=0.3, vf_coef=0.7, ent_coef=0.1))
    obs, hidden, start = sequences()
    batch = batch_of(obs, hidden, start.at[5, 1].set(True))
    total, report = ppo_rnn.loss(weights, batch, hyper, TINY, network, BOX, Discrete(2))
    past = batch.past._replace(hidden=jax.tree.map(lambda h: h[0], batch.past.hidden))
    now = ppo_rnn.burnt_in(weights, past, network)
    logits = network.apply(weights, now.actor, batch.obs, batch.start, method="actor")[1]
    value = network.apply(weights, now.critic, batch.obs, batch.start, method="critic")[1].ravel()
    log_p = jax.nn.log_softmax(logits)
    advantage = normalized(batch.advantage.ravel())
    actor = ppo.policy_loss(log_p[..., 0].ravel(), batch.log_prob.ravel(), advantage, 0.3)
    critic = ppo.value_loss(value, batch.value.ravel(), batch.target.ravel(), 0.3)
    entropy = -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))
    close(total, actor + 0.7 * critic - 0.1 * entropy)
    close([report["policy_loss"], report["value_loss"], report["entropy"]], [actor, critic, entropy])


@pytest.mark.slow
@pytest.mark.light
def test_one_unclipped_pass_is_a2c_with_memory():
    """Huang et al. (2022): at the weights that acted the ratio is 1, so gradients are those of A2C's losses."""
    config = dataclasses.replace(TINY, num_minibatches=1, burn_in=0, normalize_advantage=False, clip_value=False)
    _, network, init, collect = cartpole(config)
    state = init(jax.random.key(1))
    _, rollout = collect(state)
    weights, hyper = state.weights, strongly_typed(ppo_rnn.Hyper())
    advantage = jax.random.normal(jax.random.key(0), rollout.reward.shape)
    target = advantage + rollout.value
    past = rollout.past._replace(hidden=jax.tree.map(lambda h: h[None], rollout.past.hidden))
    parts = rollout.obs, rollout.start, past, rollout.action, rollout.log_prob, rollout.value, advantage, target
    batch = ppo_rnn.Batch(*parts)

    def a2c_loss(weights):
        _, logits, value = network.apply(weights, state.carry.hidden, rollout.obs, rollout.start)
        log_p = jax.nn.log_softmax(logits)
        taken = jnp.take_along_axis(log_p, rollout.action[..., None], -1)[..., 0]
        entropy = -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))
        actor = a2c.policy_loss(taken.ravel(), advantage.ravel())
        return actor + hyper.vf_coef * 0.5 * jnp.mean((value - target) ** 2) - hyper.ent_coef * entropy

    ours = jax.grad(lambda w: ppo_rnn.loss(w, batch, hyper, config, network, BOX, Discrete(2))[0])(weights)
    jax.tree.map(close, ours, jax.grad(a2c_loss)(weights))


@pytest.mark.slow
@pytest.mark.light
def test_a_deployed_carry_forgets_where_told():
    algo, _, init, _ = cartpole(LSTM)
    policy, key, obs = algo.policy(init(jax.random.key(6))), jax.random.key(0), jnp.ones((3, 4))
    carry = algo.initial_carry((3,))
    assert np.all(carry.start) and not any(np.any(h) for h in carry.hidden)
    _, carry = algo.act(policy, key, obs, carry, greedy=True)
    assert not np.any(carry.start)
    _, fresh = algo.act(policy, key, obs, algo.initial_carry((3,)))
    _, after = algo.act(policy, key, obs, carry._replace(start=jnp.array([False, True, False])))
    for new, old in zip(after.hidden, fresh.hidden, strict=True):
        np.testing.assert_array_equal(np.any(new != old, -1), [True, False, True])
    with pytest.raises(ValueError, match="needs a carry.*initial_carry"):
        algo.act(policy, key, obs)
    with pytest.raises(ValueError, match=r"batch shape \(2,\), the observations have \(3,\); initial_carry"):
        algo.act(policy, key, obs, algo.initial_carry((2,)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "config"),
    [(DelayedReward("box"), LSTM), (Privileged(), dataclasses.replace(TINY, burn_in=0))],
    ids=["lstm", "privileged"],
)
def test_keeps_the_contract(probe, config):
    """Every group of weights learns, where episodes have two steps, so that there is something to carry."""
    learns = not isinstance(probe, Privileged)
    check_algorithm(ppo_rnn.make(probe, config), hyper=ppo_rnn.Hyper(learning_rate=1e-2), num_updates=3, learns=learns)


@pytest.mark.slow
@pytest.mark.light
def test_masks_and_the_privileged_part():
    """Forbidden actions are not taken; what is privileged moves values only, and is absent at deployment."""
    algo = ppo_rnn.make(Masked(), TINY)
    _, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(7)))
    assert np.all(jnp.take_along_axis(rollout.obs["action_mask"], rollout.action[..., None], -1))
    algo = ppo_rnn.make(Privileged(), TINY)
    state, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(7)))
    cue = rollout.obs["privileged"][..., 0] > 0
    assert len(np.unique(rollout.value[cue])) == len(np.unique(rollout.value[~cue])) == 1
    assert rollout.value[cue][0] != rollout.value[~cue][0]
    np.testing.assert_allclose(rollout.log_prob, jnp.log(0.5), atol=0.05)
    algo.act(algo.policy(state), jax.random.key(0), {"obs": jnp.zeros((2, 1))}, algo.initial_carry((2,)))


@pytest.mark.slow
@pytest.mark.light
def test_the_entropys_weight_goes_to_zero():
    """Halfway it is half of what it was, at the end none, and without `ent_anneal_steps` it stays."""
    algo, hyper = ppo_rnn.make(ObservationActionReward(id="annealed entropy"), TINY), ppo_rnn.Hyper(ent_coef=0.5)
    update, n = jax.jit(algo.update), algo.steps_per_update

    def after(step, **settings):
        state = algo.init(jax.random.key(9), dataclasses.replace(hyper, **settings))
        return update(state.replace(step=jnp.full_like(state.step, step)))[0].weights

    for step, share in ((0, 1.0), (2 * n, 0.5), (4 * n, 0.0), (9 * n, 0.0)):
        found, wanted = after(step, ent_anneal_steps=4 * n), after(step, ent_coef=0.5 * share)
        assert jax.tree.all(jax.tree.map(np.array_equal, found, wanted))
    moved = jax.tree.map(np.array_equal, after(0), after(0, ent_coef=0.0))
    assert not jax.tree.all(moved)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    algo = ppo_rnn.make(ObservationActionReward(id="key reuse"), TINY)

    def run(key):
        state, _ = algo.update(algo.init(key))
        return algo.act(algo.policy(state), state.key, state.obs, algo.initial_carry((4,)))

    assert_no_key_reuse(run, jax.random.key(8))


@pytest.mark.slow
@pytest.mark.light
def test_it_remembers_a_bit():
    """Shown at the first two steps, asked for three steps later; without memory the best mean return is 0."""
    env, params = make("MemoryLength-bsuite")
    params = params.replace(memory_length=jnp.int32(3))
    config = dataclasses.replace(TINY, num_envs=16, num_epochs=4, rnn_size=16)
    algo = ppo_rnn.make(env, config)
    hyper = ppo_rnn.Hyper(learning_rate=1e-2)
    _, metrics = jax.jit(lambda key: train(algo, key, 10_000, hyper, params))(jax.random.key(0))
    assert np.nanmean(metrics["episode_return"][-8:]) > 0.9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ppo_rnn.Config(rnn_size=0), r"rnn_size=0.*at least 1"),
        (lambda: ppo_rnn.Config(rnn="none"), r"rnn='none'.*lstm.*ppo"),
        (lambda: ppo_rnn.Config(burn_in=-1), r"burn_in=-1.*0 to num_steps=128"),
        (lambda: ppo_rnn.Config(num_envs=12, num_minibatches=8), r"num_envs = 12; 4 does"),
        (lambda: ppo_rnn.make(make("CartPole-v1")[0], dataclasses.replace(TINY, activation="rleu")), r"'rleu'.*relu"),
        (
            lambda: ppo_rnn.make(
                make("CartPole-v1")[0],
                TINY,
                network=ppo_rnn.RecurrentActorCritic(BOX, 3, False, (8,), "tanh", "gru", 8),
            ),
            r"outputs \(1, 4, 3\).*needs \(1, 4, 2\)",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

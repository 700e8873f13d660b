"""RND and RDD: bonuses and losses against arrays computed by hand, who learns what, and that they explore."""

import dataclasses
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, train
from jaxrl.algos import ppo, rnd
from jaxrl.environment import strongly_typed
from jaxrl.nn.networks import encode
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- bonuses and losses


def test_bonus_is_the_mean_squared_error():
    prediction = jnp.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    features = jnp.array([[1.0, 0.0, 3.0, 3.0], [2.0, 0.0, 0.0, 0.0]])
    close(rnd.prediction_error(prediction, features), [5 / 4, 1])
    close(rnd.prediction_error(prediction[None, None], features), [[[5 / 4, 1]]])


def test_targets_of_rdd_are_drawn_anew_at_each_visit():
    features = jnp.broadcast_to(jnp.array([3.0, -1.0]), (4000, 2))
    draws = rnd.draw_targets(jax.random.key(0), features, 0.5)
    assert len(np.unique(draws[:, 0])) == 4000
    close(draws.mean(0), [3, -1], atol=4 * 0.5 / 4000**0.5)
    close(draws.std(0), 0.5, rtol=0.05)
    np.testing.assert_array_equal(rnd.draw_targets(jax.random.key(0), features, 0.0), features)


def test_the_mean_of_n_draws_has_a_bonus_of_one_over_n():
    """What a converged predictor is: 1 / n is unbiased for it, and 4000 features average the rest away."""
    features = jnp.zeros((16, 4000)) + 2
    draws = rnd.draw_targets(jax.random.key(1), features, 0.5)
    for n in (1, 4, 16):
        close(rnd.prediction_error(draws[:n].mean(0), features[0]), 0.25 / n, rtol=0.1)


class Table(nn.Module):
    """Logits and values independent of the observation."""

    def setup(self):
        self.logits = self.param("logits", lambda _: jnp.array([1.0, 0.0]))
        self.value = self.param("value", lambda _: jnp.float32(2.0))
        self.int_value = self.param("int_value", lambda _: jnp.float32(0.5))

    def actor(self, obs):
        return jnp.broadcast_to(self.logits, (*obs.shape[:-1], 2))

    def critic(self, obs):
        return jnp.broadcast_to(self.value, obs.shape[:-1])

    def int_critic(self, obs):
        return jnp.broadcast_to(self.int_value, obs.shape[:-1])

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs), self.int_critic(obs)


class Linear(nn.Module):
    """One weight a feature."""

    @nn.compact
    def __call__(self, x):
        return x * self.param("w", lambda _: jnp.array([1.0, 2.0]))


WEIGHTS = {
    "network": {
        "params": {"logits": jnp.array([1.0, 0.0]), "value": jnp.float32(2.0), "int_value": jnp.float32(0.5)},
    },
    "predictor": {"params": {"w": jnp.array([1.0, 2.0])}},
}


def table_loss(weights, **hyper):
    p = np.exp([1, 0]) / np.exp([1, 0]).sum()
    action = jnp.array([0, 1])
    batch = rnd.Batch(
        obs=jnp.zeros((2, 1)),
        action=action,
        log_prob=jnp.log(jnp.asarray(p, jnp.float32))[action] - jnp.log(jnp.array([1.05, 0.5])),
        advantage=jnp.array([3.0, 1.0]),  # 1 and -1 once normalised
        value_target=jnp.array([3.0, 0.0]),
        int_value_target=jnp.array([0.5, 1.5]),
        inputs=jnp.array([[1.0, 1.0], [2.0, 2.0]]),
        features=jnp.array([[0.0, 2.0], [2.0, 1.0]]),
    )
    hyper = strongly_typed(rnd.Hyper(**hyper))
    learns = jnp.array([True, False])
    return rnd.loss(weights, batch, learns, hyper, Table(), Linear(), Box(-1.0, 1.0, (1,)), Discrete(2)), p


@pytest.mark.slow
@pytest.mark.light
def test_whole_loss_by_hand():
    (total, report), p = table_loss(WEIGHTS, vf_coef=0.3, ent_coef=0.1)
    actor = -(1.05 - 0.9) / 2  # the second ratio is clipped at 1 - 0.1
    critic, int_critic = 0.5 * (1 + 4) / 2, 0.5 * (0 + 1) / 2
    distillation = (1 + 0) / 2  # of the one sample that is learnt from
    entropy = -np.sum(p * np.log(p))
    close(report["policy_loss"], actor, rtol=1e-5)
    close([report["value_loss"], report["int_value_loss"]], [critic, int_critic])
    close(report["predictor_loss"], distillation)
    close(report["entropy"], entropy)
    close(total, actor + 0.3 * (critic + int_critic) - 0.1 * entropy + distillation, rtol=1e-5)
    slope = jax.grad(lambda w: table_loss(w, vf_coef=0.3)[0][0])(WEIGHTS)
    close(slope["network"]["params"]["value"], 0.3 * (2 - 1.5))
    close(slope["network"]["params"]["int_value"], 0.3 * (0.5 - 1))
    close(slope["predictor"]["params"]["w"], [2 * 1 / 2, 0])
    assert np.all(slope["network"]["params"]["logits"] != 0)


# ---- the algorithm

SMALL = rnd.Config(
    num_envs=4,
    num_steps=8,
    num_epochs=2,
    num_minibatches=2,
    hidden=(8,),
    target_hidden=(8,),
    predictor_hidden=(8, 8),
    num_features=8,
)


@cache
def chain(**changes):
    """`(algo, first state, its rollout, state after an update, metrics)`; episodes of three steps, some end before."""
    env, params = make("TwoSidedChain-v0", num_states=5)
    algo = rnd.make(env, dataclasses.replace(SMALL, **changes))

    @jax.jit
    def run(key):
        first = algo.init(key, rnd.Hyper(noise_scale=0.5), params.replace(max_steps=jnp.int32(3)))
        collected, rollout = algo.collect(first)
        return first, rollout, *algo.learn(collected, rollout)

    return algo, *run(jax.random.key(0))


@pytest.mark.slow
def test_every_group_learns_but_the_random_network():
    for bonus in rnd.BONUSES:
        _, first, _, second, _ = chain(bonus=bonus)
        moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, second.weights)
        assert all(jax.tree.leaves(moved)), moved
        assert set(moved["network"]["params"]) == {"actor_mlp", "critic_mlp", "int_critic_mlp"}
        jax.tree.map(np.testing.assert_array_equal, first.target, second.target)


@pytest.mark.slow
@pytest.mark.light
def test_the_bonus_is_of_the_true_successor_as_the_predictor_saw_it():
    algo, first, rollout, second, metrics = chain()
    space = algo.venv.env.observation_space(first.env_params)
    seen = encode(space, rollout.next_obs)
    mean, std = seen.mean((0, 1)), seen.std((0, 1))
    inputs = jnp.clip((seen - mean) / jnp.maximum(std, 1e-4), -5, 5)
    target = rnd.MLP(SMALL.target_hidden, 8, "leaky_relu", out_scale=rnd.SQRT2)
    predictor = rnd.MLP(SMALL.predictor_hidden, 8, "leaky_relu", out_scale=rnd.SQRT2)
    features = target.apply(first.target, inputs)
    bonus = rnd.prediction_error(predictor.apply(first.weights["predictor"], inputs), features)
    close(metrics["bonus"], bonus.mean(), rtol=1e-3)
    # The running sum of bonuses passes the ends of episodes.
    total = np.zeros(SMALL.num_envs)
    history = [total := 0.99 * total + row for row in np.asarray(bonus)]
    close(metrics["int_reward"], bonus.mean() / np.std(history), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_bonuses_go_on_after_an_episode_unless_they_are_episodic():
    algo, first, rollout, _, _ = chain()
    done = np.asarray(rollout.terminated | rollout.truncated)[:-1]
    assert done.any() and np.asarray(rollout.truncated & ~rollout.terminated)[:-1].any()
    close(rollout.next_int_value[:-1], rollout.int_value[1:])
    assert np.all(np.asarray(rollout.next_value)[:-1][~done] == np.asarray(rollout.value)[1:][~done])
    algo, first, rollout, _, _ = chain(episodic_bonus=True)
    network = rnd.TwoCritics(algo.venv.env.observation_space(first.env_params), 2, False, SMALL.hidden, "tanh")
    cut = np.asarray(rollout.truncated)
    for method, following in (("critic", rollout.next_value), ("int_critic", rollout.next_int_value)):
        final = network.apply(first.weights["network"], rollout.next_obs, method=method)
        close(following[cut], final[cut], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_rdd_learns_from_noise_and_its_bonus_does_not_hold_it():
    def updates(bonus):  # metrics of 64 first updates
        algo, first, *_ = chain(bonus=bonus)

        def one(key):
            return algo.learn(*algo.collect(algo.init(key, first.hyper, first.env_params)))[1]

        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 64))

    plain, noisy = updates("rnd"), updates("rdd")
    close(noisy["bonus"], plain["bonus"])
    close((noisy["predictor_loss"] - plain["predictor_loss"]).mean(), 0.5**2, atol=0.05)


@pytest.mark.slow
def test_a_fraction_of_the_samples_reaches_the_predictor():
    algo, first, *_ = chain()
    update = jax.jit(algo.update)
    none, metrics = update(first.replace(hyper=first.hyper.replace(predictor_fraction=jnp.float32(0))))
    jax.tree.map(np.testing.assert_array_equal, first.weights["predictor"], none.weights["predictor"])
    assert metrics["predictor_loss"] == 0 and metrics["value_loss"] > 0
    quarter, _ = update(first.replace(hyper=first.hyper.replace(predictor_fraction=jnp.float32(0.25))))
    kernels = [x.weights["predictor"]["params"]["Dense_0"]["kernel"] for x in (first, quarter)]
    assert np.any(kernels[0] != kernels[1])
    assert update._cache_size() == 1


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    algo, first, *_ = chain(bonus="rdd")
    metrics = assert_no_key_reuse(lambda key: algo.update(first.replace(key=key))[1], jax.random.key(3))
    assert np.isfinite(metrics["loss"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(bonus="icm"), "bonus='icm' is unknown; use rnd or rdd"),
        (dict(num_minibatches=3), "num_minibatches=3 does not divide .* = 4096; 1 does"),
        (dict(num_features=0), "num_features=0: it must be at least 1"),
    ],
)
def test_unusable_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        rnd.Config(**settings)


def test_a_network_without_fitting_values():
    class Matrix(Table):
        def int_critic(self, obs):
            return obs

    env, _ = make("CartPole-v1")
    with pytest.raises(ValueError, match="two times"):
        rnd.make(env, SMALL, network=Matrix())


@pytest.mark.slow
def test_explores_where_ppo_does_not():
    """DeepSea of size 12: one policy in 4,096 is paid, and every other one is told to turn back. Seeds are counted, as
    chance finds the treasure now and then: of eight PPO's found it in none, with the bonuses in eight and six."""
    env, params = make("DeepSea-bsuite", size=12)
    settings = dict(num_envs=16, num_steps=64)
    keys = jax.random.split(jax.random.key(0), 8)

    def found(algo, hyper):
        run = jax.jit(jax.vmap(lambda key: train(algo, key, 60_000, hyper, params)[1]["episode_return"]))
        return np.sum(np.asarray(run(keys))[:, -10:].mean(1) > 0.9)

    assert found(ppo.make(env, ppo.Config(**settings)), ppo.Hyper(learning_rate=1e-3)) <= 2
    for bonus in rnd.BONUSES:
        assert found(rnd.make(env, rnd.Config(bonus=bonus, **settings)), rnd.Hyper(learning_rate=1e-3, gamma=0.99)) >= 5

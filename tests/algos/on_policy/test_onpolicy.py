"""A2C and REINFORCE: losses and returns against arrays computed by hand, and what an end of an episode does."""

import dataclasses
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import a2c, reinforce
from jaxrl.environment import strongly_typed
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

BOTH = pytest.mark.parametrize("module", [a2c, reinforce], ids=["a2c", "reinforce"])
P = np.exp([1, 0, -1]) / np.exp([1, 0, -1]).sum()
WEIGHTS = {"params": {"logits": jnp.array([1.0, 0.0, -1.0]), "value": jnp.float32(2.0)}}


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


class Table(nn.Module):
    """Logits and value independent of the observation."""

    def setup(self):
        self.logits = self.param("logits", lambda _: WEIGHTS["params"]["logits"])
        self.value = self.param("value", lambda _: WEIGHTS["params"]["value"])

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)

    def actor(self, obs):
        return jnp.broadcast_to(self.logits, (*obs.shape[:-1], 3))

    def critic(self, obs):
        return jnp.broadcast_to(self.value, obs.shape[:-1])


def total(module, weights, batch, normalize=False, **hyper):
    config = module.Config(normalize_advantage=normalize)
    hyper = strongly_typed(module.Hyper(**{"ent_coef": 0.0, "vf_coef": 0.0, **hyper}))
    return module.loss(weights, batch, hyper, config, Table(), Box(-1.0, 1.0, (1,)), Discrete(3))


# Of the third step REINFORCE does not know the return.
A2C = a2c.Batch(jnp.zeros((2, 1)), jnp.array([0, 2]), jnp.array([1.0, -3.0]), jnp.array([3.0, 0.0]))
REINFORCE = reinforce.Batch(
    jnp.zeros((3, 1)),
    jnp.array([0, 2, 1]),
    jnp.array([1.0, -3.0, 100.0]),
    jnp.array([3.0, 0.0, 100.0]),
    jnp.array([True, True, False]),
)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize(("module", "batch"), [(a2c, A2C), (reinforce, REINFORCE)], ids=["a2c", "reinforce"])
def test_whole_loss_by_hand(module, batch):
    entropy = -np.sum(P * np.log(P))
    value, report = total(module, WEIGHTS, batch, vf_coef=0.3, ent_coef=0.1)
    actor, critic = -(np.log(P[0]) - 3 * np.log(P[2])) / 2, 0.5 * (1 + 4) / 2
    close([report["policy_loss"], report["value_loss"], report["entropy"]], [actor, critic, entropy])
    close(value, actor + 0.3 * critic - 0.1 * entropy)
    # d log p_i / d logit_j = [i = j] - p_j; the advantage is a constant.
    slope = jax.grad(lambda w: total(module, w, batch)[0])(WEIGHTS)["params"]
    close(slope["logits"], -(np.array([1.0, 0, 0]) - P - 3 * (np.array([0, 0, 1.0]) - P)) / 2)
    close(slope["value"], 0)
    close(jax.grad(lambda w: total(module, w, batch, vf_coef=1.0)[0])(WEIGHTS)["params"]["value"], (-1 + 2) / 2)
    # Normalised, the two advantages are 1 and -1.
    close(total(module, WEIGHTS, batch, True)[1]["policy_loss"], -(np.log(P[0]) - np.log(P[2])) / 2)


def test_reinforce_learns_nothing_where_no_episode_ended():
    nothing = REINFORCE._replace(mask=jnp.zeros(3, bool))
    slope = jax.grad(lambda w: total(reinforce, w, nothing, True, vf_coef=1.0, ent_coef=1.0)[0])(WEIGHTS)
    assert all(np.all(x == 0) for x in jax.tree.leaves(slope))


@cache
def learner(module):
    algo = module.make(
        make("CartPole-v1")[0], module.Config(num_envs=2, num_steps=4, hidden=(4,), normalize_advantage=False)
    )
    return algo, jax.jit(algo.collect), jax.jit(algo.learn)


# Two environments, four steps: one terminates at step 1, the other is cut at step 2, where the value is 32.
TERMINATED = jnp.array([[0, 0], [1, 0], [0, 0], [0, 0]], bool)
TRUNCATED = jnp.array([[0, 0], [0, 0], [0, 1], [0, 0]], bool)
REWARD = jnp.array([[1.0, 1], [2, 2], [3, 3], [4, 4]])
LAST = jnp.array([64.0, 64.0])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("module", "targets", "learnt"),
    [
        # Up to the rollout's end, after which the value is 64: 4 + 32, 3 + 36 / 2; a termination has none, a cut 32.
        (a2c, [[1 + 2 / 2, 2, 3 + 36 / 2, 36], [1 + 11.5 / 2, 2 + 19 / 2, 3 + 32 / 2, 36]], np.ones((2, 4), bool)),
        # The same, but what has not ended when the rollout does is not learnt from.
        (
            reinforce,
            [[2, 2, 0, 0], [1 + 11.5 / 2, 2 + 19 / 2, 3 + 32 / 2, 0]],
            np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool),
        ),
    ],
    ids=["a2c", "reinforce"],
)
def test_returns_by_hand(module, targets, learnt):
    """Through the reported value loss of one update, gamma 0.5."""
    algo, collect, learn = learner(module)
    hyper = module.Hyper(gamma=0.5, learning_rate=0.0)
    state, rollout = collect(algo.init(jax.random.key(0), hyper))
    value = np.asarray(rollout.value)
    next_value = jnp.concatenate([rollout.value[1:], LAST[None]]).at[2, 1].set(32)
    rollout = rollout._replace(reward=REWARD, terminated=TERMINATED, truncated=TRUNCATED, next_value=next_value)
    _, metrics = learn(state, rollout)
    error = (np.array(targets).T - value)[learnt.T]
    close(metrics["value_loss"], 0.5 * np.mean(error**2), rtol=1e-4)
    if module is reinforce:
        close(metrics["learnt"], 5 / 8)
    else:
        # The policy loss sees target - value.
        close(metrics["explained_variance"], 1 - error.var() / np.array(targets).var(), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.light
@BOTH
def test_a_cut_episode_has_the_value_of_its_final_observation(module):
    algo, collect, _ = learner(module)
    env, params = make("CartPole-v1")
    state = algo.init(jax.random.key(1), None, params.replace(max_steps=jnp.int32(2)))
    _, rollout = collect(state)
    np.testing.assert_array_equal(rollout.truncated, [[False] * 2, [True] * 2] * 2)
    at = env.initial(jax.random.key(0), params)
    names = ("x", "x_dot", "theta", "theta_dot")
    at = at.replace(**dict(zip(names, rollout.obs[1, 0], strict=True)))
    final = env.step(jax.random.key(0), at, rollout.action[1, 0], params).obs
    from jaxrl.nn.networks import ActorCritic

    network = ActorCritic(env.observation_space(params), 2, False, (4,), "tanh")
    close(rollout.next_value[1, 0], network.apply(state.weights, final, method="critic"), atol=1e-5)


@pytest.mark.slow
@pytest.mark.light
@BOTH
def test_no_key_is_used_twice(module):
    algo = module.make(
        ObservationActionReward("box", id="key reuse"), module.Config(num_envs=2, num_steps=4, hidden=(4,))
    )

    def run(key):
        state, _ = algo.update(algo.init(key))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key(9))


@BOTH
def test_impossible_requests_are_refused(module):
    with pytest.raises(ValueError, match="num_steps=0.*at least 1"):
        module.Config(num_steps=0)
    env = make("CartPole-v1")[0]
    with pytest.raises(ValueError, match=r"'rleu'.*relu"):
        module.make(env, module.Config(activation="rleu"))
    with pytest.raises(ValueError, match=r"outputs \(2, 3\).*needs \(2, 2\)"):
        module.make(env, module.Config(num_envs=2), network=Table())
    assert module.make(env, module.Config()) is module.make(env, dataclasses.replace(module.Config()))

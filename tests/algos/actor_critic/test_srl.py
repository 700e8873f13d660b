"""Sequences of actions: by hand, where gradients go, when the actor is asked, and what is learned."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import evaluate, make, train
from jaxrl.algos import srl
from jaxrl.data.transitions import Transition
from jaxrl.nn.nets import critic_values
from jaxrl.testing.rules import step
from jaxrl.wrappers import ActionRepeat

KEY = jax.random.key(0)
ENV, PARAMS = make("Pendulum-v1")
CONFIG = srl.Config(num_envs=2, num_steps=5, batch_size=8, buffer_size=64, hidden=(6,), rnn_size=4, sequence_length=3)
OBS = jax.random.normal(KEY, (5, 3))


@functools.cache
def begun():
    """`(algo, rule, state)` before the first step."""
    algo = srl.make(ENV, CONFIG)
    return algo, algo.learn.__self__.rule, jax.jit(algo.init)(KEY)


def test_a_sequence_by_hand():
    """The first action is of the observation, each later one of the one before; the model goes along."""
    _, rule, state = begun()
    actor, model = state.weights["actor"], state.weights["model"]
    seen, actions, log_probs = rule.sequence(actor, model, KEY, OBS)
    hidden, action, obs = rule.actor.apply(actor, OBS, method="begin"), jnp.zeros((5, 1)), OBS
    for k, key in enumerate(jax.random.split(KEY, 3)):
        np.testing.assert_allclose(seen[k], obs, rtol=1e-5, atol=1e-6)
        hidden, mean, log_std = rule.actor.apply(actor, hidden, action, method="next")
        u = mean + jnp.exp(log_std) * (jnp.arctanh(actions[k]) - mean) / jnp.exp(log_std)
        action = jnp.tanh(u)
        std = jnp.exp(log_std)
        normal = -0.5 * ((u - mean) / std) ** 2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        by_hand = jnp.sum(normal - jnp.log(1 - action**2), -1)
        np.testing.assert_allclose(log_probs[k], by_hand, rtol=1e-3, atol=1e-4)
        noise = (jnp.arctanh(actions[k]) - mean) / std
        np.testing.assert_allclose(noise, jax.random.normal(key, mean.shape), rtol=1e-2, atol=1e-3)
        obs = obs + rule.model.apply(model, obs, action)


def test_no_gradient_reaches_later_states():
    """Q(s_k, a_k) counts them already; actions themselves depend on the weights, and on the actions before."""
    _, rule, state = begun()

    def sums(actor):
        obs, action, _ = rule.sequence(actor, state.weights["model"], KEY, OBS)
        return jnp.sum(obs, (1, 2)), jnp.sum(action, (1, 2))

    of_states, of_actions = jax.jacrev(sums)(state.weights["actor"])
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(of_states)) == 0
    cell = of_actions["params"]["cell"]["input"]["kernel"]  # of the action before
    assert float(jnp.abs(cell[0]).max()) == 0 and float(jnp.abs(cell[1]).max()) > 0


def test_losses_by_hand():
    """Of the model in units of the batch's variance; of the actor minus the soft value, mean over the sequence."""
    change = jnp.array([[1.0, 10.0], [3.0, 30.0]])  # variances 1 and 100
    found = srl.model_loss(jnp.array([[1.0, 20.0], [2.0, 30.0]]), jnp.zeros((2, 2)), change)
    np.testing.assert_allclose(found, (0 + 1 + 1 + 0) / 4, rtol=1e-5)

    _, rule, state = begun()
    rng = np.random.default_rng(0)
    batch = Transition(OBS, jnp.tanh(OBS[:, :1]), jnp.asarray(rng.normal(size=5)), jnp.zeros(5, bool), OBS + 0.1)
    hyper = srl.Hyper(alpha=0.3, learning_rate=0.0, alpha_learning_rate=0.0)
    weights = {**state.weights, "log_alpha": jnp.log(0.3)}
    targets = {"critic": state.target_weights["critic"]}
    report, _ = step(rule, weights, targets, batch, hyper, KEY)
    seen, action, log_prob = rule.sequence(weights["actor"], weights["model"], jax.random.split(KEY)[1], OBS)
    q = critic_values(rule.critic, weights["critic"], seen, action)
    np.testing.assert_allclose(report["actor_loss"], -jnp.mean(q.min(0) - 0.3 * log_prob), rtol=1e-5)
    np.testing.assert_allclose(report["entropy"], -jnp.mean(log_prob), rtol=1e-5)


def acted(length, observations, plan=None):
    """The greedy actions (T, N, 1) and the last plan."""
    algo, _, state = begun()
    policy, actions = algo.slower(algo.policy(state), length), []
    plan = algo.initial_carry((2,)) if plan is None else plan
    for obs in observations:
        action, plan = algo.act(policy, KEY, obs, plan, greedy=True)
        actions.append(action)
    return np.asarray(actions), plan


def test_the_actor_is_asked_once_a_sequence():
    """What is seen in the middle of a sequence does not matter, and at its end nothing else does."""
    one, other = jax.random.normal(KEY, (2, 2, 3))
    steady, _ = acted(3, [one, one, one, one])
    np.testing.assert_array_equal(acted(3, [one, other, other, one])[0], steady)
    np.testing.assert_array_equal(steady[3], steady[0])
    assert np.all(acted(3, [one, one, one, other])[0][3] != steady[3])
    assert np.all(np.diff(steady[:3, :, 0], axis=0) != 0)
    np.testing.assert_array_equal(acted(1, [one, other])[0], [acted(1, [one])[0][0], acted(1, [other])[0][0]])
    longer, _ = acted(7, [one] + 6 * [other])  # than any that it learns from
    np.testing.assert_array_equal(longer[:3], steady[:3])
    assert len(np.unique(longer[:, 0])) == 7


def test_what_is_held_is_a_sequence():
    """`evaluate(hold=n)` plays n actions of each, which is no single action held n times; by default as in training."""
    algo, _, state = begun()
    policy, how = algo.policy(state), dict(num_episodes=3, max_steps=12, greedy=True)
    judge = jax.jit(lambda policy, hold: evaluate(algo, policy, KEY, **how, hold=hold).returns)
    for n in (1, 3, 5):
        np.testing.assert_array_equal(judge(policy, n), judge(algo.slower(policy, n), n))
    np.testing.assert_allclose(judge(policy, 3), evaluate(algo, policy, KEY, **how).returns, rtol=1e-5)
    assert np.all(judge(policy, 1) != judge(policy, 5))


def test_a_new_episode_is_a_new_decision():
    """In the slot that was reset alone, by a fresh carry, a restart or an end within a rollout."""
    algo, _, state = begun()
    one, other = jax.random.normal(KEY, (2, 2, 3))
    _, plan = acted(3, [one])
    reset = plan._replace(done=jnp.array([-1, 1]))
    found, _ = acted(3, [other], reset)
    np.testing.assert_array_equal(found[0, 0], acted(3, [other])[0][0, 0])
    np.testing.assert_array_equal(found[0, 1], acted(3, [one, one])[0][1, 1])

    running = state.replace(plan=plan)
    again = algo.restart(running, KEY, state.env_params, jnp.array([True, False]))
    np.testing.assert_array_equal(again.plan.done, [-1, 1])
    short = PARAMS.replace(max_steps=jnp.int32(4))
    after, _ = jax.jit(algo.collect)(jax.jit(algo.init)(KEY, srl.Hyper(), short))
    np.testing.assert_array_equal(after.plan.done, [1, 1])  # three, one, the end; then one


def test_what_is_refused():
    with pytest.raises(ValueError, match="sequence_length=0: it must be at least 1"):
        srl.Config(sequence_length=0)
    with pytest.raises(ValueError, match="normalize_obs=True is of learners from a dataset"):
        srl.make(ENV, srl.Config(normalize_obs=True))


@pytest.mark.slow
@pytest.mark.optimised
def test_decisions_may_be_slow():
    """Pendulum swings up with a decision every eight steps, 0.4 s, where SAC's actions that are held fall over."""
    algo = srl.make(ENV, srl.Config(hidden=(64, 64)))
    hyper = srl.Hyper(learning_rate=1e-3, alpha_learning_rate=1e-3)

    @jax.jit
    def returns(key):
        policy = algo.policy(train(algo, key, 12_000, hyper, PARAMS)[0])
        how = dict(num_episodes=16, greedy=True)
        planned = jax.lax.map(lambda n: evaluate(algo, policy, key, **how, hold=n).returns.mean(), jnp.array([1, 8]))
        single = algo.slower(policy, 1)
        return planned, evaluate(algo, single, key, ActionRepeat(ENV, 8), **how).returns.mean()

    found, held = returns(KEY)
    assert np.all(found > -300) and held < -500

"""Stream Q, AC and TD: one transition by hand, traces, known values, the contract, what is refused."""

import dataclasses
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, streaming, train
from jaxrl.algos.streaming import stream_ac, stream_q, stream_td
from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.nn.distributions import Categorical
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import DelayedReward, Masked, ObservationActionReward, Privileged

GAMMA, LAMBDA = 0.9, 0.5
RAW = dict(num_steps=1, normalize_obs=False, normalize_reward=False)


class Linear(nn.Module):
    """Without bias, from zero weights: values of a one-hot observation are rows of the matrix."""

    out: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.out, use_bias=False, kernel_init=nn.initializers.zeros)(x)


def kernel(tree):
    return np.asarray(tree["params"]["Dense_0"]["kernel"])


@pytree
class WalkParams:
    max_steps: jax.Array = 100


@pytree
class WalkState:
    time: jax.Array
    position: jax.Array


@dataclasses.dataclass(frozen=True)
class Walk(Environment):
    """States 0, 1, 2 in a row, seen one-hot; each step goes on, the third ends with reward 1. Actions do nothing."""

    Params = WalkParams
    hints = Hints(reset="dense", deterministic=True)

    def initial(self, key, params):
        return WalkState(jnp.int32(0), jnp.int32(0))

    def transition(self, key, state, action, params):
        last = state.position == 2
        state = state.replace(position=jnp.minimum(state.position + 1, 2))
        return Transition(state, last.astype(jnp.float32), last, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jax.nn.one_hot(state.position, 3)

    def observation_space(self, params):
        return Box(0.0, 1.0, (3,))

    def action_space(self, params):
        return Discrete(2)


def steps_of(algo, hyper, n, params=None):
    """The states after 0 .. n updates."""
    state, update = algo.init(jax.random.key(0), hyper, params), jax.jit(algo.update)
    states = [state]
    for _ in range(n):
        states.append(update(states[-1])[0])
    return states


# ---- by hand


@pytest.mark.slow
def test_td_on_a_chain_is_linear_td_lambda():
    """Unbounded and linear, it is TD(lambda) in a table: three episodes against the recursion, then the fixed point."""
    config = stream_td.Config(**RAW, bounded=False)
    algo = stream_td.make(Walk(id="Walk"), config, network=Linear(1))
    hyper = stream_td.Hyper(learning_rate=0.5, gamma=GAMMA, trace_decay=LAMBDA)
    states = steps_of(algo, hyper, 9)
    v, e = np.zeros(4), np.zeros(4)  # the last is the end
    for t, state in enumerate(states[1:]):
        s = t % 3
        e = (0 if s == 0 else GAMMA * LAMBDA) * e
        e[s] += 1
        v = v + 0.5 * ((s == 2) + GAMMA * v[s + 1] * (s < 2) - v[s]) * e
        np.testing.assert_allclose(kernel(state.weights)[:, 0], v[:3], rtol=1e-5)
        np.testing.assert_allclose(kernel(state.trace)[:, 0], e[:3], rtol=1e-5)
    final, _ = jax.jit(lambda key: train(algo, key, 300, hyper))(jax.random.key(0))
    np.testing.assert_allclose(stream_td.predict(algo, final, jnp.eye(3), Linear(1)), [GAMMA**2, GAMMA, 1.0], rtol=1e-5)


def test_a_time_limit_bootstraps_and_starts_a_new_trace():
    algo = stream_td.make(Walk(id="Walk"), stream_td.Config(**RAW, bounded=False), network=Linear(1))
    hyper = stream_td.Hyper(learning_rate=1.0, gamma=GAMMA, trace_decay=LAMBDA)
    params = WalkParams(max_steps=jnp.int32(1))
    state = algo.init(jax.random.key(0), hyper, params)
    weights = jax.tree.map(lambda w: jnp.array([[0.0], [2.0], [5.0]]), state.weights)
    state, _ = jax.jit(algo.update)(state.replace(weights=weights))
    # cut in state 1, whose value is 2: V(0) = 0.9 * 2. A death would leave it at 0.
    np.testing.assert_allclose(kernel(state.weights)[:, 0], [1.8, 2.0, 5.0], rtol=1e-6)
    np.testing.assert_array_equal(state.obs[0], [1, 0, 0])
    state, _ = jax.jit(algo.update)(state)
    np.testing.assert_array_equal(kernel(state.trace)[:, 0], [1, 0, 0])


def test_td_predicts_in_units_of_the_rewards():
    """Rewards are divided by their scale, which the prediction gives back."""
    config = stream_td.Config(num_steps=1, normalize_obs=False, bounded=False)
    algo = stream_td.make(Walk(id="Walk"), config, network=Linear(1))
    hyper = stream_td.Hyper(learning_rate=0.5, gamma=GAMMA, trace_decay=LAMBDA)
    state, _ = jax.jit(lambda key: train(algo, key, 3000, hyper))(jax.random.key(0))
    assert abs(float(kernel(state.weights)[2, 0]) - 1) > 0.5
    np.testing.assert_allclose(stream_td.predict(algo, state, jnp.eye(3), Linear(1)), [GAMMA**2, GAMMA, 1.0], rtol=1e-2)


@pytest.mark.slow
@pytest.mark.light
def test_td_follows_the_policy_it_is_given():
    """Action 1 in `ObservationActionReward` earns 1 where the cue is 1, nothing where it is -1."""

    def always_one(key, obs):
        return jnp.ones(obs.shape[:-1], jnp.int32)

    config = stream_td.Config(num_steps=50, normalize_reward=False, hidden=(16,))
    algo = stream_td.make(ObservationActionReward(), config, policy=always_one)
    state, _ = jax.jit(lambda key: train(algo, key, 1000))(jax.random.key(0))
    np.testing.assert_allclose(stream_td.predict(algo, state, jnp.array([[-1.0], [1.0]])), [0.0, 1.0], atol=0.02)
    action, _ = algo.act(algo.policy(state), jax.random.key(1), jnp.zeros((2, 1)))
    np.testing.assert_array_equal(action, [1, 1])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_q_by_hand(epsilon):
    """Every step of Watkins's Q(lambda) in a table with the bounded step size, by the actions that were taken."""
    algo = stream_q.make(Walk(id="Walk"), stream_q.Config(**RAW), network=Linear(2))
    hyper = stream_q.Hyper(gamma=GAMMA, trace_decay=LAMBDA, epsilon_start=epsilon, epsilon_end=epsilon)
    states = steps_of(algo, hyper, 12)
    q, e, cuts = np.zeros((4, 2)), np.zeros((4, 2)), 0
    for t, state in enumerate(states[1:]):
        s, found = t % 3, kernel(state.trace)
        decayed = (0 if s == 0 else GAMMA * LAMBDA) * e
        greedy = int(np.argmax(q[s]))
        # The action taken is the one whose value moved, or the greedy one where the error is zero.
        moved = np.abs(kernel(state.weights)[s] - q[s, :]) > 1e-7
        fresh = [a for a in (0, 1) if moved[a]]
        error = [(s == 2) + GAMMA * q[s + 1].max() * (s < 2) - q[s, a] for a in (0, 1)]
        a = fresh[0] if fresh and error[fresh[0]] else (greedy if found.any() else 1 - greedy)
        e = decayed.copy()
        e[s, a] += 1
        delta = error[a]
        q = q + delta * e / max(2 * max(abs(delta), 1) * np.abs(e).sum(), 1)
        if a != greedy:
            e, cuts = np.zeros((4, 2)), cuts + 1
        np.testing.assert_allclose(kernel(state.weights), q[:3], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found, e[:3], rtol=1e-5)
    assert cuts == 0 if epsilon == 0 else cuts > 0


def test_only_an_action_that_is_not_the_best_cuts_the_trace():
    trace = {"w": jnp.array([1.0, -2.0])}
    q = jnp.array([0.0, 3.0, 3.0])
    np.testing.assert_array_equal(stream_q.cut(trace, q, jnp.int32(1))["w"], [1, -2])  # however it was chosen
    np.testing.assert_array_equal(stream_q.cut(trace, q, jnp.int32(0))["w"], [0, 0])
    q = stream_q.allowed(q, jnp.array([True, False, False]))
    np.testing.assert_array_equal(stream_q.cut(trace, q, jnp.int32(0))["w"], [1, -2])


def test_epsilon_goes_down_a_line():
    hyper = stream_q.Hyper(*(jnp.float32(x) for x in (1, 2, 0.99, 0.8, 1.0, 0.01)), exploration_steps=jnp.int32(100))
    found = [stream_q.epsilon_at(jnp.int32(t), hyper) for t in (0, 50, 100, 1000)]
    np.testing.assert_allclose(found, [1.0, 0.505, 0.01, 0.01], rtol=1e-6)


def test_the_policy_objective():
    pi = Categorical(jnp.log(jnp.array([0.25, 0.75])))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    for delta, sign in ((2.0, 1), (-0.1, -1), (0.0, 0)):
        found = stream_ac.policy_objective(pi, jnp.int32(0), jnp.float32(delta), 0.01)
        np.testing.assert_allclose(found, np.log(0.25) + 0.01 * sign * entropy, rtol=1e-5)


def test_the_entropy_always_rises_with_the_step():
    """A step is delta times the gradient: the sign makes the entropy's part of it positive whatever delta is."""

    def gradient(delta, ent_coef):
        def objective(logits):
            return stream_ac.policy_objective(Categorical(logits), jnp.int32(0), jnp.float32(delta), ent_coef)

        return jax.grad(objective)(jnp.array([0.0, 1.0]))

    for delta in (3.0, -3.0):
        part = delta * (gradient(delta, 1.0) - gradient(delta, 0.0))
        assert part[0] > 0 > part[1], "towards the uniform policy"


def test_standard_deviations_are_a_softplus():
    x = jnp.array([-1e4, -200.0, -21.0, -20.0, -1.0, 0.0, 30.0])
    exact = np.log(np.logaddexp(0, np.asarray(x, np.float64))[3:])
    np.testing.assert_allclose(stream_ac.log_softplus(x), [-1e4, -200.0, -21.0, *exact], rtol=1e-5, atol=1e-6)
    slope = jax.vmap(jax.grad(stream_ac.log_softplus))(x)
    np.testing.assert_allclose(slope[:4], 1, rtol=1e-6)
    assert np.all(np.isfinite(np.asarray(slope)))


def test_ac_by_hand():
    """Two steps of both traces and both bounds in tables, with the softmax's gradient written out."""
    algo = stream_ac.make(Walk(id="Walk"), stream_ac.Config(**RAW), actor=Linear(2), critic=Linear(1))
    hyper = stream_ac.Hyper(gamma=GAMMA, trace_decay=LAMBDA, ent_coef=0.0)
    states = steps_of(algo, hyper, 6)
    v, theta, ev, ep = np.zeros(4), np.zeros((4, 2)), np.zeros(4), np.zeros((4, 2))
    for t, state in enumerate(states[1:]):
        s, found = t % 3, kernel(state.trace["policy"])
        decay = 0 if s == 0 else GAMMA * LAMBDA
        ev, ep = decay * ev, decay * ep
        ev[s] += 1
        p = np.exp(theta[s]) / np.exp(theta[s]).sum()
        a = int(np.argmax(found[s] - ep[s]))  # log pi rises with the preference of the action taken
        ep[s] += np.eye(2)[a] - p
        delta = (s == 2) + GAMMA * v[s + 1] * (s < 2) - v[s]
        bar = max(abs(delta), 1)
        v = v + delta * ev / max(2 * bar * np.abs(ev).sum(), 1)
        theta = theta + delta * ep / max(3 * bar * np.abs(ep).sum(), 1)
        np.testing.assert_allclose(found, ep[:3], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(kernel(state.trace["value"])[:, 0], ev[:3], rtol=1e-5)
        np.testing.assert_allclose(kernel(state.weights["value"])[:, 0], v[:3], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(kernel(state.weights["policy"]), theta[:3], rtol=1e-5, atol=1e-7)


# ---- the protocol


SMALL = dict(num_steps=8, hidden=(16,))
ALGOS = {
    "q": lambda env: stream_q.make(env, stream_q.Config(**SMALL)),
    "ac": lambda env: stream_ac.make(env, stream_ac.Config(**SMALL)),
    "td": lambda env: stream_td.make(env, stream_td.Config(**SMALL)),
}


@cache
def made(name, env):
    return ALGOS[name](env)


@pytest.mark.slow  # on episodes of several steps; test_contract_algos has it on those of one
@pytest.mark.parametrize("name", ALGOS)
def test_keeps_the_contract(name):
    check_algorithm(made(name, DelayedReward()), num_updates=4)


@pytest.mark.slow  # on episodes of several steps; test_contract_algos has it on those of one
@pytest.mark.parametrize("name", ALGOS)
def test_no_key_is_used_twice(name):
    algo = made(name, DelayedReward())
    state = algo.init(jax.random.key(0))

    def twice(key):
        return algo.update(algo.update(state.replace(key=key))[0])[1]["loss"]

    assert np.isfinite(assert_no_key_reuse(twice, jax.random.key(list(ALGOS).index(name) + 10)))


@pytest.mark.slow
@pytest.mark.light
def test_collect_alone_leaves_the_learner_as_it_was():
    algo = made("q", DelayedReward())
    state = algo.init(jax.random.key(0))
    after, _ = jax.jit(algo.collect)(state)
    assert int(after.step) == 8
    for name in streaming.LEARNED:
        jax.tree.map(np.testing.assert_array_equal, getattr(after, name), getattr(state, name))


@pytest.mark.slow
@pytest.mark.light
def test_steps_learned_one_by_one_or_many_an_update_are_alike():
    """Alike in what is learned of a task without chance."""
    hyper = stream_td.Hyper(gamma=GAMMA)
    config = stream_td.Config(num_steps=1, hidden=(16,))
    many = stream_td.make(Walk(id="Walk"), dataclasses.replace(config, num_steps=6))
    one = steps_of(stream_td.make(Walk(id="Walk"), config), hyper, 6)[-1]
    for a, b in zip(*map(jax.tree.leaves, (one.weights, steps_of(many, hyper, 1)[-1].weights)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["q", "ac", "td"])
def test_masks_are_kept(name):
    algo = made(name, Masked())
    state, _ = jax.jit(algo.update)(algo.init(jax.random.key(0)))
    mask = jnp.array([[False, True, False, True], [True, False, False, False]])
    obs = {"obs": jnp.zeros((64, 2, 1)), "action_mask": jnp.broadcast_to(mask, (64, 2, 4))}
    for greedy in (False, True):
        action, _ = algo.act(algo.policy(state), jax.random.key(1), obs, greedy=greedy)
        assert action.shape == (64, 2)
        assert set(np.unique(action[:, 0])) <= {1, 3} and set(np.unique(action[:, 1])) == {0}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["ac", "td"])
def test_the_critic_sees_what_is_privileged(name):
    algo = made(name, Privileged())
    state, _ = jax.jit(lambda key: train(algo, key, 400))(jax.random.key(0))
    value = state.weights["value"] if name == "ac" else state.weights
    assert kernel(value).shape[0] == 2
    if name == "ac":
        assert kernel(state.weights["policy"]).shape[0] == 1
    else:
        obs = {"obs": jnp.zeros((2, 1)), "privileged": jnp.array([[-1.0], [1.0]])}
        np.testing.assert_allclose(stream_td.predict(algo, state, obs), [-1.0, 1.0], atol=0.05)
    algo.act(algo.policy(state), jax.random.key(1), {"obs": jnp.zeros((3, 1))})


@pytest.mark.slow
@pytest.mark.light
def test_q_acts_in_bins_of_a_box():
    algo = stream_q.make(ObservationActionReward("box"), stream_q.Config(**SMALL, num_bins=4))
    state = algo.init(jax.random.key(0), stream_q.Hyper(epsilon_start=1.0))
    action, _ = algo.act(algo.policy(state), jax.random.key(0), jnp.zeros((200, 1)))
    np.testing.assert_allclose(np.unique(action), [-2.0, -1.0, 0.0, 1.0], atol=1e-6)
    assert action.shape == (200, 1)


@pytest.mark.slow
@pytest.mark.light
def test_continuous_actions_are_in_units_of_the_box():
    """Zero outputs are the middle of the box with a standard deviation of log 2 half widths."""
    env, _ = make("Pendulum-v1")
    algo = stream_ac.make(env, stream_ac.Config(num_steps=1), actor=Linear(2), critic=Linear(1))
    policy = algo.policy(algo.init(jax.random.key(0)))
    obs = jnp.zeros((20_000, 3))
    np.testing.assert_array_equal(algo.act(policy, jax.random.key(0), obs, greedy=True)[0], 0)
    action = np.asarray(algo.act(policy, jax.random.key(0), obs)[0])
    noise = 2 * np.clip(np.log(2) * np.random.default_rng(0).normal(size=100_000), -1, 1)
    np.testing.assert_allclose(action.std(), noise.std(), rtol=0.02)
    assert np.abs(action).max() == 2


class SixTorques(ObservationActionReward):
    def action_space(self, params):
        return Box(-1.0, 1.0, (6,))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: stream_q.Config(num_bins=1), r"num_bins=1.*at least 2"),
        (
            lambda: stream_q.make(SixTorques("box"), stream_q.Config(num_bins=5)),
            r"num_bins=5 for 6 dimensions are 15,625 actions.*stream_ac",
        ),
        (lambda: stream_q.make(ObservationActionReward("multi_discrete")), r"MultiDiscrete"),
        (lambda: stream_q.make(make("CartPole-v1")[0], network=Linear(3)), r"outputs \(3,\).*needs \(2,\)"),
        (
            lambda: stream_ac.make(make("Pendulum-v1")[0], actor=Linear(1)),
            r"actor gives outputs \(1,\).*\(2,\)",
        ),
        (
            lambda: stream_ac.make(make("CartPole-v1")[0], critic=Linear(2)),
            r"critic gives outputs \(2,\).*\(1,\)",
        ),
        (lambda: stream_td.make(make("CartPole-v1")[0], network=Linear(2)), r"\(2,\).*needs \(1,\)"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

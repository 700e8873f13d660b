"""Full episodes against a plain loop, and the statistics against brute force."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithm import Algorithm
from jaxrl.algos import a2c, alphazero, ddpg, dqn, iqn, ppo, ppo_rnn, pqn, sac
from jaxrl.algos.curricula import dr
from jaxrl.algos.streaming import stream_ac, stream_q
from jaxrl.curriculum import attach
from jaxrl.environment import NO_LIMIT
from jaxrl.evaluation import evaluate
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.wrappers import ActionRepeat, StickyActions

EPISODES = 5


def fake(act, initial_carry=lambda batch_shape=(): ()):
    """An algorithm as far as deployment goes."""
    nothing = Algorithm(*[None] * len(Algorithm._fields))
    return nothing._replace(act=act, initial_carry=initial_carry, deployed="sampled")


def lean(policy, key, obs, carry=(), greedy=False):
    """Push the way the pole leans, sometimes at random unless greedy."""
    push = (obs @ policy > 0).astype(jnp.int32)
    noise = jax.random.bernoulli(key, 0.3, push.shape) & (not greedy)
    return jnp.where(noise, 1 - push, push), carry


def turns(policy, key, obs, carry, greedy=False):
    """Remembers how often it acted: pushes right on every third turn."""
    return jnp.where(carry % 3 == 0, 1, 0) * jnp.ones(obs.shape[:-1], jnp.int32), carry + 1


LEAN = fake(lean)
TURNS = fake(turns, lambda batch_shape=(): jnp.zeros(batch_shape, jnp.int32))
POLICY = jnp.asarray([0.0, 0.0, 1.0, 0.3])


def by_hand(algo, policy, env, params, key, cap, greedy, hold=1):
    """The same episodes, one Python step after the other, with the same keys."""
    reset_key, key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, EPISODES), params)
    carry, step = algo.initial_carry((EPISODES,)), jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    act = jax.jit(lambda key, obs, carry: algo.act(policy, key, obs, carry, greedy=greedy))
    returns, lengths, finished = np.zeros(EPISODES), np.zeros(EPISODES, int), np.zeros(EPISODES, bool)
    for t in range(cap):
        key, act_key, env_key = jax.random.split(key, 3)
        if t % hold == 0:
            action, carry = act(act_key, obs, carry)
        obs, state, reward, terminated, truncated, _ = step(jax.random.split(env_key, EPISODES), state, action, params)
        returns += np.where(finished, 0, reward)
        lengths += ~finished
        finished = finished | np.asarray(terminated | truncated)
    return returns, lengths, finished


@pytest.fixture(scope="module")
def tasks():
    env, params = jaxrl.make("CartPole-v1")
    sticky = StickyActions(env)
    car, car_params = jaxrl.make("MountainCar-v0")
    return {
        "deterministic": (env, params.replace(max_steps=jnp.int32(40))),
        "stochastic": (
            sticky,
            sticky.default_params.replace(env=params.replace(max_steps=jnp.int32(40)), probability=0.9),
        ),
        "negative": (car, car_params.replace(max_steps=jnp.int32(30))),
    }


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize(
    ("algo", "task", "cap", "greedy", "hold"),
    [
        (LEAN, "deterministic", None, False, 1),
        (LEAN, "deterministic", 12, True, 1),
        (LEAN, "stochastic", None, True, 1),
        (TURNS, "deterministic", None, False, 1),
        (LEAN, "stochastic", None, False, 3),
        (TURNS, "deterministic", None, False, 2),
    ],
)
def test_equals_a_python_loop(tasks, algo, task, cap, greedy, hold):
    env, params = tasks[task]
    how = {"num_episodes": EPISODES, "max_steps": cap, "greedy": greedy, "hold": hold}
    run = jax.jit(lambda key: evaluate(algo, POLICY, key, env, params, **how))
    stats = run(jax.random.key(3))
    returns, lengths, finished = by_hand(algo, POLICY, env, params, jax.random.key(3), cap or 40, greedy, hold)
    np.testing.assert_allclose(stats.returns, returns, rtol=1e-6)
    np.testing.assert_array_equal(stats.lengths, lengths)
    np.testing.assert_array_equal(stats.finished, finished)
    assert stats.returns.shape == (EPISODES,) and finished.all() == (cap is None)
    assert len(set(lengths)) > 1 or cap == 12
    for one, other in zip(stats, run(jax.random.key(3)), strict=True):  # deterministic
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.light
def test_slow_decisions_equal_the_wrapper_that_repeats_actions(tasks):
    """One program serves all numbers of steps; a push of eight steps lets the pole fall."""
    env, params = tasks["deterministic"]
    run = jax.jit(
        lambda hold: evaluate(
            LEAN, POLICY, jax.random.key(3), env, params, num_episodes=EPISODES, greedy=True, hold=hold
        )
    )
    means = []
    for hold in (1, 2, 8):
        held = run(jnp.int32(hold))
        repeated = evaluate(
            LEAN, POLICY, jax.random.key(3), ActionRepeat(env, hold), params, num_episodes=EPISODES, greedy=True
        )
        np.testing.assert_array_equal(held.returns, repeated.returns)
        means.append(float(held.returns.mean()))
    assert run._cache_size() == 1 and means[0] == 40 > means[2]


def test_steps_of_holding_are_whole_and_positive(tasks):
    env, params = tasks["deterministic"]
    for hold, message in ((1.5, "hold=1.5: steps are whole numbers"), (0, "hold=0: it must be at least 1")):
        with pytest.raises(ValueError, match=message):
            evaluate(LEAN, POLICY, jax.random.key(3), env, params, num_episodes=1, hold=hold)


def test_the_cap_leaves_episodes_unfinished_and_the_time_limit_does_not(tasks):
    env, params = tasks["negative"]

    def idle(policy, key, obs, carry=(), greedy=False):
        return jnp.ones(obs.shape[:-1], jnp.int32), carry

    capped = evaluate(fake(idle), None, jax.random.key(0), env, params, num_episodes=3, max_steps=7)
    np.testing.assert_array_equal(capped.returns, [-7.0] * 3)
    np.testing.assert_array_equal(capped.lengths, [7] * 3)
    assert not capped.finished.any()
    whole = evaluate(fake(idle), None, jax.random.key(0), env, params, num_episodes=3)
    np.testing.assert_array_equal(whole.lengths, [30] * 3)
    assert whole.finished.all()


@pytest.mark.slow
@pytest.mark.light
def test_many_policies_at_once(tasks):
    env, params = tasks["deterministic"]
    policies, keys = jnp.stack([POLICY, -POLICY]), jax.random.split(jax.random.key(1), 2)

    def one(policy, key):
        return evaluate(LEAN, policy, key, env, params, num_episodes=EPISODES)

    together = jax.jit(jax.vmap(one))(policies, keys)
    single = jax.jit(one)
    for i in range(2):
        for a, b in zip(together, single(policies[i], keys[i]), strict=True):
            np.testing.assert_array_equal(a[i], b)
    assert together.returns[0].mean() > together.returns[1].mean()


def test_a_task_without_a_limit_needs_a_cap(tasks):
    env, params = tasks["deterministic"]
    endless = params.replace(max_steps=jnp.int32(NO_LIMIT))
    with pytest.raises(ValueError, match=r"CartPole-v1 has no time limit: give evaluate a max_steps"):
        evaluate(LEAN, POLICY, jax.random.key(0), env, endless, num_episodes=2)
    assert (evaluate(LEAN, POLICY, jax.random.key(0), env, endless, num_episodes=2, max_steps=5).lengths <= 5).all()


@pytest.mark.slow
@pytest.mark.light
def test_the_environment_is_the_algorithm_s_unless_another_is_given():
    env, params = jaxrl.make("CartPole-v1")
    algo, key = ppo.make(env, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, hidden=(8,))), jax.random.key(0)
    policy = algo.policy(algo.init(key))
    own = jax.jit(lambda: evaluate(algo, policy, key, num_episodes=4, max_steps=30))()
    said = jax.jit(lambda: evaluate(algo, policy, key, env, params, num_episodes=4, max_steps=30))()
    jax.tree.map(np.testing.assert_array_equal, own, said)
    assert evaluate(algo, policy, key, env_params=params.replace(max_steps=2), num_episodes=4).lengths.max() == 2


@pytest.mark.parametrize(("episodes", "cap"), [(0, None), (-1, None), (2, 0)])
def test_impossible_numbers(tasks, episodes, cap):
    with pytest.raises(ValueError, match=r"(num_episodes|max_steps)=(0|-1): it must be at least 1"):
        evaluate(LEAN, POLICY, jax.random.key(0), *tasks["deterministic"], num_episodes=episodes, max_steps=cap)


# ---- statistics


def test_iqm_is_the_mean_of_the_middle_half():
    rng = np.random.default_rng(0)
    for n in (4, 8, 40):
        scores = rng.normal(size=n)
        np.testing.assert_allclose(iqm(scores), np.sort(scores)[n // 4 : n - n // 4].mean(), rtol=1e-12)
    assert iqm([1.0, 2.0, 3.0, 1e9]) == 2.5
    assert iqm(np.array([[1.0, 2.0], [3.0, -1e9]])) == 1.5
    assert iqm([7.0]) == 7.0
    with pytest.raises(ValueError, match="no scores"):
        iqm([])


def test_interval_of_the_mean_is_the_known_one():
    scores = np.random.default_rng(1).normal(3.0, 2.0, 200)
    low, high = bootstrap_interval(scores, np.mean)
    half = 1.96 * scores.std() / np.sqrt(200)
    np.testing.assert_allclose([low, high], [scores.mean() - half, scores.mean() + half], atol=0.1 * half)
    assert (low, high) == bootstrap_interval(scores, np.mean)
    narrow = bootstrap_interval(scores, np.mean, confidence=0.5)
    assert low < narrow[0] < scores.mean() < narrow[1] < high
    assert bootstrap_interval([4.0, 4.0, 4.0]) == (4.0, 4.0)


def test_interval_redraws_runs_within_each_task():
    # Two tasks of very different scale and no spread within: a stratified redraw always has the same mean.
    scores = np.array([[0.0, 100.0]] * 5)
    assert bootstrap_interval(scores, np.mean) == (50.0, 50.0)
    # And the tasks are redrawn apart: with both tied together the mean would be 0 or 1 a run, and spread more.
    tied = np.repeat(np.random.default_rng(2).integers(0, 2, (30, 1)), 8, axis=1).astype(float)
    low, high = bootstrap_interval(tied, np.mean)
    assert high - low < 2 * 1.96 * tied.std() / np.sqrt(30 * 8) * 1.2


# ---- how a policy acts where nobody says


@pytest.mark.slow
@pytest.mark.light
def test_policies_act_as_their_algorithm_is_deployed(tasks):
    """An epsilon-greedy agent is not judged by its exploration, and whoever searches does so in evaluations, too."""
    env, params = jaxrl.make("CartPole-v1")

    def returns(algo, greedy=None):
        return evaluate(
            algo, POLICY, jax.random.key(3), env, params, num_episodes=EPISODES, max_steps=60, greedy=greedy
        ).returns

    sampled, mode = returns(LEAN, False), returns(LEAN, True)
    assert (sampled < mode).any()
    np.testing.assert_array_equal(returns(LEAN), sampled)
    np.testing.assert_array_equal(returns(LEAN._replace(deployed="greedy")), mode)

    class Plan(NamedTuple):
        action: jax.Array

    def search(policy, key, env_state, obs, env_params, greedy):
        assert greedy and env_params is not None
        upright = env_state.theta + 0.3 * env_state.theta_dot > 0  # of the state, not of what is seen of it
        return Plan(upright.astype(jnp.int32))

    searching = LEAN._replace(deployed="search", search=search, venv=jaxrl.vectorize(env, 1))
    np.testing.assert_array_equal(returns(searching), mode)
    np.testing.assert_array_equal(returns(searching, False), sampled)
    other = StickyActions(env)
    with pytest.raises(ValueError, match="searches in CartPole-v1 and cannot in CartPole-v1: with greedy="):
        evaluate(searching, POLICY, jax.random.key(3), other, other.default_params, num_episodes=EPISODES, max_steps=60)


@pytest.mark.slow
@pytest.mark.light
def test_each_kind_of_algorithm_says_how_it_is_deployed():
    env = jaxrl.make("CartPole-v1")[0]
    for module, deployed in (
        (ppo, "sampled"), (ppo_rnn, "sampled"), (a2c, "sampled"), (dqn, "greedy"), (iqn, "greedy"), (pqn, "greedy"),
        (sac, "greedy"), (stream_q, "greedy"), (stream_ac, "sampled"),
    ):  # fmt: skip
        assert module.make(env).deployed == deployed, module.__name__
    assert ddpg.make(jaxrl.make("Pendulum-v1")[0]).deployed == "greedy"
    assert alphazero.make(jaxrl.make("Catch-bsuite")[0]).deployed == "search"
    levels = jaxrl.vectorize(env, dqn.Config().num_envs, batched_params=True)
    assert attach(dqn.make(levels), dr.make(lambda key, params: params)).deployed == "greedy"

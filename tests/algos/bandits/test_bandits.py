"""Bandit algorithms: indices and posteriors by hand, statistics against NumPy on recorded runs, regret and bounds."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from jaxrl import train
from jaxrl.algos.bandits import (
    epsilon_greedy,
    exp3,
    lin_ts,
    lin_ucb,
    nonstationary_ucb,
    successive_elimination,
    thompson,
    ucb,
)
from jaxrl.environment import strongly_typed
from jaxrl.envs.bandits.linear import ContextualLinearBandit
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.envs.classic.cartpole import CartPole


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def played(algo, weights, hyper, key=0, n=None, greedy=False, obs=None):
    """The action of a learner with these weights, or `n` of them with as many keys."""
    policy = algo.policy(jax.eval_shape(algo.init, jax.random.key(0))).__class__(weights, strongly_typed(hyper))
    obs = jnp.int32(0) if obs is None else obs

    def act(key):
        return algo.act(policy, key, obs, greedy=greedy)[0]

    if n is None:
        return int(act(jax.random.key(key)))
    return np.asarray(jax.jit(jax.vmap(act))(jax.random.split(jax.random.key(key), n)))


def recorded(algo, rounds, hyper=None, env_params=None):
    """`(observations, actions, rewards, weights after each round)` of one run."""

    @jax.jit
    def run(key):
        def body(state, _):
            state, rollout = algo.collect(state)
            state, _ = algo.learn(state, rollout)
            x = rollout.experience
            return state, (x.obs[0], x.action[0], x.reward[0], state.weights)

        return jax.lax.scan(body, algo.init(key, hyper, env_params), length=rounds)[1]

    return jax.tree.map(np.asarray, run(jax.random.key(0)))


def regrets(algo, runs, rounds, hyper=None, env_params=None):
    """The final cumulative regret of independent runs, (runs,), and their memories."""

    @jax.jit
    @jax.vmap
    def run(key):
        state = algo.init(key, hyper, env_params)
        state = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=rounds)[0]
        return state.regret, state.weights

    regret, weights = run(jax.random.split(jax.random.key(0), runs))
    return np.asarray(regret), weights


@cache
def bernoulli(arms):
    return BernoulliBandit(arms=arms)


MODULES = [epsilon_greedy, exp3, nonstationary_ucb, successive_elimination, thompson, ucb]


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("module", [epsilon_greedy, nonstationary_ucb, successive_elimination, ucb])
def test_every_arm_is_tried_once_first(module):
    _, actions, _, _ = recorded(module.make(bernoulli(7)), 7)
    np.testing.assert_array_equal(np.sort(actions), np.arange(7))


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split(".")[-1])
def test_the_learner_is_new_with_each_problem(module):
    params = bernoulli(3).default_params.replace(max_steps=jnp.int32(9))
    _, _, _, weights = recorded(module.make(bernoulli(3)), 18, env_params=params)
    if module is exp3:  # one round moves one weight
        distinct = [len(np.unique(w)) for w in weights.log_weight]
        assert distinct[8] == 3 and distinct[9] <= 2 and distinct[17] == 3
    else:
        pulls = weights.pulls.sum(1)
        np.testing.assert_allclose(pulls[:9], pulls[9:])
        assert pulls[9] == 1 and pulls[8] > 8


def unchecked(cls, **fields):
    """A config as a user makes it, without the tests' run-time types, which would object first."""
    config = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(config, name, value)
    config.__post_init__()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: unchecked(ucb.Config, bound="ucb2"), "choose ucb1, kl or moss"),
        (lambda: unchecked(thompson.Config, posterior="gamma"), "choose beta or gaussian"),
        (lambda: unchecked(exp3.Config, estimator="exp4"), "choose exp3 or ix"),
        (lambda: unchecked(lin_ucb.Config, radius="wide"), "choose constant or oful"),
        (lambda: unchecked(nonstationary_ucb.Config, forgetting="none"), "choose discounted or window"),
        (lambda: nonstationary_ucb.Config(window=0), "window=0"),
        (lambda: lin_ucb.make(bernoulli(3)), "lin_ucb needs observations of shape"),
        (lambda: lin_ts.make(bernoulli(3)), "lin_ts needs observations of shape"),
        (lambda: ucb.make(bernoulli(3), ucb.Config(num_envs=2)), "num_envs=2"),
        *(
            (lambda module=module: module.make(CartPole()), "plays bandits .* CartPole.* has states. .*: .*dqn.*ppo")
            for module in (ucb, exp3, thompson, epsilon_greedy, successive_elimination, nonstationary_ucb)
        ),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---- upper confidence bounds


def test_indices_by_hand():
    mean, pulls, t = jnp.array([0.5, 0.2]), jnp.array([4.0, 16.0]), jnp.float32(21)
    hyper = strongly_typed(ucb.Hyper(horizon=200.0))
    close(ucb.ucb1(mean, pulls, t, hyper), 0.5 * np.array([1, 0.4]) + np.sqrt(2 * np.log(21) / np.array([4, 16])))
    close(ucb.moss(mean, pulls, t, hyper), [0.5 + np.sqrt(np.log(25) / 4), 0.2 + np.sqrt(np.log(6.25) / 16)])
    close(ucb.moss(mean, jnp.array([100.0, 200.0]), t, hyper), mean)


def kl_root(p, limit):
    def excess(q):
        return (p * np.log(p / q) if p > 0 else 0) + ((1 - p) * np.log((1 - p) / (1 - q)) if p < 1 else 0) - limit

    return 1.0 if p == 1 or excess(1 - 1e-15) < 0 else brentq(excess, p if p > 0 else 1e-300, 1 - 1e-15, xtol=1e-14)


def test_kl_bound_against_a_root_finder():
    means = np.float32([0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999, 1])
    pulls = np.float32([1, 2, 3, 5, 10, 30, 100, 1e3, 1e4, 1e6])
    for t in (2.0, 100.0, 1e6):
        grid = np.array([[kl_root(float(p), np.log(t) / float(n)) for n in pulls] for p in means])
        mean, n = (jnp.asarray(x) for x in np.meshgrid(means, pulls, indexing="ij"))
        found = jax.vmap(ucb.kl_bound, (0, 0, None))(mean, n, jnp.float32(t))
        close(found, grid, rtol=0, atol=1e-6)
        assert np.all(found >= mean) and np.all(found <= 1)
    # The first round and a mean known exactly: nothing is added.
    close(ucb.kl_bound(jnp.array([0.0, 0.4, 1.0]), jnp.ones(3), jnp.float32(1)), [0, 0.4, 1])


@pytest.mark.slow
def test_the_arm_of_the_highest_bound_is_pulled():
    for bound, arm in (("ucb1", 1), ("kl", 1), ("moss", 1)):
        algo = ucb.make(bernoulli(3), ucb.Config(bound=bound))
        weights = ucb.Weights(jnp.array([100.0, 4.0, 100.0]), jnp.array([60.0, 2.0, 10.0]))
        assert played(algo, weights, ucb.Hyper()) == arm
        assert played(algo, weights, ucb.Hyper(), greedy=True) == 0


def test_ties_are_broken_evenly():
    weights = ucb.Weights(jnp.array([2.0, 2.0, 2.0]), jnp.array([2.0, 0.0, 2.0]))
    actions = played(ucb.make(bernoulli(3)), weights, ucb.Hyper(), n=2000)
    assert stats.binomtest(int(sum(actions == 0)), 2000).pvalue > 0.01 and not np.any(actions == 1)


# ---- epsilon-greedy


def test_decreasing_epsilon_by_hand():
    c, gap = jnp.float32(5), jnp.float32(0.1)
    for t, epsilon in ((1, 1), (10_000, 0.5), (100_000, 0.05)):
        close(epsilon_greedy.decreasing_epsilon(jnp.float32(t), 10, c, gap), epsilon)


@pytest.mark.parametrize("decreasing", [False, True])
def test_how_often_it_explores(decreasing):
    algo = epsilon_greedy.make(bernoulli(4), epsilon_greedy.Config(decreasing=decreasing))
    weights = epsilon_greedy.Weights(jnp.array([1.0, 1.0, 96.0, 1.0]), jnp.array([0.0, 0.0, 48.0, 0.0]))
    # decreasing: 0.06 * 4 / (0.1^2 * 100) = 0.24 in round 100
    hyper = epsilon_greedy.Hyper(epsilon=0.24, c=0.06)
    counts = np.bincount(played(algo, weights, hyper, n=20_000), minlength=4)
    assert stats.chisquare(counts, 20_000 * np.array([0.06, 0.06, 0.82, 0.06])).pvalue > 0.01
    assert played(algo, weights, hyper, greedy=True) == 2


# ---- Thompson sampling


def test_gamma_draws():
    shapes = jnp.array([1.0, 1.5, 3.0, 80.0, 1e4])
    draws = jax.jit(jax.vmap(thompson.gamma_draw, (0, None)))(jax.random.split(jax.random.key(1), 20_000), shapes)
    for shape, draw in zip(shapes, np.asarray(draws).T, strict=True):
        assert stats.kstest(draw, "gamma", (float(shape),)).pvalue > 0.01, shape
    corr = np.corrcoef(np.asarray(draws).T) - np.eye(5)
    assert np.abs(corr).max() < 0.03


def test_arms_are_pulled_with_the_probability_that_they_are_best():
    algo = thompson.make(bernoulli(2))
    # Beta(3, 2) and Beta(2, 4): the chance that the first is larger, by integration.
    weights = thompson.Weights(jnp.array([3.0, 4.0]), jnp.array([2.0, 1.0]))
    q = (np.arange(20_000) + 0.5) / 20_000
    best = np.mean(stats.beta.sf(stats.beta.ppf(q, 2, 4), 3, 2))
    first = np.sum(played(algo, weights, thompson.Hyper(), n=20_000) == 0)
    assert stats.binomtest(int(first), 20_000, best).pvalue > 0.01
    assert played(algo, weights, thompson.Hyper(), greedy=True) == 0


def test_normal_posterior_by_hand():
    hyper = thompson.Hyper(prior_mean=1.0, prior_scale=2.0, noise_scale=0.5)
    pulls, total = jnp.array([0.0, 3.0]), jnp.array([0.0, 6.0])
    mean, variance = thompson.normal_posterior(pulls, total, strongly_typed(hyper))
    close(variance, [4, 1 / (0.25 + 12)])
    close(mean, [1, (0.25 + 24) / 12.25])
    algo = thompson.make(bernoulli(2), thompson.Config(posterior="gaussian"))
    first = np.sum(played(algo, thompson.Weights(pulls, total), hyper, n=20_000) == 0)
    best = stats.norm.cdf((mean[0] - mean[1]) / np.sqrt(variance.sum()))
    assert stats.binomtest(int(first), 20_000, float(best)).pvalue > 0.01


# ---- EXP3


def test_exp3_by_hand():
    log_weight = jnp.log(jnp.array([1.0, 3.0]))
    p = exp3.probabilities(log_weight, jnp.float32(0.2), "exp3")
    close(p, [0.8 * 0.25 + 0.1, 0.8 * 0.75 + 0.1])
    close(exp3.log_weight_step(jnp.float32(0.6), p[0], jnp.float32(0.2), 2, "exp3"), 0.2 * 0.6 / 0.3 / 2)
    close(exp3.probabilities(log_weight, jnp.float32(0.2), "ix"), [0.25, 0.75])
    close(exp3.log_weight_step(jnp.float32(0.6), jnp.float32(0.25), jnp.float32(0.2), 2, "ix"), -0.4 * 0.4 / 0.45)
    hyper = strongly_typed(exp3.Hyper(horizon=500.0))
    close(exp3.exploration(10, "exp3", hyper), np.sqrt(10 * np.log(10) / ((np.e - 1) * 500)))
    close(exp3.exploration(10, "ix", hyper), np.sqrt(2 * np.log(10) / (10 * 500)) / 2)
    close(exp3.exploration(10, "exp3", hyper.replace(gamma=jnp.float32(0.3))), 0.3)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("estimator", ["exp3", "ix"])
def test_exp3_weights_on_a_recorded_run(estimator):
    algo = exp3.make(bernoulli(3), exp3.Config(estimator=estimator))
    _, actions, rewards, weights = recorded(algo, 60, exp3.Hyper(gamma=0.1))
    log_weight = np.zeros(3)
    for t in range(60):
        w = np.exp(log_weight) / np.exp(log_weight).sum()
        if estimator == "exp3":
            p = 0.9 * w + 0.1 / 3
            log_weight[actions[t]] += 0.1 * rewards[t] / p[actions[t]] / 3
        else:
            log_weight[actions[t]] -= 0.2 * (1 - rewards[t]) / (w[actions[t]] + 0.1)
        close(weights.log_weight[t] - weights.log_weight[t][0], log_weight - log_weight[0], rtol=1e-4, atol=1e-4)


def test_exp3_plays_its_probabilities():
    algo = exp3.make(bernoulli(3))
    weights = exp3.Weights(jnp.log(jnp.array([1.0, 3.0, 4.0])))
    counts = np.bincount(played(algo, weights, exp3.Hyper(gamma=0.3), n=20_000), minlength=3)
    assert stats.chisquare(counts, 20_000 * (0.7 * np.array([1, 3, 4]) / 8 + 0.1)).pvalue > 0.01
    assert played(algo, weights, exp3.Hyper(), greedy=True) == 2


# ---- linear

CONTEXTUAL = ContextualLinearBandit(arms=4, dim=3)


@pytest.mark.slow
@pytest.mark.parametrize("radius", ["constant", "oful"])
def test_lin_ucb_is_ridge_regression_and_its_bounds(radius):
    hyper = lin_ucb.Hyper(alpha=0.7, regularisation=0.5, noise_scale=0.2, theta_norm=1.5, delta=0.05)
    algo = lin_ucb.make(CONTEXTUAL, lin_ucb.Config(radius=radius))
    obs, actions, rewards, weights = recorded(algo, 50, hyper)
    A, b = 0.5 * np.eye(3), np.zeros(3)
    for t in range(50):
        log_det = np.log(np.linalg.det(A / 0.5))
        beta = 0.7 if radius == "constant" else 0.2 * np.sqrt(log_det + 2 * np.log(1 / 0.05)) + np.sqrt(0.5) * 1.5
        inverse = np.linalg.inv(A)
        index = obs[t] @ inverse @ b + beta * np.sqrt(np.einsum("ki,ij,kj->k", obs[t], inverse, obs[t]))
        assert index[actions[t]] > index.max() - 1e-4
        x = obs[t][actions[t]].astype(float)
        A, b = A + np.outer(x, x), b + rewards[t] * x
        close(weights.inverse[t], np.linalg.inv(A), rtol=1e-4, atol=1e-5)
        close(weights.moment[t], b, rtol=1e-4, atol=1e-5)
        close(weights.log_det[t], np.log(np.linalg.det(A / 0.5)), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_lin_ts_draws_from_the_posterior():
    algo = lin_ts.make(CONTEXTUAL)
    hyper = lin_ts.Hyper(v=0.8, regularisation=0.5)
    obs, actions, rewards, weights = recorded(algo, 30, hyper)
    x = obs[np.arange(30), actions].astype(float)
    A = 0.5 * np.eye(3) + x.T @ x
    last = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), weights)
    close(last.root @ last.root.T, np.linalg.inv(A), rtol=1e-4, atol=1e-5)
    close(last.moment, x.T @ rewards, rtol=1e-4, atol=1e-5)
    mean = np.linalg.solve(A, x.T @ rewards)
    features = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    theta = np.random.default_rng(1).multivariate_normal(mean, 0.8**2 * np.linalg.inv(A), 200_000)
    expected = np.bincount((theta @ np.asarray(features).T).argmax(1), minlength=4) / 200_000
    counts = np.bincount(played(algo, last, hyper, n=20_000, obs=features), minlength=4)
    assert expected.max() < 0.95
    np.testing.assert_allclose(counts / 20_000, expected, atol=4 * 0.5 / np.sqrt(20_000))
    assert played(algo, last, hyper, greedy=True, obs=features) == int((np.asarray(features) @ mean).argmax())


# ---- forgetting


def test_discounted_statistics_and_choices():
    hyper = nonstationary_ucb.Hyper(discount=0.9, xi=0.3)
    _, actions, rewards, weights = recorded(nonstationary_ucb.make(bernoulli(3)), 60, hyper)
    n, s = np.zeros(3), np.zeros(3)
    for t in range(60):
        if t >= 3:
            index = s / n + 2 * np.sqrt(0.3 * np.log(n.sum()) / n)
            assert index[actions[t]] > index.max() - 1e-4
        n, s = 0.9 * n + (np.arange(3) == actions[t]), 0.9 * s + (np.arange(3) == actions[t]) * rewards[t]
        close(weights.pulls[t], n)
        close(weights.total[t], s)


def test_windowed_statistics_and_choices():
    config = nonstationary_ucb.Config(forgetting="window", window=7)
    _, actions, rewards, weights = recorded(nonstationary_ucb.make(bernoulli(3), config), 60)
    for t in range(60):
        arms, last = actions[max(0, t - 6) : t + 1], rewards[max(0, t - 6) : t + 1]
        close(weights.pulls[t], [np.sum(arms == k) for k in range(3)])
        close(weights.total[t], [np.sum(last[arms == k]) for k in range(3)])
        if t >= 3 and np.all(weights.pulls[t - 1] > 0):
            n, s = weights.pulls[t - 1], weights.total[t - 1]
            index = s / n + np.sqrt(0.6 * np.log(min(t, 7)) / n)
            assert index[actions[t]] > index.max() - 1e-4


# ---- elimination


def test_elimination_takes_turns_and_drops_what_is_surely_worse():
    close(
        successive_elimination.confidence(jnp.float32(50), 3, jnp.float32(0.1)), np.sqrt(np.log(15 * 2500 / 0.1) / 50)
    )
    params = bernoulli(3).default_params.replace(mean=jnp.array([0.0, 1.0, 0.9]))
    hyper = successive_elimination.Hyper(delta=0.5)
    _, actions, _, weights = recorded(successive_elimination.make(bernoulli(3)), 600, hyper, params)
    first = int(np.argmin(weights.alive[:, 0]))  # the round after which arm 0 is out
    np.testing.assert_array_equal(actions[: first + 1], np.arange(first + 1) % 3)
    t = (first + 1) // 3
    alpha = [np.sqrt(np.log(15 * k * k / 0.5) / k) for k in (t - 1, t)]
    mean = weights.total[first, 1] / t
    assert mean < 2 * alpha[0] and weights.total[first].max() / t >= 2 * alpha[1]
    assert not np.any(actions[first + 1 :] == 0)


@pytest.mark.slow
@pytest.mark.light
def test_the_best_arm_stays_even_where_the_bound_is_tight():
    hyper = successive_elimination.Hyper(delta=0.1, scale=0.5)  # twice the rewards: a bound that is not too loose
    params = bernoulli(3).default_params.replace(mean=jnp.array([0.1, 0.5, 0.4]))
    _, weights = regrets(successive_elimination.make(bernoulli(3)), 400, 999, hyper, params)
    alive = np.asarray(weights.alive)
    assert np.mean(~alive[:, 1]) <= 0.1
    assert np.mean(~alive[:, 0]) > 0.9


# ---- regret


def lai_robbins(mean, rounds):
    best = mean.max()
    p = mean[mean < best]
    return np.sum((best - p) / (p * np.log(p / best) + (1 - p) * np.log((1 - p) / (1 - best)))) * np.log(rounds)


def test_ucb1_regret_is_below_its_theorem():
    mean = np.array([0.2, 0.5, 0.8])
    params = bernoulli(3).default_params.replace(mean=jnp.asarray(mean, jnp.float32))
    regret, _ = regrets(ucb.make(bernoulli(3)), 100, 1000, env_params=params)
    gap = 0.8 - mean[:2]
    bound = np.sum(8 * np.log(1000) / gap + (1 + np.pi**2 / 3) * gap)
    assert lai_robbins(mean, 1000) < regret.mean() < bound


@pytest.mark.slow
def test_kl_ucb_and_thompson_sampling_are_near_the_lower_bound():
    mean = np.array([0.9, 0.8])
    params = bernoulli(2).default_params.replace(mean=jnp.asarray(mean, jnp.float32), max_steps=jnp.int32(20_001))
    lower = lai_robbins(mean, 20_000)
    for algo in (ucb.make(bernoulli(2), ucb.Config(bound="kl")), thompson.make(bernoulli(2))):
        # The bound is asymptotic: so early the mean may be below it, but never far above.
        regret = regrets(algo, 500, 20_000, env_params=params)[0].mean()
        assert 0.4 < regret / lower < 1.2, (regret, lower)
    assert regrets(ucb.make(bernoulli(2)), 200, 20_000, env_params=params)[0].mean() > 3 * lower


def test_a_thousand_runs_are_one_program():
    algo = thompson.make(bernoulli(2), thompson.Config(posterior="gaussian"))
    state, metrics = jax.jit(jax.vmap(lambda key: train(algo, key, 5)))(jax.random.split(jax.random.key(0), 1000))
    close(metrics["regret"].sum(1), metrics["cumulative_regret"][:, -1])
    assert state.weights.pulls.shape == (1000, 2)

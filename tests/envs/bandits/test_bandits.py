"""Bandits: reward laws against theory, regrets by hand, and what `generate` draws."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.envs.bandits.adversarial import AdversarialBandit, best_fixed_arm
from jaxrl.envs.bandits.best_arm import BestArmIdentification
from jaxrl.envs.bandits.dueling import DuelingBandit, condorcet_winner
from jaxrl.envs.bandits.linear import ContextualLinearBandit, LinearBandit, SparseLinearBandit
from jaxrl.envs.bandits.nonstationary import DriftingBandit, PiecewiseBandit, SwitchingBandit, reflect
from jaxrl.envs.bandits.stochastic import BernoulliBandit, BetaBandit, GaussianBandit, HeavyTailedBandit

ENVS = [
    BernoulliBandit(),
    GaussianBandit(),
    BetaBandit(),
    HeavyTailedBandit(),
    LinearBandit(),
    SparseLinearBandit(),
    ContextualLinearBandit(),
    AdversarialBandit(),
    DriftingBandit(),
    SwitchingBandit(),
    PiecewiseBandit(),
    DuelingBandit(),
    BestArmIdentification(),
]
N = 20_000


@cache
def stepper(env):
    return jax.jit(jax.vmap(env.step, (0, None, None, None)))


def steps(env, params, action, state=None, n=N):
    """`n` independent steps from one state."""
    state = env.reset(jax.random.key(1), params)[1] if state is None else state
    return stepper(env)(jax.random.split(jax.random.key(0), n), state, jnp.asarray(action, jnp.int32), params)


def near(sample, mean, deviation):
    """The mean of a sample of this standard deviation, within four standard errors."""
    assert abs(np.mean(sample) - mean) < 4 * deviation / np.sqrt(np.size(sample)), (np.mean(sample), mean)


def ids(env):
    return env.id


# ---- what all have in common


@pytest.mark.slow(but_first=10)
@pytest.mark.parametrize("env", ENVS, ids=ids)
def test_a_step_draws_random_numbers_once(env):
    """Random bits are most of what a bandit costs. Beta variates need a loop; adversaries and clocks need none."""
    if isinstance(env, BetaBandit):
        pytest.skip("a rejection sampler")
    params = env.default_params
    _, state = env.reset(jax.random.key(0), params)
    action = jnp.zeros(env.action_space(params).shape, jnp.int32)
    jaxpr = str(jax.make_jaxpr(lambda key: env.transition(key, state, action, params))(jax.random.key(0)))
    assert jaxpr.count("random_bits") == (0 if isinstance(env, AdversarialBandit) else 1)


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("env", ENVS, ids=ids)
def test_generated_problems_are_valid_and_differ(env):
    params = env.default_params
    problems = jax.jit(jax.vmap(env.generate, (0, None)))(jax.random.split(jax.random.key(0), 64), params)
    changed = 0
    for new, old in zip(jax.tree.leaves(problems), jax.tree.leaves(params), strict=True):
        assert new.shape == (64, *old.shape) and new.dtype == old.dtype
        changed += len(np.unique(np.asarray(new), axis=0)) > 1
    assert changed
    for i in range(64):
        env.validate(jax.tree.map(lambda x, i=i: np.asarray(x[i]), problems))


@pytest.mark.parametrize("cls", [BernoulliBandit, GaussianBandit, DriftingBandit, BestArmIdentification])
def test_generated_means_are_uniform_in_their_range(cls):
    env = cls(arms=10)
    params = env.default_params.replace(low=jnp.float32(0.2), high=jnp.float32(0.6))
    mean = jax.vmap(lambda key: env.generate(key, params).mean)(jax.random.split(jax.random.key(3), 500))
    assert stats.kstest(np.ravel(mean), "uniform", (0.2, 0.4)).pvalue > 0.01


# ---- stochastic


def test_bernoulli_rewards():
    env = BernoulliBandit()
    ts = steps(env, env.default_params, 2)
    assert set(np.unique(ts.reward)) == {0, 1}
    near(ts.reward, 3 / 11, 0.5)
    np.testing.assert_allclose(ts.info["regret"], 10 / 11 - 3 / 11, rtol=1e-6)


def test_gaussian_rewards():
    env = GaussianBandit()
    reward = steps(env, env.default_params.replace(scale=jnp.float32(0.5)), 9).reward
    assert stats.kstest(np.asarray(reward), stats.norm(10 / 11, 0.5).cdf).pvalue > 0.01


def test_beta_rewards():
    env = BetaBandit()
    reward = steps(env, env.default_params, 2).reward
    assert stats.kstest(np.asarray(reward), "beta", (4 * 3 / 11, 4 * 8 / 11)).pvalue > 0.01


@pytest.mark.parametrize("df", [2.0, 5.0])
def test_heavy_tailed_rewards(df):
    env = HeavyTailedBandit()
    params = env.default_params.replace(df=jnp.float32(df), scale=jnp.float32(0.1))
    reward = steps(env, params, 0).reward
    assert stats.kstest(np.asarray(reward), "t", (df, 1 / 11, 0.1)).pvalue > 0.01


# ---- linear


def test_linear_rewards_and_regret_by_hand():
    env = LinearBandit(arms=3, dim=2)
    features = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    params = env.default_params.replace(features=features, theta=jnp.array([0.5, -0.25]))
    ts = steps(env, params, 1)
    near(ts.reward, -0.25, 0.1)
    assert abs(np.std(ts.reward) - 0.1) < 0.002
    np.testing.assert_allclose(ts.info["regret"], 0.75, rtol=1e-6)
    np.testing.assert_array_equal(ts.obs[0], features)


def test_contextual_features_are_new_each_round_and_pay_what_was_seen():
    env = ContextualLinearBandit(arms=4, dim=3)
    params = env.default_params.replace(theta=jnp.array([1.0, -2.0, 0.5]), bound=jnp.float32(2.0))
    obs, state = env.reset(jax.random.key(5), params)
    mean = np.asarray(obs) @ np.asarray(params.theta)
    ts = steps(env, params, 1, state)
    near(ts.reward, mean[1], 0.1)
    np.testing.assert_allclose(ts.info["regret"], mean.max() - mean[1], rtol=1e-5)
    assert stats.kstest(np.ravel(ts.obs[:500]), "uniform", (-2, 4)).pvalue > 0.01
    noise = np.asarray(ts.reward - mean[1])
    assert stats.kstest(noise, stats.norm(0, 0.1).cdf).pvalue > 0.01
    assert abs(np.corrcoef(noise, np.asarray(ts.obs[:, 0, 0]))[0, 1]) < 0.03  # one draw serves both


@pytest.mark.slow
def test_generated_theta_has_unit_length_and_its_sparsity():
    env = SparseLinearBandit(dim=30)
    params = env.default_params.replace(sparsity=jnp.int32(4))
    theta = jax.vmap(lambda key: env.generate(key, params).theta)(jax.random.split(jax.random.key(0), 1000))
    np.testing.assert_array_equal(jnp.sum(theta != 0, 1), 4)
    near(jnp.sum(theta**2, 1), 1, np.sqrt(2 / 4))
    near(theta[:, 0] != 0, 4 / 30, np.sqrt(4 / 30))
    dense = LinearBandit(dim=30)
    theta = jax.vmap(lambda key: dense.generate(key, dense.default_params).theta)(
        jax.random.split(jax.random.key(0), 1000)
    )
    near(jnp.sum(theta**2, 1), 1, np.sqrt(2 / 30))


# ---- adversarial


def test_adversarial_regret_is_against_the_best_fixed_arm_in_hindsight():
    env = AdversarialBandit(arms=2, rounds=4)
    table = jnp.array([[1.0, 0.0], [0.0, 0.5], [0.0, 1.0], [1.0, 0.0]])
    params = env.default_params.replace(rewards=table, max_steps=jnp.int32(3))
    _, state = env.reset(jax.random.key(0), params)
    played = []
    for arm in (0, 0, 1):
        ts = env.step(jax.random.key(0), state, jnp.int32(arm), params)
        state = ts.state
        played.append((float(ts.reward), float(ts.info["regret"])))
    # In three rounds the arms pay 1 and 1.5, so arm 1 is best; with the fourth it would be arm 0.
    assert played == [(1, -1), (0, 0.5), (1, 0)]
    assert bool(ts.truncated)
    assert int(best_fixed_arm(table, jnp.int32(4))) == 0


@pytest.mark.slow
def test_the_constrained_adversary_alternates_in_growing_phases():
    env = AdversarialBandit(arms=5, rounds=1000)
    params = env.default_params.replace(gap=jnp.float32(0.3))
    rewards = np.asarray(
        jax.vmap(lambda key: env.generate(key, params).rewards)(jax.random.split(jax.random.key(0), 400))
    )
    mean = rewards.mean((0, 2))  # of each round, over problems and arms
    # growth 1.6: phases begin in rounds 0, 1, 2.6, 5.16, 9.26
    low, high = 0.3 / 5, 1 - 0.3 * 4 / 5
    expected = [low, high, high, low, low, low, high, high, high, high, low]
    np.testing.assert_allclose(mean[:11], expected, atol=0.05)
    assert set(np.unique(rewards)) == {0, 1}
    total = rewards.sum(1)
    np.testing.assert_allclose(np.diff(np.sort(total, 1)[:, -2:], 1).mean(), 0.3 * 1000, rtol=0.1)


# ---- non-stationary


def test_reflection():
    np.testing.assert_allclose(
        reflect(jnp.array([-0.1, 0.3, 1.2, 2.3, -1.4]), 0.0, 1.0), [0.1, 0.3, 0.8, 0.3, 0.6], 1e-6
    )
    np.testing.assert_allclose(reflect(jnp.array([1.5, 3.5]), 2.0, 3.0), [2.5, 2.5], 1e-6)


def test_drift():
    env = DriftingBandit(arms=3)
    params = env.default_params.replace(mean=jnp.array([0.5, 0.001, 0.6]), drift=jnp.float32(0.02))
    ts = steps(env, params, 0)
    assert stats.kstest(np.asarray(ts.state.mean[:, 0]), stats.norm(0.5, 0.02).cdf).pvalue > 0.01
    assert float(ts.state.mean.min()) >= 0
    folded = np.abs(0.001 + 0.02 * np.random.default_rng(0).normal(size=N))
    assert stats.ks_2samp(np.asarray(ts.state.mean[:, 1]), folded).pvalue > 0.01
    assert stats.kstest(np.asarray(ts.reward), stats.norm(0.5, 0.1).cdf).pvalue > 0.01
    np.testing.assert_allclose(ts.info["regret"], 0.1, rtol=1e-5)  # of the round played, not of the next


def test_switches():
    env = SwitchingBandit(arms=3)
    params = env.default_params.replace(hazard=jnp.float32(0.1), low=jnp.float32(0.2), high=jnp.float32(0.8))
    ts = steps(env, params, 2)
    switched = np.asarray(ts.state.mean[:, 0] != params.mean[0])
    near(switched, 0.1, 0.3)
    assert stats.kstest(np.ravel(ts.state.mean[switched]), "uniform", (0.2, 0.6)).pvalue > 0.01
    np.testing.assert_array_equal(ts.state.mean[~switched], jnp.broadcast_to(params.mean, (sum(~switched), 3)))
    near(ts.reward, 0.75, 0.5)
    np.testing.assert_allclose(ts.info["regret"], 0, atol=1e-6)


def test_the_published_piecewise_problem():
    env = PiecewiseBandit()
    params = env.default_params
    regret = []
    for time in (0, 2999, 3000, 4999, 5000, 9999):
        state = env.initial(jax.random.key(0), params).replace(time=jnp.int32(time))
        regret.append(
            [float(env.transition(jax.random.key(0), state, jnp.int32(a), params).info["regret"]) for a in range(3)]
        )
    np.testing.assert_allclose(regret, [[0, 0.2, 0.1]] * 2 + [[0.4, 0.6, 0]] * 2 + [[0, 0.2, 0.1]] * 2, atol=1e-6)
    state = env.initial(jax.random.key(0), params).replace(time=jnp.int32(4000))
    near(steps(env, params, 2, state).reward, 0.9, 0.3)


# ---- dueling


def test_duels_and_three_regrets_by_hand():
    env = DuelingBandit(arms=3)
    preference = jnp.array([[0.5, 0.4, 0.9], [0.6, 0.5, 0.7], [0.1, 0.3, 0.5]])
    params = env.default_params.replace(preference=preference)
    assert int(condorcet_winner(preference)) == 1
    ts = steps(env, params, [0, 2])
    near(ts.reward, 0.9, 0.3)
    np.testing.assert_allclose(ts.info["regret"], 0.15, rtol=1e-5)
    np.testing.assert_allclose(ts.info["strong_regret"], 0.2, rtol=1e-5)
    np.testing.assert_allclose(ts.info["weak_regret"], 0.1, rtol=1e-5)
    assert float(steps(env, params, [1, 1], n=2).info["strong_regret"][0]) == 0


def test_generated_duels_have_a_winner_by_the_margin():
    env = DuelingBandit(arms=6)
    params = env.default_params.replace(margin=jnp.float32(0.1))
    preference = jax.vmap(lambda key: env.generate(key, params).preference)(jax.random.split(jax.random.key(0), 500))
    np.testing.assert_allclose(preference + preference.swapaxes(1, 2), 1, atol=1e-6)
    winner = jax.vmap(condorcet_winner)(preference)
    others = np.asarray(preference)[np.arange(500), winner]
    assert np.sort(others, 1)[:, 1:].min() >= 0.6 - 1e-6  # the first is the arm itself
    counts = np.bincount(winner, minlength=6)
    assert stats.chisquare(counts).pvalue > 0.01
    cycle = (preference[:, 0, 1] > 0.5) & (preference[:, 1, 2] > 0.5) & (preference[:, 2, 0] > 0.5)
    assert 0 < float(cycle.mean()) < 0.25


# ---- best-arm identification


@pytest.mark.parametrize("paid, reward", [("correct", [1, 0]), ("simple_regret", [0, -0.1])])
def test_only_the_recommendation_is_paid(paid, reward):
    env = BestArmIdentification(arms=2, paid=paid)
    params = env.default_params.replace(max_steps=jnp.int32(3), mean=jnp.array([1.0, 0.9]))
    for recommended in range(2):
        obs, state = env.reset(jax.random.key(0), params)
        np.testing.assert_allclose(obs, [0, 0, 0, 1])
        ts = env.step(jax.random.key(1), state, jnp.int32(0), params)
        np.testing.assert_allclose(ts.obs, [1, 1, 0, 2 / 3], rtol=1e-6)  # arm 0 always pays
        assert float(ts.reward) == 0 and float(ts.info["regret"]) == 0 and not bool(ts.terminated)
        ts = env.step(jax.random.key(2), ts.state, jnp.int32(1), params)
        assert float(ts.reward) == 0 and not bool(ts.terminated)
        ts = env.step(jax.random.key(3), ts.state, jnp.int32(recommended), params)
        np.testing.assert_allclose(ts.reward, reward[recommended], atol=1e-6)
        np.testing.assert_allclose(ts.info["regret"], 0.1 * recommended, atol=1e-6)
        assert bool(ts.terminated) and bool(ts.truncated)


# ---- errors


@pytest.mark.parametrize(
    "env, change, message",
    [
        (BernoulliBandit(), dict(mean=jnp.zeros(3)), "3 means for arms=10"),
        (HeavyTailedBandit(), dict(df=1.0), "df=1.0 must be above 1"),
        (LinearBandit(), dict(theta=jnp.zeros(3)), r"theta has shape \(3,\)"),
        (LinearBandit(), dict(scale=-1.0), "scale=-1.0"),
        (SparseLinearBandit(), dict(sparsity=21), "sparsity=21"),
        (AdversarialBandit(rounds=4), dict(rewards=jnp.full((4, 10), 2.0)), r"they must be in \[0, 1\]"),
        (AdversarialBandit(rounds=4), dict(max_steps=5), "max_steps=5"),
        (AdversarialBandit(), dict(growth=1.0), "growth=1.0"),
        (DriftingBandit(), dict(high=0.5), "must be in"),
        (DriftingBandit(), dict(drift=-0.1), "drift"),
        (SwitchingBandit(), dict(hazard=1.5), "hazard=1.5"),
        (PiecewiseBandit(), dict(start=jnp.array([0, 5, 3])), "must ascend"),
        (DuelingBandit(arms=3), dict(preference=jnp.full((3, 3), 0.5)), "no arm beats"),
        (DuelingBandit(arms=3), dict(preference=jnp.full((3, 3), 0.6)), "must be 1 for every pair"),
        (BestArmIdentification(), dict(max_steps=1), "max_steps=1"),
    ],
)
def test_unusable_parameters_are_named(env, change, message):
    with pytest.raises(ValueError, match=message):
        env.reset(jax.random.key(0), env.default_params.replace(**change))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: BernoulliBandit(arms=1), "arms=1"),
        (lambda: LinearBandit(dim=0), "dim=0"),
        (lambda: AdversarialBandit(rounds=0), "rounds=0"),
        (lambda: PiecewiseBandit(phases=0), "phases=0"),
    ],
)
def test_impossible_sizes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_change_points_are_uniform():
    """Of two phases the second begins anywhere in the episode with the same probability."""
    env = PiecewiseBandit(arms=2, phases=2)
    params = env.default_params
    drawn = jax.jit(jax.vmap(env.generate, (0, None)))(jax.random.split(jax.random.key(5), 2000), params)
    assert np.all(drawn.start[:, 0] == 0)
    assert stats.kstest(np.asarray(drawn.start[:, 1]) / int(params.max_steps), "uniform").pvalue > 0.01

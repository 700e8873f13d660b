"""MBTL: the process against the closed form and scikit-learn's figures, choices by hand, and a matrix end to end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import mbtl

KEY = jax.random.key(0)
WHERE, SEEN = np.array([9, 2, 17, 5, 13]), np.array([0.8, 0.55, 0.4, 0.9, 0.75])
COARSE = mbtl.Config(num_sources=4, num_variances=5, num_lengths=5)


def posterior(variances, lengths, K=20, noise=0.1):
    process = mbtl.prior(jnp.arange(float(K)), jnp.array(variances), jnp.array(lengths))
    return mbtl.observations(process, jnp.asarray(WHERE), jnp.asarray(SEEN, jnp.float32), noise)


def closed_form(variance, length, K=20, noise=0.1):
    """Rasmussen and Williams (2006), eq. 2.23, 2.24 and 2.30, in float64."""
    x = np.arange(K)
    kernel = variance * np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
    among = kernel[np.ix_(WHERE, WHERE)] + noise**2 * np.eye(len(WHERE))
    gain = kernel[:, WHERE] @ np.linalg.inv(among)
    _, log_determinant = np.linalg.slogdet(among)
    evidence = -(SEEN @ np.linalg.solve(among, SEEN) + log_determinant + len(WHERE) * np.log(2 * np.pi)) / 2
    return gain @ SEEN, kernel - gain @ kernel[WHERE], evidence


# ---- the Gaussian process


def test_observations_one_by_one_are_the_closed_form():
    variances, lengths = [0.5, 3.0, 1e-2, 200.0], [4.0, 1.0, 0.1, 40.0]
    process = posterior(variances, lengths)
    for g, (variance, length) in enumerate(zip(variances, lengths, strict=True)):
        mean, covariance, evidence = closed_form(variance, length)
        np.testing.assert_allclose(process.mean[g], mean, atol=3e-4)
        np.testing.assert_allclose(process.covariance[g], covariance, atol=1e-4 * max(variance, 1))
        np.testing.assert_allclose(process.log_likelihood[g], evidence, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.light
def test_the_process_is_that_of_scikit_learn():
    """`GaussianProcessRegressor` 1.9.1 on the same points with variance 0.5, length 4 and alpha 0.01."""
    mean, deviation = mbtl.likeliest(posterior([0.5], [4.0]))
    np.testing.assert_allclose(mean[:6], [0.26787, 0.40603, 0.55581, 0.6969, 0.80848, 0.87605], atol=2e-5)
    np.testing.assert_allclose(deviation[:6], [0.26309, 0.15713, 0.09713, 0.08994, 0.09309, 0.09509], atol=2e-5)


@pytest.mark.slow
def test_the_best_of_the_grid_is_near_scikit_learns_optimum():
    """Which is a log-likelihood of -0.53063 at 0.554^2 and 9.99, found by 30 restarts of L-BFGS."""
    state = mbtl.init(20)
    process = mbtl.observations(state.process, jnp.asarray(WHERE), jnp.asarray(SEEN, jnp.float32), 0.1)
    best = float(process.log_likelihood.max())
    assert -0.56 < best < -0.530
    mean, deviation = mbtl.likeliest(process)
    expected = [0.4776, 0.6194, 0.7391, 0.8203, 0.8516, 0.8285, 0.7547, 0.6409, 0.5026, 0.3571]
    np.testing.assert_allclose(mean[::2], expected, atol=0.03)
    np.testing.assert_allclose(deviation[::4], [0.1282, 0.0656, 0.0681, 0.0681, 0.0764], atol=0.01)


def test_certainty_of_the_process():
    process = posterior([1.0], [3.0])
    again = mbtl.observe(process, 9, jnp.float32(0.8), 0.1)
    before, after = process.covariance[0, 9, 9], again.covariance[0, 9, 9]
    np.testing.assert_allclose(1 / after, 1 / before + 1 / 0.1**2, rtol=1e-3)  # precisions add


@pytest.mark.slow
def test_float32_lasts_for_a_hundred_observations():
    """The smoothest and the widest kernels of the grid, of which each observation leaves a hundred-thousandth."""
    x, y = np.arange(100), np.sin(np.arange(100) / 9)
    variances, lengths = [1.0, 30.0, 1000.0, 1000.0], [100.0, 30.0, 100.0, 5.0]
    start = mbtl.prior(jnp.arange(100.0), jnp.array(variances), jnp.array(lengths))
    process = mbtl.observations(start, jnp.arange(100), jnp.asarray(y, jnp.float32), 0.1)
    for g, (variance, length) in enumerate(zip(variances, lengths, strict=True)):
        kernel = variance * np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
        gain = kernel @ np.linalg.inv(kernel + 0.01 * np.eye(100))
        deviation = np.sqrt(np.diag(kernel - gain @ kernel))
        np.testing.assert_allclose(process.mean[g], gain @ y, atol=0.02)
        np.testing.assert_allclose(np.sqrt(np.diagonal(process.covariance[g])), deviation, atol=0.005)


# ---- the choice


def test_acquisition_by_hand():
    optimistic, covered = jnp.array([0.5, 0.9, 0.2]), jnp.array([0.4, 0.4, 0.7])
    # 1 predicts (0.8, 0.9, 0.8) and so adds (0.4, 0.5, 0.1); 0 predicts (0.5, 0.4, 0.3); 2 nothing better.
    np.testing.assert_allclose(mbtl.acquisition(optimistic, 0.1, covered), [0.1 / 3, 1.0 / 3, 0], atol=1e-6)


def test_proposals_by_brute_force():
    """Every step of MBTL on a random matrix, in NumPy float64 with the closed form, from the paper's formulas."""
    K, config = 12, mbtl.Config(num_sources=12, num_variances=5, num_lengths=7)
    rng = np.random.default_rng(3)
    x = np.arange(K)
    transfer = 0.9 - 0.03 * np.abs(x[:, None] - x) + 0.2 * np.sin(x)[:, None] + 0.05 * rng.normal(size=(K, K))
    sources = [(K - 1) // 2]
    variances, lengths = np.logspace(-3, 3, 5), np.logspace(-2, 2, 7)
    for k in range(1, K):
        best = -np.inf, None, None
        y = transfer[sources, sources]
        for length in lengths:
            for variance in variances:
                kernel = variance * np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
                among = kernel[np.ix_(sources, sources)] + 0.01 * np.eye(k)
                evidence = -(y @ np.linalg.solve(among, y) + np.linalg.slogdet(among)[1]) / 2
                gain = kernel[:, sources] @ np.linalg.inv(among)
                if evidence > best[0]:
                    best = evidence, gain @ y, np.diag(kernel - gain @ kernel[sources])
        _, mean, variance = best
        optimistic = mean + np.sqrt(np.log(k + 1)) * np.sqrt(np.maximum(variance, 0))
        covered = transfer[sources].max(0)
        adds = [np.maximum(optimistic[i] - 0.02 * np.abs(x - i) - covered, 0).mean() for i in range(K)]
        adds = [-1 if i in sources else adds[i] for i in range(K)]
        sources.append(int(np.argmax(adds)))
    found = jax.jit(lambda t: mbtl.select(t, config, mbtl.Hyper(slope=0.02)))(jnp.asarray(transfer, jnp.float32))
    assert found.source.tolist() == sources
    expected = [transfer[sources[: k + 1]].max(0).mean() for k in range(K)]
    np.testing.assert_allclose(found.performance, expected, rtol=1e-5)
    np.testing.assert_allclose(mbtl.performance(jnp.asarray(transfer), found.source), expected, rtol=1e-5)


def test_the_second_source_is_far_from_a_first_that_falls_off():
    """One observation says nothing of the length scale; the longest is taken, by which all would perform alike."""
    x = jnp.arange(100.0)
    transfer = 1 - 0.02 * jnp.abs(x[:, None] - x)
    found = mbtl.select(transfer, mbtl.Config(num_sources=3))
    assert found.source[0] == 49
    assert 15 < abs(int(found.source[1]) - 49) < 45
    assert (found.source[2] - 49) * (found.source[1] - 49) < 0  # then the other side


def test_sources_are_never_repeated_and_begin_in_the_middle():
    transfer = jnp.zeros((9, 9))  # nothing to tell one from another
    found = mbtl.select(transfer, mbtl.Config(num_sources=9, num_variances=3, num_lengths=3))
    assert found.source[0] == 4
    assert sorted(found.source.tolist()) == list(range(9))


@pytest.mark.slow
@pytest.mark.light
def test_the_slope_is_estimated_from_the_gaps():
    x = jnp.arange(30.0)
    transfer = 0.8 - 0.013 * jnp.abs(x[:, None] - x)
    config = mbtl.Config(num_sources=3, estimate_slope=True, num_variances=5, num_lengths=5)
    found = mbtl.select(transfer, config, mbtl.Hyper(slope=9.0))
    np.testing.assert_allclose(found.slope, [0, 0.013, 0.013], atol=1e-6)
    rises = mbtl.select(0.2 + 0.01 * jnp.abs(x[:, None] - x), config)  # better elsewhere: no negative slope
    np.testing.assert_allclose(rises.slope, 0)
    given = mbtl.select(transfer, mbtl.Config(num_sources=2, num_variances=5, num_lengths=5), mbtl.Hyper(slope=0.4))
    np.testing.assert_allclose(given.slope, 0.4)


def test_steeper_gaps_bring_sources_closer_to_the_first():
    x = jnp.arange(40.0)
    transfer = jnp.broadcast_to(1 - 0.02 * jnp.abs(x[:, None] - x), (40, 40))
    config = mbtl.Config(num_sources=2, num_variances=9, num_lengths=9)
    second = [int(mbtl.select(transfer, config, mbtl.Hyper(slope=s)).source[1]) for s in (0.02, 0.2)]
    assert abs(second[0] - 19) > 5
    flat = mbtl.select(transfer, config, mbtl.Hyper(slope=0.02, exploration=0.0))
    assert flat.source[0] == 19


@pytest.mark.slow
def test_step_by_step_is_the_selection_and_nothing_recompiles():
    transfer = jax.random.uniform(KEY, (10, 10))
    expected = mbtl.select(transfer, COARSE)
    propose, update = jax.jit(lambda s: mbtl.propose(s, COARSE)), jax.jit(mbtl.update)
    state = jax.jit(lambda: mbtl.init(10, COARSE))()
    for source in expected.source.tolist():
        i = propose(state)
        assert int(i) == source
        state = update(state, i, transfer[i])
    assert state.trained.sum() == 4
    assert propose._cache_size() == update._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.slow
@pytest.mark.light
def test_a_batch_of_selections_is_the_single_ones():
    transfers = jax.random.uniform(KEY, (3, 10, 10))
    hyper = jax.vmap(lambda slope: jaxrl.environment.strongly_typed(mbtl.Hyper(slope=slope)))(
        jnp.array([0.0, 0.01, 0.3])
    )
    together = jax.jit(jax.vmap(lambda t, h: mbtl.select(t, COARSE, h)))(transfers, hyper)
    for i in range(3):
        alone = mbtl.select(transfers[i], COARSE, jax.tree.map(lambda x, i=i: x[i], hyper))
        assert together.source[i].tolist() == alone.source.tolist()
        np.testing.assert_allclose(together.performance[i], alone.performance, rtol=1e-6)


# ---- what it is compared with


@pytest.mark.slow
@pytest.mark.light
def test_baselines_by_hand():
    transfer = jnp.array([[0.6, 0.5, 0.0], [0.5, 0.5, 0.4], [0.0, 0.1, 0.9]])
    np.testing.assert_allclose(mbtl.independent(transfer), 2.0 / 3)
    np.testing.assert_allclose(mbtl.oracle(transfer), 2.0 / 3)
    assert mbtl.greedy_oracle(transfer, 3).tolist() == [1, 2, 0]
    curve = mbtl.performance(transfer, jnp.array([1, 2, 0]))
    np.testing.assert_allclose(curve, [1.4 / 3, 1.9 / 3, 2.0 / 3], rtol=1e-6)
    assert mbtl.sources_needed(curve, 0.5) == 2
    assert mbtl.sources_needed(curve, 0.7) == jnp.inf
    assert mbtl.equidistant(10, 5).tolist() == [1, 3, 5, 7, 9]
    assert mbtl.equidistant(9, 3).tolist() == [1, 4, 7]
    assert mbtl.equidistant(100, 1).tolist() == [50]
    orders = jax.vmap(lambda key: mbtl.random_order(key, 5, 5))(jax.random.split(KEY, 200))
    assert (np.sort(orders, 1) == np.arange(5)).all()
    assert np.bincount(orders[:, 0]).min() > 20  # 40 expected


def test_greedy_oracle_is_best_at_every_step():
    transfer = np.asarray(jax.random.uniform(KEY, (7, 7)))
    chosen = mbtl.greedy_oracle(jnp.asarray(transfer), 4).tolist()
    for k in range(4):
        rest = [i for i in range(7) if i not in chosen[:k]]
        assert chosen[k] == max(rest, key=lambda i: transfer[chosen[:k] + [i]].max(0).mean())
    assert mbtl.performance(jnp.asarray(transfer), jnp.arange(7))[-1] == pytest.approx(
        float(mbtl.oracle(jnp.asarray(transfer)))
    )


def test_normalised():
    np.testing.assert_allclose(mbtl.normalised(jnp.array([[-2200.0, -500.0, -1350.0]]), -2200.0, -500.0), [[0, 1, 0.5]])


# ---- policies


def cartpole(num_envs=4):
    env, params = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=num_envs, num_steps=32, num_minibatches=1, num_epochs=1, hidden=(8,)))
    levels = mbtl.level_batch(params, lambda params, x: params.replace(length=x), jnp.array([0.3, 0.5, 1.5]))
    return algo, levels


@pytest.mark.slow
@pytest.mark.light
def test_a_transfer_matrix_is_made_of_single_trainings():
    algo, levels = cartpole()
    matrix = jax.jit(lambda key: mbtl.transfer_matrix(algo, key, levels, 256, num_episodes=3))
    transfer = matrix(KEY)
    assert transfer.shape == (3, 3)
    train_key, evaluation_key = jax.random.split(KEY)
    keys = jax.random.split(train_key, 3)
    level = jax.tree.map(lambda x: x[1], levels)

    @jax.jit
    def one(key, level):
        state, _ = jaxrl.train(algo, key, 256, None, level)
        return mbtl.performances(algo, algo.policy(state), evaluation_key, levels, 3)

    row = one(keys[1], level)
    np.testing.assert_allclose(transfer[1], row, rtol=1e-5)
    matrix(jax.random.key(1))
    assert matrix._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.slow
def test_selection_that_trains_its_policies():
    algo, levels = cartpole()

    def row(i):
        state, _ = jaxrl.train(algo, jax.random.fold_in(KEY, i), 128, None, jax.tree.map(lambda x: x[i], levels))
        return mbtl.performances(algo, algo.policy(state), jax.random.key(1), levels, 2) / 500

    config = mbtl.Config(num_sources=2, num_variances=3, num_lengths=3)
    found = jax.jit(lambda: mbtl.select_by(row, 3, config))()
    assert found.source[0] == 1
    assert found.source[1] in (0, 2)
    alone = jax.jit(row)(jnp.int32(1))
    np.testing.assert_allclose(found.performance[0], alone.mean(), rtol=1e-5)
    assert found.performance[1] >= found.performance[0] > 0


@pytest.mark.slow
def test_policies_are_best_near_where_they_were_trained():
    """A pole is balanced by policies of like lengths, so independent training is near the best of all policies."""
    env, params = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=8, hidden=(32,)))
    levels = mbtl.level_batch(params, lambda params, x: params.replace(length=x), jnp.array([0.5, 1.0, 5.0]))
    hyper = ppo.Hyper(learning_rate=1e-3, anneal_steps=60_000)
    transfer = jax.jit(lambda key: mbtl.transfer_matrix(algo, key, levels, 60_000, hyper, greedy=True))(KEY)
    assert mbtl.independent(transfer) > 300


# ---- bad input


def test_bad_input():
    with pytest.raises(ValueError, match="num_sources=0: it must be at least 1"):
        mbtl.Config(num_sources=0)
    with pytest.raises(ValueError, match="num_lengths=0"):
        mbtl.Config(num_lengths=0)
    with pytest.raises(ValueError, match="num_sources=15: there are 4 contexts"):
        mbtl.select(jnp.zeros((4, 4)))
    with pytest.raises(ValueError, match="noise=0.0: it must be > 0"):
        mbtl.init(20, hyper=mbtl.Hyper(noise=0.0))
    with pytest.raises(ValueError, match="slope=-1.0: it must be >= 0"):
        mbtl.init(20, hyper=mbtl.Hyper(slope=-1.0))
    with pytest.raises(ValueError, match="low=500.0, high=0.0: high must be above low"):
        mbtl.normalised(jnp.zeros((2, 2)), 500.0, 0.0)
    with pytest.raises(ValueError, match=r"transfer has shape \(3, 4\)"):
        mbtl.select(jnp.zeros((3, 4)), COARSE)
    with pytest.raises(ValueError, match="transfer has 2 entries that are not finite"):
        mbtl.select(jnp.zeros((4, 4)).at[1, 1:3].set(jnp.nan), COARSE)
    _, params = jaxrl.make("CartPole-v1")
    with pytest.raises(ValueError, match="mbtl: level_at"):
        mbtl.level_batch(params, lambda params, x: {"length": x}, jnp.ones(3))
    algo, levels = cartpole()
    with pytest.raises(ValueError, match="length"):
        mbtl.transfer_matrix(algo, KEY, levels.replace(length=-levels.length), 100)

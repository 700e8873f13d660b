"""CMA-ME and CMA-MAE: an emitter's step in NumPy, ranks by hand, and that the strategy finds the bottom of a valley."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import cma_me
from jaxrl.quality_diversity import elites

KEY = jax.random.key(0)


def in_numpy(mean, sigma, M, path, z, order, mu):
    """Beyer and Sendhoff (2017), with the rates of the CMA-ES tutorial."""
    D = len(mean)
    w = np.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
    w /= w.sum()
    mu_w = 1 / (w**2).sum()
    c_s, c_1 = (mu_w + 2) / (D + mu_w + 5), 2 / ((D + 1.3) ** 2 + mu_w)
    c_mu = min(1 - c_1, 2 * (mu_w - 2 + 1 / mu_w) / ((D + 2) ** 2 + mu_w))
    d = 1 + c_s + 2 * max(0, np.sqrt((mu_w - 1) / (D + 1)) - 1)
    best = z[order[:mu]]
    y = w @ best
    path = (1 - c_s) * path + np.sqrt(mu_w * c_s * (2 - c_s)) * y
    mean = mean + sigma * M @ y
    change = c_1 / 2 * (np.outer(path, path) - np.eye(D)) + c_mu / 2 * ((best.T * w) @ best - np.eye(D))
    expected = np.sqrt(D) * (1 - 1 / (4 * D) + 1 / (21 * D**2))
    return mean, sigma * np.exp(min(1, c_s / d * (np.linalg.norm(path) / expected - 1))), M @ (np.eye(D) + change), path


@pytest.mark.parametrize("mu", [1, 3, 8])
def test_a_step_is_the_papers(mu):
    rng = np.random.default_rng(mu)
    D, K = 4, 8
    M, z, order = np.eye(D) + 0.2 * rng.normal(size=(D, D)), rng.normal(size=(K, D)), rng.permutation(K)
    mean, path = rng.normal(size=D), rng.normal(size=D)
    emitter = cma_me.Emitter(*map(jnp.asarray, (mean, 0.3, M, path)))
    told = jax.jit(cma_me.tell)(emitter, jnp.asarray(z), jnp.asarray(order), jnp.int32(mu))
    for ours, theirs in zip(told, in_numpy(mean, 0.3, M, path, z, order, mu), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    x = cma_me.ask(emitter, jnp.asarray(z))
    np.testing.assert_allclose(x, mean + 0.3 * z @ M.T, rtol=1e-5, atol=1e-6)
    same = cma_me.tell(emitter, jnp.asarray(z), jnp.asarray(order), jnp.int32(0))
    jax.tree.map(np.testing.assert_array_equal, same, emitter)


@pytest.mark.parametrize("covariance", cma_me.COVARIANCES)
def test_the_strategy_goes_down_an_ellipsoid(covariance):
    """Axes of 1 to 1,000, which a round distribution would not get along in so few steps."""
    D, K = 6, 16
    scale = jnp.logspace(0, 3, D)

    def generation(emitter, key):
        z = jax.random.normal(key, (K, D))
        cost = jnp.sum((scale * (cma_me.ask(emitter, z) - 1)) ** 2, -1)
        return cma_me.tell(emitter, z, jnp.argsort(cost), jnp.int32(K // 2)), cost.min()

    emitter = cma_me.fresh(jnp.zeros(D), 0.5, covariance)
    emitter, cost = jax.jit(lambda e: jax.lax.scan(generation, e, jax.random.split(KEY, 250)))(emitter)
    assert cost[0] > 1e3 and cost[-1] < 1e-4
    width = np.asarray(emitter.matrix if covariance == "diagonal" else jnp.linalg.norm(emitter.matrix, axis=-1))
    assert width[0] / width[-1] > (30 if covariance == "full" else 3)
    assert cma_me.exhausted(emitter._replace(sigma=jnp.float32(1e-20)), jnp.arange(3.0), jnp.zeros(3, bool))
    assert cma_me.exhausted(emitter._replace(sigma=jnp.float32(np.nan)), jnp.arange(3.0), jnp.zeros(3, bool))


def test_who_is_a_parent():
    new, accepted = jnp.array([False, True, False, True, False]), jnp.array([True, True, False, True, False])
    improvement = jnp.array([5.0, -3.0, -1.0, 2.0, -jnp.inf])
    order, parents = cma_me.ranked(new, improvement, accepted, soft=False)
    np.testing.assert_array_equal(order, [3, 1, 0, 2, 4])
    assert parents == 3
    order, parents = cma_me.ranked(new, improvement, accepted, soft=True)
    np.testing.assert_array_equal(order, [0, 3, 2, 1, 4])
    assert parents == 2
    _, parents = cma_me.ranked(new, jnp.full(5, -jnp.inf), ~new & False, soft=True)
    assert parents == 0


def test_an_emitter_whose_worth_is_flat_begins_anew():
    emitter = cma_me.fresh(jnp.zeros(2), 0.5, "full")
    flat, slope, none = jnp.zeros(4), jnp.arange(4.0), jnp.zeros(4, bool)
    assert cma_me.exhausted(emitter, flat, none) and cma_me.exhausted(emitter, flat, ~none)
    assert not cma_me.exhausted(emitter, slope, none)
    assert not cma_me.exhausted(emitter, flat, jnp.array([True, False, False, False]))


def sphere(genome):
    """The linear projection of the CMA-ME paper's sphere: how near to (2, ..., 2), and two clipped sums."""
    half = genome.shape[0] // 2
    clipped = jnp.where(jnp.abs(genome) <= 5, genome, 5 / genome)
    return -jnp.mean((genome - 2) ** 2), jnp.stack([jnp.mean(clipped[:half]), jnp.mean(clipped[half:])])


@pytest.mark.parametrize("soft", [False, True])
def test_its_pieces_climb_the_improvement_of_any_function(soft):
    """Two emitters over 10 numbers; MAP-Elites' Gaussian children cover less in as many evaluations."""
    D, K = 10, 32

    @jax.jit
    def generation(carry, key):
        archive, emitters = carry
        z_key, anew_key = jax.random.split(key)
        z = jax.random.normal(z_key, (2, K, D))
        x = jax.vmap(cma_me.ask)(emitters, z)
        fitness, descriptor = jax.vmap(sphere)(x.reshape(-1, D))
        rate = 0.1 if soft else 1.0
        archive, found = elites.insert(archive, x.reshape(-1, D), fitness, descriptor, rate)

        def after(emitter, z, new, improvement, accepted, anew):
            order, parents = cma_me.ranked(new, improvement, accepted, soft)
            told = cma_me.tell(emitter, z, order, parents)
            over = cma_me.exhausted(told, improvement, new) | (parents == 0)
            return jax.tree.map(lambda a, b: jnp.where(over, a, b), cma_me.fresh(anew, 0.5, "full"), told)

        new, improvement, accepted = (v.reshape(2, K) for v in (found.new, found.improvement, found.accepted))
        anew = elites.parents(anew_key, archive, 2)
        emitters = jax.vmap(after)(emitters, z, new, improvement, accepted, anew)
        return (archive, emitters), archive.coverage

    archive = elites.grid((-5, -5), (5, 5), (20, 20), D, lowest=-60.0 if soft else -np.inf)
    emitters = jax.vmap(lambda m: cma_me.fresh(m, 0.5, "full"))(jnp.zeros((2, D)))
    (archive, _), coverage = jax.lax.scan(generation, (archive, emitters), jax.random.split(KEY, 150))
    assert coverage[-1] > 0.3 and archive.fitness.max() > -1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cma_me.Config(population_size=10, num_emitters=4), "population_size=10.*num_emitters=4"),
        (lambda: cma_me.Config(covariance="low-rank"), "covariance='low-rank'.*full, diagonal"),
        (
            lambda: cma_me.make(make("PointMass-v0")[0], cma_me.Config(hidden=(64, 64))),
            "4738 x 4738.*covariance='diagonal'",
        ),
        (
            lambda: cma_me.make(make("PointMass-v0")[0], cma_me.Config(hidden=(2,))).init(KEY, cma_me.Hyper(alpha=1.5)),
            "alpha=1.5",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

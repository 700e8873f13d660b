"""The move of the distribution against closed forms, a grid and scipy's SLSQP; the teacher; a student under it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import self_paced
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.curriculum.teaching import ranges
from jaxrl.environment import strongly_typed
from jaxrl.testing.assertions import assert_no_key_reuse

KEY = jax.random.key(0)
MEAN, STD, ALL = 0.3, 0.1, jnp.ones(128, bool)


@jax.jit
def solve(x, returns, valid, hyper):
    D = x.shape[1]
    return self_paced.moved(jnp.full(D, MEAN), jnp.full(D, STD), x, returns, valid, hyper)


class Problem:
    """The same problem in numpy, in (mean - MEAN) / STD and log(std / STD)."""

    def __init__(self, D, returns_of, **hyper):
        self.D, self.hyper = D, self_paced.Hyper(**{"threshold": 0.0, "target_mean": 0.9, "target_std": 0.05, **hyper})
        self.z = np.random.default_rng(0).normal(size=(128, D)).astype(np.float32).astype(float)
        self.x = MEAN + STD * self.z
        self.returns = returns_of(self.x)

    def solve(self):
        mean, std = solve(
            jnp.asarray(self.x, jnp.float32), jnp.asarray(self.returns, jnp.float32), ALL, strongly_typed(self.hyper)
        )
        return np.concatenate([(np.asarray(mean) - MEAN) / STD, np.log(np.asarray(std) / STD)])

    def parts(self, y):
        return y[: self.D], y[self.D :]

    def J(self, y):
        u, v = self.parts(y)
        log_weight = np.sum(0.5 * self.z**2 - 0.5 * ((self.z - u) / np.exp(v)) ** 2 - v, 1)
        weight = np.exp(log_weight - log_weight.max())
        return (weight * self.returns).sum() / weight.sum()

    def moved(self, y):
        u, v = self.parts(y)
        return 0.5 * np.sum(np.exp(2 * v) + u**2 - 1 - 2 * v)

    def distance(self, y):
        u, v = self.parts(y)
        std, target = STD * np.exp(v), float(self.hyper.target_std)
        away = (MEAN + STD * u - float(self.hyper.target_mean)) / target
        return 0.5 * np.sum((std / target) ** 2 + away**2 - 1 - 2 * np.log(std / target))

    def reference(self, f, start, *constraints):
        within = {"type": "ineq", "fun": lambda y: 1 - self.moved(y) / self.hyper.max_kl}
        more = [{"type": "ineq", "fun": c} for c in constraints]
        found = minimize(f, start, method="SLSQP", constraints=[within, *more], options={"maxiter": 500})
        assert found.success
        return found.x


def easy_is_left(x):
    return 10 - 20 * np.abs(x).sum(1)


def test_kl_by_hand():
    mean, std = jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0])
    assert self_paced.kl(mean, std, mean, std) == 0
    # ln(2 / 1) + (1 + 1) / (2 * 4) - 1 / 2 and ln(1 / 2) + 4 / 2 - 1 / 2
    expected = np.log(2) + 0.25 - 0.5 + np.log(0.5) + 2 - 0.5
    np.testing.assert_allclose(self_paced.kl(mean, std, jnp.ones(2), jnp.array([2.0, 1.0])), expected, rtol=1e-6)


def test_expected_return_by_hand():
    z, returns = jnp.array([[-1.0], [0.0], [1.0], [5.0]]), jnp.array([1.0, 2.0, 3.0, 99.0])
    valid = jnp.array([True, True, True, False])
    J = self_paced.expected_return(jnp.zeros(1), jnp.zeros(1), z, returns, valid)
    np.testing.assert_allclose(J, 2.0, rtol=1e-6)
    # q is N(1, 1): weights in proportion to exp(z - 1/2).
    weight = np.exp([-1.0, 0.0, 1.0])
    J = self_paced.expected_return(jnp.ones(1), jnp.zeros(1), z, returns, valid)
    np.testing.assert_allclose(J, (weight * [1, 2, 3]).sum() / weight.sum(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("threshold", [-1e6, 4.0])
def test_one_dimension_against_a_grid(threshold):
    problem = Problem(1, easy_is_left, threshold=threshold)
    y = problem.solve()
    u, v = np.meshgrid(*[np.linspace(-0.4, 0.4, 241)] * 2)
    log_weight = -0.5 * ((problem.z[:, 0, None] - u.ravel()) / np.exp(v.ravel())) ** 2 + 0.5 * problem.z**2
    weight = np.exp(log_weight - log_weight.max(0))
    J = (weight * problem.returns[:, None]).sum(0) / weight.sum(0)
    grid = np.stack([u.ravel(), v.ravel()])
    moved = 0.5 * (np.exp(2 * grid[1]) + grid[0] ** 2 - 1 - 2 * grid[1])
    may = (moved <= 0.05) & (threshold <= J)
    distance = np.array([problem.distance(p) if ok else np.inf for p, ok in zip(grid.T, may, strict=True)])
    np.testing.assert_allclose(y, grid[:, distance.argmin()], atol=0.01)
    assert problem.distance(y) < distance.min() * 1.01
    assert problem.moved(y) < 0.0502 and problem.J(y) > threshold - 0.01


@pytest.mark.parametrize(
    "hyper",
    [
        {"threshold": -2.0},  # both constraints hold with equality
        {"threshold": -1e6},  # only the trust region
        {"threshold": -3.0, "target_mean": 0.5, "target_std": 0.3, "max_kl": 0.2},
        {"threshold": -2.0, "target_mean": 0.31, "target_std": 0.1},  # only the threshold
        {"threshold": 0.0, "target_std": 0.001, "max_kl": 0.5},  # the target is a point
    ],
)
def test_two_dimensions_against_slsqp(hyper):
    problem = Problem(2, easy_is_left, **hyper)
    y = problem.solve()
    scale = problem.distance(np.zeros(4))
    best = problem.reference(lambda y: -problem.J(y), np.zeros(4))
    reference = problem.reference(
        lambda y: problem.distance(y) / scale, best, lambda y: problem.J(y) - problem.hyper.threshold
    )
    np.testing.assert_allclose(y, reference, atol=2e-3)
    np.testing.assert_allclose(problem.distance(y), problem.distance(reference), rtol=1e-3, atol=1e-4)


def test_a_threshold_out_of_reach_gives_the_best_return():
    problem = Problem(2, easy_is_left, threshold=99.0)
    y = problem.solve()
    best = problem.reference(lambda y: -problem.J(y), np.zeros(4))
    np.testing.assert_allclose(problem.J(y), problem.J(best), atol=0.01)
    assert problem.moved(y) < 0.0505


def test_near_the_target_it_goes_there():
    y = Problem(2, easy_is_left, threshold=-1e6, target_mean=MEAN + 0.1 * STD, target_std=STD).solve()
    np.testing.assert_allclose(y, [0.1, 0.1, 0, 0], atol=1e-4)


def test_std_stays_wide_far_from_the_target():
    settings = {"threshold": -1e6, "target_mean": 0.3, "target_std": 0.001, "max_kl": 0.5}
    narrow = Problem(2, easy_is_left, **settings).solve()
    assert (narrow[2:] < -0.4).all()
    wide = Problem(2, easy_is_left, **settings, min_std=0.08).solve()
    np.testing.assert_allclose(wide[2:], np.log(0.8), atol=1e-4)
    free = Problem(2, easy_is_left, **settings, min_std=0.08, settle_kl=1e9).solve()
    np.testing.assert_allclose(free, narrow, atol=1e-4)


def test_what_did_not_finish_does_not_count():
    problem = Problem(2, easy_is_left, threshold=-2.0)
    x, returns = jnp.asarray(problem.x, jnp.float32), jnp.asarray(problem.returns, jnp.float32)
    hyper, some = strongly_typed(problem.hyper), jnp.arange(128) < 64
    there = solve(x, returns, some, hyper)
    junk = solve(x.at[64:].set(7.0), returns.at[64:].set(jnp.nan), some, hyper)
    jax.tree.map(np.testing.assert_array_equal, there, junk)
    assert abs(there[0] - solve(x, returns, ALL, hyper)[0]).max() > 1e-3


# ---- the teacher


def level_at(params, x):
    return x


CUR = self_paced.make(
    level_at,
    self_paced.Config(2, num_contexts=50),
    self_paced.Hyper(threshold=0.5, start_mean=0.2, target_mean=0.8, target_std=0.1, max_kl=0.2),
)


def seen(returns, episodes=None):
    returns = jnp.asarray(returns, jnp.float32)
    episodes = jnp.ones(len(returns), jnp.int32) if episodes is None else jnp.asarray(episodes)
    return Outcomes(returns, returns, returns > 0, returns, returns, episodes)


def step(key, state, skill, n=10):
    """A student that can do what is left of its skill."""
    sample_key, update_key = jax.random.split(key)
    batch, state = CUR.sample(sample_key, state, jnp.ones(n, bool))
    return CUR.update(update_key, state, batch, seen((batch.params.mean(1) < skill).astype(float))), batch


def run(key, skills):
    return jax.lax.scan(
        lambda state, inputs: (step(inputs[0], state, inputs[1])[0], state.mean),
        CUR.init(key, CUR.hyper, ()),
        (jax.random.split(key, len(skills)), skills),
    )


@pytest.mark.slow
@pytest.mark.light
def test_it_follows_the_students_skill_and_arrives():
    fixed, means = jax.jit(run)(KEY, jnp.full(200, 0.5))
    assert 0.4 < fixed.mean.mean() < 0.6  # half of its tasks are just within reach
    assert (means[0] == 0.2).all() and (means[4] == 0.2).all() and (means[5] != 0.2).any()  # 50 tasks are 5 batches
    able, _ = jax.jit(run)(KEY, jnp.linspace(0.5, 1.5, 200))
    np.testing.assert_allclose(able.mean, 0.8, atol=0.02)
    np.testing.assert_allclose(able.std, 0.1, atol=0.02)


@pytest.mark.slow
@pytest.mark.light
def test_a_batch_of_runs_is_the_single_runs():
    keys, skills = jax.random.split(KEY, 3), jnp.full(20, 0.5)
    states, means = jax.jit(jax.vmap(run, (0, None)))(keys, skills)
    for i in range(3):
        alone = jax.jit(run)(keys[i], skills)
        for a, b in zip(jax.tree.leaves((states, means)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-4)


def test_levels_are_in_the_box_and_notes_where_they_were_drawn():
    state = CUR.init(KEY, CUR.hyper, ()).replace(mean=jnp.array([0.0, 1.0]), std=jnp.full(2, 0.2))
    batch, _ = CUR.sample(KEY, state, jnp.ones(512, bool))
    np.testing.assert_array_equal(batch.params, jnp.clip(batch.note, 0, 1))
    assert (batch.note[:, 0] < 0).any() and (batch.note[:, 1] > 1).any()
    np.testing.assert_allclose(batch.note.mean(0), [0, 1], atol=0.03)
    np.testing.assert_allclose(batch.note.std(0), 0.2, atol=0.02)


@pytest.mark.slow
@pytest.mark.light
def test_unfinished_episodes_do_not_count_and_keys_are_used_once():
    start = CUR.init(KEY, CUR.hyper, ())
    batch, _ = CUR.sample(KEY, start, jnp.ones(60, bool))
    after = CUR.update(KEY, start, batch, seen(jnp.ones(60), jnp.zeros(60, jnp.int32)))
    jax.tree.map(np.testing.assert_array_equal, start, after)
    assert_no_key_reuse(lambda key, state: step(key, state, 0.5)[0], jax.random.key(1), start)


def test_one_compilation():
    again = jax.jit(lambda key, state: step(key, state, 0.5)[0])
    state = jax.jit(CUR.init)(KEY, CUR.hyper, ())
    for i in range(12):
        state = again(jax.random.fold_in(KEY, i), state)
    assert again._cache_size() == 1  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.slow
def test_a_student_learns_under_it():
    env, params = jaxrl.make("CartPole-v1")
    cur = self_paced.make(
        ranges(params, {"length": (0.2, 3.0)}),
        self_paced.Config(num_contexts=16),
        self_paced.Hyper(threshold=10.0, start_mean=0.1, start_std=0.05, target_mean=0.9, target_std=0.05),
    )
    student = ppo.make(jaxrl.vectorize(env, 8, batched_params=True), ppo.Config(num_envs=8, num_steps=32, hidden=(8,)))
    algo = curriculum.attach(student, cur)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 4096, env_params=params))(KEY)
    assert np.isfinite(metrics["loss"]).all()
    assert state.curriculum.mean[0] > 0.15  # a random policy holds the pole for longer than 10 steps
    np.testing.assert_array_less(0.2, state.env_params.length)


# ---- bad input


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"target_mean": 1.5}, "target_mean=1.5: it must be in"),
        ({"start_std": 0.0}, "start_std=0.0: it must be above 0"),
        ({"target_std": jnp.array([0.1, -0.1])}, "target_std=.*above 0"),
        ({"start_mean": jnp.array([0.1, 0.2, 0.3])}, r"start_mean has shape \(3,\): a number or \(2,\)"),
        ({"max_kl": 0.0}, "max_kl=0.0: it must be above 0"),
        ({"min_std": -1.0}, "min_std=-1.0"),
        ({"settle_kl": -1.0}, "settle_kl=-1.0"),
    ],
)
def test_impossible_settings(hyper, words):
    with pytest.raises(ValueError, match=words):
        self_paced.make(level_at, self_paced.Config(2), self_paced.Hyper(**{"threshold": 0.0, **hyper}))


def test_impossible_shapes():
    with pytest.raises(ValueError, match="num_contexts=0"):
        self_paced.Config(2, num_contexts=0)
    with pytest.raises(ValueError, match="dimensions=None"):
        self_paced.make(level_at, self_paced.Config(), self_paced.Hyper(0.0))

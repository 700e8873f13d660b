"""IWOCS by hand, against brute force on small rectangular sets, and on the windy walk of its paper."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.tabular.grids.windy_walk import WindyWalk
from jaxrl.exact import iwocs
from jaxrl.exact.mdp import MDP, DenseMDP, tabulate
from jaxrl.exact.solvers import robust_value_iteration, value_iteration

KEY = jax.random.key(0)


def stacked(*mdps):
    return jax.tree.map(lambda *x: jnp.stack(x), *mdps)


def bandit(*rewards):
    """One state; each action pays its reward and ends."""
    A = len(rewards)
    return MDP(
        jnp.ones((1, A, 1)),
        jnp.zeros((1, A, 1), jnp.int32),
        jnp.array(rewards)[None, :, None],
        jnp.ones((1, A, 1), bool),
        jnp.ones(1),
    )


def test_by_hand():
    # Action 0 is best in model 0 and worst in model 1, which makes action 1 best; that is worst in model 2; action 2
    # pays 3 always.
    mdps = stacked(bandit(9.0, 7.0, 3.0), bandit(0.0, 5.0, 3.0), bandit(6.0, 2.0, 3.0))
    found = iwocs.solve(mdps, 0.9)
    assert found.iterations == 3 and found.converged
    np.testing.assert_array_equal(found.models[:4], [0, 1, 2, -1])
    np.testing.assert_allclose(found.promised[:3], [9, 5, 3])
    np.testing.assert_allclose(found.kept[:3], [0, 2, 3])
    np.testing.assert_array_equal(found.policy, [2])
    np.testing.assert_allclose(found.q, [[0, 2, 3]])
    first = iwocs.solve(mdps, 0.9, first=1)
    np.testing.assert_array_equal(first.models[: first.iterations], [1, 2])  # then 0 and 2 promise and keep 3


def test_matching_pennies():
    """Each action pays in one of two models: nothing can be kept, and the second iteration promises nothing."""
    found = iwocs.solve(stacked(bandit(1.0, 0.0), bandit(0.0, 1.0)), 0.9)
    assert found.iterations == 2 and found.converged
    np.testing.assert_allclose(found.promised[:2], [1, 0])
    np.testing.assert_allclose(found.kept[:2], [0, 0])


def test_what_happens_where_a_policy_never_comes_does_not_matter():
    # State 0 ends with reward 1 (action 0) or goes to 1 (action 1), which stays for ever: without discounting that has
    # no value.
    transition = jnp.zeros((2, 2, 2)).at[0, 1, 1].set(1).at[1, :, 1].set(1)
    reward = jnp.asarray([[1.0, 0.0], [-1.0, -1.0]])
    mdps = stacked(*[DenseMDP(transition, k * reward, jnp.asarray([1.0, 0.0])) for k in (1.0, 2.0)])
    np.testing.assert_allclose(iwocs.values_of(mdps, jnp.asarray([0, 0]), 1.0), [1, 2])
    np.testing.assert_array_equal(iwocs.values_of(mdps, jnp.asarray([1, 0]), 1.0), [-np.inf, -np.inf])


def rectangular(seed, S=2, A=2, choices=2):
    """All models in which each state and action has one of two next-state distributions."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(S, 0.5), (choices, S, A)) * 0.95
    reward = rng.normal(size=(S, A))
    models = []
    for choice in itertools.product(range(choices), repeat=S * A):
        c = np.array(choice).reshape(S, A)
        transition = np.take_along_axis(rows, c[None, :, :, None], 0)[0]
        models.append((transition, reward, np.eye(S)[0]))
    return DenseMDP(*(jnp.asarray(np.stack(x), jnp.float32) for x in zip(*models, strict=True)))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("seed", range(6))
def test_rectangular_sets_against_all_policies(seed):
    mdps, gamma = rectangular(seed), 0.8
    P, r = np.asarray(mdps.transition, float), np.asarray(mdps.reward, float)
    best = -np.inf
    for policy in itertools.product(range(2), repeat=2):
        rows = np.arange(2), np.array(policy)
        values = [np.linalg.solve(np.eye(2) - gamma * P[t][rows], r[t][rows])[0] for t in range(len(P))]
        np.testing.assert_allclose(
            iwocs.values_of(mdps, jnp.array(policy, jnp.int32), gamma), values, rtol=1e-4, atol=1e-5
        )
        best = max(best, min(values))
    robust = iwocs.rectangular_values(mdps, gamma)
    np.testing.assert_allclose(robust.value[0], best, atol=1e-4)
    found = iwocs.solve(mdps, gamma, tol=1e-4)
    i = int(found.iterations)
    assert found.converged == (seed != 0)  # there the least of two Qs promises 0.889, and 0.806 can be kept
    np.testing.assert_allclose(found.kept.max(), best, atol=5e-4)
    np.testing.assert_allclose(iwocs.values_of(mdps, found.policy, gamma).min(), best, atol=5e-4)
    assert (np.diff(found.promised[:i]) <= 1e-5).all() and found.promised[i - 1] >= best - 1e-4


def test_an_adversary_per_outcome_is_robust_value_iteration():
    """Two models that put all mass of each action on either of two outcomes are an L1 ball of radius 2."""
    rng = np.random.default_rng(0)
    S, A = 5, 3
    to, reward = rng.integers(0, S, (S, A, 2)), rng.normal(size=(S, A, 2))
    common = jnp.asarray(to, jnp.int32), jnp.asarray(reward, jnp.float32), jnp.zeros((S, A, 2), bool)
    start = jnp.eye(S)[0]
    sure = [jnp.broadcast_to(jnp.array(p), (S, A, 2)) for p in ([1.0, 0.0], [0.0, 1.0])]
    ours = iwocs.rectangular_values(stacked(*(MDP(p, *common, start) for p in sure)), 0.9)
    theirs = robust_value_iteration(MDP(jnp.full((S, A, 2), 0.5), *common, start), 0.9, 1.0)
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-4)
    np.testing.assert_array_equal(ours.policy, theirs.policy)


@pytest.fixture(scope="module")
def walks():
    env = WindyWalk()
    return jax.vmap(lambda a: tabulate(env, env.default_params.replace(alpha=a)))(jnp.linspace(0, 0.5, 25))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("gamma", [0.99, 1.0])
def test_the_windy_walk_takes_two_iterations(walks, gamma):
    """Zouitine et al. (2024): the worst static model after two iterations, with the value of robust value iteration."""
    found = iwocs.solve(walks, gamma)
    assert found.iterations == 2 and found.converged
    np.testing.assert_array_equal(found.models[:2], [0, 24])
    assert found.worst == 24
    robust = iwocs.rectangular_values(walks, gamma)
    np.testing.assert_allclose(found.kept[1], robust.value[0], rtol=1e-4)
    # No policy can be worth more in the worst model, and this one is worth no less in any.
    optimum = jax.vmap(lambda mdp: value_iteration(mdp, gamma, 1e-6).value[0])(walks)
    np.testing.assert_allclose(found.kept[1], optimum.min(), rtol=1e-4)
    np.testing.assert_allclose(iwocs.values_of(walks, found.policy, gamma).min(), optimum.min(), rtol=1e-4)
    # The way for no wind would be much longer there.
    assert found.kept[0] < found.kept[1] - 5
    if gamma == 1:
        w = 0.5**6  # down, the bottom corridor and up again: T_i = (1 + w T_(i-1)) / (1 - w)
        times = [1.0]
        for _ in range(18):
            times.append((1 + w * times[-1]) / (1 - w))
        np.testing.assert_allclose(found.kept[1], -sum(times) - 8, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.light
def test_sets_of_sets_and_compilations():
    sets = stacked(rectangular(0), rectangular(1))
    many = jax.vmap(lambda mdps: iwocs.solve(mdps, 0.8))(sets)
    for i in range(2):
        one = iwocs.solve(rectangular(i), 0.8)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-4), many, one)
    before = iwocs._solve._cache_size()
    iwocs.solve(rectangular(2), 0.7)
    iwocs.solve(rectangular(3), 0.9)
    assert iwocs._solve._cache_size() <= before + 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"first": 99}, "first=99: there are"),
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"mdps": jax.tree.map(lambda x: x[0], rectangular(0))}, "a leading axis of models is missing"),
    ],
)
def test_refuses(changes, says):
    with pytest.raises(ValueError, match=says):
        iwocs.solve(**{"mdps": rectangular(0), "gamma": 0.9, **changes})

"""Games against linear programming, sets of policies against brute force, and Exp3-IX among them under attack."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import jaxrl
from jaxrl.algos import exp3
from jaxrl.exact import non_dominated

# Against nobody, a weak and a strong attacker; the last three are below a mixture, one policy, and everything.
VICTIMS = jnp.array(
    [[1.0, 0.5, 0.0], [0.8, 0.75, 0.3], [0.5, 0.5, 0.5], [0.72, 0.6, 0.15], [0.8, 0.7, 0.2], [0.0, 0.0, 0.0]]
)


def program(payoff):
    """The value for the row player and its strategy."""
    A, B = payoff.shape
    found = linprog(
        np.append(np.zeros(A), -1.0),
        A_ub=np.hstack([-payoff.T, np.ones((B, 1))]),
        b_ub=np.zeros(B),
        A_eq=[np.append(np.ones(A), 0.0)],
        b_eq=[1.0],
        bounds=[(0, 1)] * A + [(None, None)],
    )
    return found.x[A], found.x[:A]


def needed(payoff):
    """The rows that no mixture of the others dominates, by one linear programme each."""
    rows = []
    for i, row in enumerate(payoff):
        others = np.delete(payoff, i, 0)
        if -program(others - row)[0] > 1e-6:
            rows.append(i)
    return rows


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (2, 2), (5, 4), (4, 9)])
def test_zero_sum_games_are_solved(shape):
    rng = np.random.default_rng(0)
    games = np.stack([*rng.normal(size=(4, *shape)), rng.integers(0, 3, shape), np.ones(shape)])
    found = jax.jit(jax.vmap(non_dominated.solve))(jnp.asarray(games, jnp.float32))
    for payoff, value, row, column in zip(games, *found, strict=True):
        np.testing.assert_allclose(value, program(payoff)[0], atol=1e-5)
        for strategy in (row, column):
            np.testing.assert_allclose(strategy.sum(), 1, atol=1e-5)
            assert strategy.min() >= 0
        # Neither gains by another action.
        assert np.max(payoff @ np.asarray(column)) <= value + 1e-4
        assert np.min(np.asarray(row) @ payoff) >= value - 1e-4


def test_the_known_set_is_found_and_nothing_more():
    found = non_dominated.discover(VICTIMS, 6)
    assert needed(np.asarray(VICTIMS)) == [0, 1, 2]
    assert sorted(found.members.tolist()) == [-1, -1, -1, 0, 1, 2]
    assert found.members[0] == 1  # the best against all attackers mixed equally
    np.testing.assert_allclose(found.gaps[2:], 0, atol=1e-6)
    # By hand: policy 1 loses at most 0.2, to policy 0 without an attack and to policy 2 under the strong one.
    np.testing.assert_allclose(found.gaps[0], 0.2, atol=1e-6)
    assert found.gaps[0] >= found.gaps[1] > 0.1
    for k in (1, 2):
        returns = VICTIMS @ found.attackers[k]
        assert jnp.argmax(returns) == found.members[k]


def test_random_games_against_brute_force():
    rng = np.random.default_rng(1)
    discover = jax.jit(lambda game: non_dominated.discover(game, 8))
    sizes = []
    for _ in range(6):
        payoff = rng.normal(size=(8, 3))
        found = discover(jnp.asarray(payoff, jnp.float32))
        assert sorted(i for i in found.members.tolist() if i >= 0) == needed(payoff)
        assert (np.diff(found.gaps) <= 1e-5).all(), "a larger set never loses more"
        sizes.append(int((found.members >= 0).sum()))
    assert min(sizes) < max(sizes)


def test_a_set_that_is_too_small_says_what_it_loses():
    found = non_dominated.discover(VICTIMS, 2)
    assert found.members.tolist()[0] == 1
    lost, policy, attacker = non_dominated.gap(VICTIMS, found.members)
    np.testing.assert_allclose(found.gaps[-1], lost)
    missing = ({0, 1, 2} - set(found.members.tolist())).pop()
    assert policy == missing
    by_hand = jnp.max(VICTIMS @ attacker) - jnp.max(VICTIMS[found.members] @ attacker)
    np.testing.assert_allclose(lost, by_hand, atol=1e-6)
    np.testing.assert_allclose(lost, 0.2, atol=1e-6)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("when", ["always", "from the middle on"])
def test_exp3_ix_among_the_set_is_above_the_best_single_policy(when):
    """Mean over no attack, weak and strong ones; any single policy returns at most 0.617 of 0.75 that are possible."""
    rounds = 2_000
    members = jnp.array([0, 1, 2])
    attackers = jnp.repeat(jnp.arange(3)[:, None], rounds, 1)
    if when != "always":  # nobody attacks before
        attackers = jnp.where(jnp.arange(rounds) < rounds // 2, 0, attackers)
    table, params = jaxrl.make("AdversarialBandit-v0", arms=3, rounds=rounds)
    algo = exp3.make(table, exp3.Config(estimator="ix"))

    def mean_return(key, attackers):
        rewards = VICTIMS[members][:, attackers].T
        _, metrics = jaxrl.train(algo, key, rounds, exp3.Hyper(horizon=rounds), params.replace(rewards=rewards))
        return jnp.mean(metrics["reward"])

    keys = jax.random.split(jax.random.key(0), 32)
    got = jax.jit(jax.vmap(jax.vmap(mean_return, (None, 0)), (0, None)))(keys, attackers)
    single = jnp.max(jnp.mean(VICTIMS[:, attackers], (1, 2)))
    if when == "always":
        np.testing.assert_allclose(single, 0.6167, atol=1e-4)
        # Each attacker's best policy but for the regret, which falls with the root of the rounds.
        np.testing.assert_allclose(got.mean(0), [1.0, 0.75, 0.5], atol=0.05)
        np.testing.assert_allclose(got.mean(), 0.712, atol=0.003)  # as docs/mdp.md has it
    assert got.mean() > single + 0.02


def test_ix_of_gains_loses_what_ix_of_losses_keeps_when_an_attack_begins():
    """PROTECTED's code adds r / (p + gamma) where Neu subtracts (1 - r) / (p + gamma); rates are equal here."""
    rounds, runs, arms = 2_000, 100, 3
    rewards = np.asarray(VICTIMS[:arms])[:, np.where(np.arange(rounds) < rounds // 2, 0, 2)]
    gamma = np.sqrt(np.log(arms) / (2 * arms * rounds))

    def mean_return(step):
        rng, log_weight, total = np.random.default_rng(0), np.zeros((runs, arms)), 0
        each = np.arange(runs)
        for t in range(rounds):
            p = np.exp(log_weight - log_weight.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            arm = np.sum(p.cumsum(1)[:, :-1] < rng.random((runs, 1)), 1)
            reward = rewards[arm, t]
            log_weight[each, arm] += step(reward, p[each, arm])
            total += reward.mean() / rounds
        return total

    losses = mean_return(lambda r, p: -2 * gamma * (1 - r) / (p + gamma))
    gains = mean_return(lambda r, p: 2 * gamma * r / (p + gamma))
    single = rewards.mean(1).max()
    np.testing.assert_allclose([losses, gains, single], [0.59, 0.50, 0.55], atol=0.01)


def test_what_is_refused():
    with pytest.raises(ValueError, match="size=0: it must be from 1 to the number of policies, 6"):
        non_dominated.discover(VICTIMS, 0)
    with pytest.raises(ValueError, match="size=7"):
        non_dominated.discover(VICTIMS, 7)
    with pytest.raises(ValueError, match="first=6: the policies are 0 to 5"):
        non_dominated.discover(VICTIMS, 2, first=6)

"""Best responses against scipy, the point at which a stag hunt switches, and variance beside Nash's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from jaxrl.exact import risk_averse_games as games

STAG_HUNT = jnp.array([[4.0, -8.0], [3.0, 2.0]])  # the hare is risk-dominant: 2 + 8 > 4 - 3
BOTH_STAG = jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0])


def test_variance_and_mean_by_hand():
    """Against stag with probability 3/4 the stag is paid 4 or -8, the hare 3 or 2."""
    opponent = jnp.array([0.75, 0.25])
    sigma = games.covariance(STAG_HUNT, opponent)
    np.testing.assert_allclose(sigma, 3 / 16 * np.outer([12, 1], [12, 1]), rtol=1e-6)
    strategy = jnp.array([0.5, 0.5])
    by_hand = 3 / 16 * 6.5**2 - 2 * (0.5 * 1 + 0.5 * 2.75)
    np.testing.assert_allclose(games.objective(STAG_HUNT, strategy, opponent, 2.0), by_hand, rtol=1e-6)


@pytest.mark.parametrize("tremble", [0.0, 0.1])
def test_the_projection_is_the_nearest_strategy(tremble):
    rng = np.random.default_rng(0)
    for x in rng.normal(size=(5, 4)):
        nearest = minimize(
            lambda z, x=x: np.sum((z - x) ** 2),
            np.full(4, 0.25),
            bounds=[(tremble, 1)] * 4,
            constraints={"type": "eq", "fun": lambda z: np.sum(z) - 1},
            options={"ftol": 1e-12},
        ).x
        np.testing.assert_allclose(games.onto_simplex(jnp.asarray(x), tremble), nearest, atol=1e-5)


@pytest.mark.parametrize("tremble", [0.0, 0.05])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 30.0])
def test_best_responses_are_those_of_a_quadratic_programme(gamma, tremble):
    """scipy's SLSQP, begun at five strategies; the objective of the best is compared, as answers may tie."""
    rng = np.random.default_rng(1)
    best = jax.jit(games.best_response)
    for _ in range(4):
        payoff, opponent = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3))
        centred = payoff - (payoff @ opponent)[:, None]
        sigma = centred @ np.diag(opponent) @ centred.T

        def cost(x, sigma=sigma, mean=payoff @ opponent):
            return x @ sigma @ x - gamma * x @ mean

        least = min(
            minimize(
                cost,
                begin,
                bounds=[(tremble, 1)] * 4,
                constraints={"type": "eq", "fun": lambda z: np.sum(z) - 1},
                options={"ftol": 1e-12, "maxiter": 500},
            ).fun
            for begin in [np.full(4, 0.25), *np.eye(4)]
        )
        x = best(jnp.asarray(payoff), jnp.asarray(opponent), gamma, tremble)
        assert x.min() >= tremble - 1e-6
        np.testing.assert_allclose(x.sum(), 1, atol=1e-5)
        np.testing.assert_allclose(cost(np.asarray(x, np.float64)), least, atol=2e-5 * max(1, gamma))


@pytest.mark.parametrize("tremble", [0.01, 0.05])
def test_a_stag_hunt_switches_to_the_risk_dominant_equilibrium_at_the_closed_form_point(tremble):
    switch = float(games.stag_hunt_switch(STAG_HUNT, tremble))
    t = tremble
    by_hand = 2 * t * (1 - t) * 11 * ((1 - t) * 12 + t) / ((1 - t) * 1 - t * 10)
    np.testing.assert_allclose(switch, by_hand, rtol=1e-5)
    assert games.stag_hunt_switch(STAG_HUNT, 0.1) == jnp.inf  # 0.9 < 0.1 * 10: not even for who fears nothing
    stag = jnp.array([1 - t, t])
    for gamma, stays in ((0.97 * switch, False), (1.03 * switch, True)):
        # Exactly: is the stag a best response to the stag?
        np.testing.assert_allclose(games.best_response(STAG_HUNT, stag, gamma, t)[0] > 1 - t - 1e-4, stays)
        # And in play that begins with both hunting it.
        found = games.equilibrium(STAG_HUNT, STAG_HUNT.T, gamma, t, BOTH_STAG)
        hunts = (1 - t) if stays else t
        np.testing.assert_allclose(found.row[0], hunts, atol=0.01)
        np.testing.assert_allclose(found.column[0], hunts, atol=0.01)
    # The hare stays an equilibrium on both sides, and without a tremble the stag does.
    hare = jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0])
    kept = games.equilibrium(STAG_HUNT, STAG_HUNT.T, 1.03 * switch, t, hare)
    np.testing.assert_allclose(kept.row[0], t, atol=0.01)
    sure = games.equilibrium(STAG_HUNT, STAG_HUNT.T, 0.01, 0.0, BOTH_STAG)
    np.testing.assert_allclose(sure.row[0], 1.0, atol=1e-5)
    assert sure.gap < 1e-5


def zero_sum(payoff):
    """The row player's mixed strategy and value of Nash's equilibrium, by linear programming."""
    rows = len(payoff)
    found = linprog(
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-payoff.T, np.ones((payoff.shape[1], 1))]),
        b_ub=np.zeros(payoff.shape[1]),
        A_eq=[np.append(np.ones(rows), 0.0)],
        b_eq=[1.0],
        bounds=[(0, 1)] * rows + [(None, None)],
    )
    return found.x[:rows], found.x[rows]


def test_variance_is_at_most_nashs_at_equal_mean():
    """Games made to have a mixed equilibrium of Nash, at which all of a player's actions have one mean.

    The answer to the other's part of it has that mean, too, and of all such strategies the least variance.
    """
    rng = np.random.default_rng(2)
    respond, gained = jax.jit(games.best_response), []
    for _ in range(5):
        nash, opponent = rng.dirichlet(np.ones(3), 2)
        payoff = rng.normal(size=(3, 3))
        payoff += 1.0 - (payoff @ opponent)[:, None]
        x = np.asarray(respond(jnp.asarray(payoff), jnp.asarray(opponent), 1.0), np.float64)
        np.testing.assert_allclose(x @ payoff @ opponent, nash @ payoff @ opponent, atol=1e-5)
        variance = [float(np.sum(opponent * (z @ payoff - 1.0) ** 2)) for z in (x, nash)]
        assert variance[0] <= variance[1] + 1e-5
        gained.append(variance[1] - variance[0])
    assert np.mean(gained) > 0.05


def test_of_equal_means_the_safe_action_is_the_equilibrium():
    """Nash's equilibria of this game are all mixtures of both rows, as the column player does not care."""
    risky_or_safe = jnp.array([[0.0, 4.0], [2.0, 2.0]])
    found = games.equilibrium(risky_or_safe, jnp.zeros((2, 2)), 1.0)
    np.testing.assert_allclose(found.row, [0, 1], atol=5e-3)
    np.testing.assert_allclose(found.mean[0], 2.0, atol=1e-5)
    assert found.variance[0] < 1e-4 and found.gap < 1e-4


def test_zero_sum_games_reach_an_equilibrium_and_near_nashs_for_large_gamma():
    rng = np.random.default_rng(3)
    for _ in range(3):
        payoff = rng.normal(size=(3, 4))
        game = jnp.asarray(payoff)
        assert games.equilibrium(game, -game, 2.0).gap < 5e-3
        found = games.equilibrium(game, -game, 1000.0, rounds=2_000)
        np.testing.assert_allclose(found.mean[0], zero_sum(payoff)[1], atol=0.03)


def test_seeds_of_games_are_one_program():
    game = jnp.stack([STAG_HUNT, STAG_HUNT + jnp.array([[0.0, 8.0], [0.0, 0.0]])])
    found = jax.vmap(lambda x: games.equilibrium(x, x.T, 2.0, 0.05, BOTH_STAG))(game)
    np.testing.assert_allclose(found.row[:, 0], [0.05, 0.95], atol=0.01)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"gamma": 0.0}, "gamma=0: it must be above 0"),
        ({"tremble": 0.5}, "tremble=0.5: with 2 actions it must be from 0 to below 0.5"),
        ({"tremble": -0.1}, "tremble=-0.1"),
        ({"rounds": 0}, "rounds=0: there must be at least 1"),
    ],
)
def test_what_is_refused(wrong, said):
    right = {"row_payoff": STAG_HUNT, "column_payoff": STAG_HUNT.T, "gamma": 1.0}
    with pytest.raises(ValueError, match=said):
        games.equilibrium(**{**right, **wrong})
    with pytest.raises(ValueError, match="a stag hunt has"):
        games.stag_hunt_switch(jnp.array([[1.0, 0.0], [2.0, 1.5]]), 0.01)

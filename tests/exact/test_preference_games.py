"""Self-play on cycles against linear programming, whom Bradley and Terry pick, and minima of DPO-like losses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import linprog

from jaxrl.exact import preference_games as games


def cycle(ab, bc, ca):
    """A is preferred to B, B to C and C to A, by margins above a half."""
    half = 0.5
    return jnp.array([[half, half + ab, half - ca], [half - ab, half, half + bc], [half + ca, half - bc, half]])


def winner(preference):
    """The minimax winner by linear programming."""
    size = len(preference)
    game = np.asarray(preference, np.float64) - 0.5
    found = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.hstack([-game.T, np.ones((size, 1))]),
        b_ub=np.zeros(size),
        A_eq=[np.append(np.ones(size), 0.0)],
        b_eq=[1.0],
        bounds=[(0, 1)] * size + [(None, None)],
    )
    return found.x[:size]


@pytest.mark.parametrize("margins", [(0.3, 0.3, 0.3), (0.4, 0.1, 0.25), (0.1, 0.2, 0.5), (0.05, 0.45, 0.2)])
def test_the_average_of_self_play_is_the_minimax_winner_of_a_cycle(margins):
    preference = cycle(*margins)
    by_hand = np.array([margins[1], margins[2], margins[0]]) / sum(margins)
    np.testing.assert_allclose(winner(preference), by_hand, atol=1e-6)
    start = jnp.array([0.6, 0.3, 0.1])
    found = jax.jit(lambda p: games.self_play(p, start, 10_000))(preference)
    np.testing.assert_allclose(found.average, by_hand, atol=1e-2)
    assert 0 <= found.exploitability < 1e-2
    # The last one is no nearer than it began: it goes round.
    assert np.abs(found.last - by_hand).max() > 0.1
    reward = games.bradley_terry_rewards(preference)
    picked = jnp.eye(3)[jnp.argmax(reward)]
    assert games.exploitability(preference, picked) > 0.04


def test_where_one_beats_all_it_wins():
    reward = jnp.array([0.0, 1.0, 2.5, 0.5])
    preference = jax.nn.sigmoid(reward[:, None] - reward)
    found = games.self_play(preference, jnp.full(4, 0.25), 2_000)
    assert found.last[2] > 0.99 and winner(preference)[2] > 0.99
    np.testing.assert_allclose(games.bradley_terry_rewards(preference), reward - reward.mean(), atol=1e-3)


def test_random_games_of_more_actions():
    rng = np.random.default_rng(0)
    for _ in range(3):
        upper = np.triu(rng.uniform(-0.5, 0.5, (6, 6)), 1)
        preference = jnp.asarray(0.5 + upper - upper.T, jnp.float32)
        found = games.self_play(preference, jnp.full(6, 1 / 6), 10_000)
        assert found.exploitability < 1e-2
        assert games.exploitability(preference, jnp.asarray(winner(preference), jnp.float32)) < 1e-5


@pytest.mark.parametrize(
    "preference, said",
    [
        (jnp.zeros((2, 3)), "a square matrix"),
        (jnp.array([[0.5, 1.2], [-0.2, 0.5]]), "must be probabilities, 0 to 1"),
        (jnp.array([[0.5, 0.7], [0.4, 0.5]]), "0 is preferred to 1 with probability 0.7 and 1 to 0 with 0.4"),
        (jnp.array([[0.5, jnp.nan], [0.4, 0.5]]), "must be probabilities"),
    ],
)
def test_what_is_no_preference(preference, said):
    with pytest.raises(ValueError, match=said):
        games.check(preference)
    with pytest.raises(ValueError, match="rounds=0"):
        games.self_play(jnp.full((2, 2), 0.5), jnp.full(2, 0.5), 0)


def minimum(loss, preference, reference, beta):
    """Logits of the least expected loss over all pairs of actions drawn uniformly."""
    adam = optax.adam(0.05)

    def step(carry, _):
        logits, state = carry
        gradient = jax.grad(lambda x: jnp.mean(loss(games.log_ratio_margin(x, reference), preference, beta)))(logits)
        change, state = adam.update(gradient, state)
        return (optax.apply_updates(logits, change), state), None

    (logits, _), _ = jax.lax.scan(step, (reference, adam.init(reference)), length=2_000)
    return jax.nn.softmax(logits)


def test_the_minima_of_dpo_and_ipo():
    """In two states at once: DPO's is reference exp(r / beta), IPO's reference exp(win rate / beta)."""
    reward = jnp.array([[0.0, 1.0, -0.5], [2.0, 0.0, 0.3]])
    reference, beta = jnp.log(jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])), 0.7
    preference = jax.nn.sigmoid(reward[..., :, None] - reward[..., None, :])
    find = jax.jit(minimum, static_argnums=0)
    np.testing.assert_allclose(
        find(games.dpo_loss, preference, reference, beta), jax.nn.softmax(reference + reward / beta), atol=2e-3
    )
    rates = jnp.mean(preference, -1)
    np.testing.assert_allclose(
        find(games.ipo_loss, preference, reference, beta), jax.nn.softmax(reference + rates / beta), atol=2e-3
    )


def test_losses_by_hand():
    margin, label = jnp.array([0.4, -1.0]), jnp.array([1.0, 0.25])

    def minus_log(x):
        return -np.log(1 / (1 + np.exp(-x)))

    np.testing.assert_allclose(
        games.dpo_loss(margin, label, 2.0),
        [minus_log(0.8), 0.25 * minus_log(-2.0) + 0.75 * minus_log(2.0)],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        games.ipo_loss(margin, label, 2.0), [(0.4 - 0.25) ** 2, 0.25 * 1.25**2 + 0.75 * 0.75**2], rtol=1e-6
    )
    # Of certain labels DPO's loss falls for ever, and IPO's is least at 1 / (2 beta).
    far = jnp.array([1.0, 10.0, 100.0])
    assert np.all(np.diff(games.dpo_loss(far, jnp.ones(3), 1.0)) < 0)
    assert games.ipo_loss(jnp.array(0.25), jnp.array(1.0), 2.0) == 0

"""Blackjack against Gymnasium's own `step`, run for all that can happen, and against Sutton and Barto's figure 5.2."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text import blackjack as theirs

from jaxrl import make
from jaxrl.envs.tabular import blackjack
from jaxrl.envs.tabular.blackjack import BUST, CARD, NATURAL, Blackjack
from jaxrl.exact.mdp import TabularState, tabulate
from jaxrl.exact.solvers import value_iteration

RULES = [{}, {"natural": True}, {"sab": True}, {"natural": True, "sab": True}]


@functools.cache
def table(**rules):
    with jax.enable_x64(True):
        env = Blackjack(**rules)
        return jax.device_get(jax.jit(lambda: tabulate(env, env.default_params))())


def reference(player, dealer, **rules):
    env = theirs.BlackjackEnv(**rules)
    env.player, env.dealer = list(player), list(dealer)
    return env


def number(player):
    """Our number of a hand of cards."""
    total, _, ace = reference(player, [1, 1])._get_obs()
    if sorted(player) == [1, 10]:
        return NATURAL
    return 2 * total + ace if total <= 21 else BUST + total - 22


class Told(list):
    """Cards that the dealer draws; more are asked for by an error."""

    def __call__(self, np_random):
        if not self:
            raise IndexError
        return self.pop(0)


def dealers(monkeypatch, up):
    """Probability of each end that Gymnasium's `step` plays from a face-up card, by all draws that it asks for."""
    found = {}
    open_ends = [((card,), CARD[card - 1]) for card in range(1, 11)]
    while open_ends:
        cards, p = open_ends.pop()
        env = reference([10, 8], [up, cards[0]])
        monkeypatch.setattr(theirs, "draw_card", Told(cards[1:]))
        try:
            env.step(0)
        except IndexError:
            open_ends += [((*cards, card), p * CARD[card - 1]) for card in range(1, 11)]
            continue
        total = theirs.sum_hand(env.dealer)
        end = 6 if theirs.is_natural(env.dealer) else min(total, 22) - 17
        found[end] = found.get(end, 0) + p
    return [found.get(end, 0) for end in range(7)]


def test_the_dealer_plays_as_gymnasiums(monkeypatch):
    ours = blackjack.dealer_distribution()
    np.testing.assert_allclose(ours.sum(1), 1, atol=1e-14)
    for up in (1, 6, 7, 8, 9, 10):  # low cards have a hundred thousand ways, of the same hands
        np.testing.assert_allclose(ours[up - 1], dealers(monkeypatch, up), atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("up", [2, 3, 4, 5])
def test_the_dealer_plays_as_gymnasiums_from_low_cards(monkeypatch, up):
    np.testing.assert_allclose(blackjack.dealer_distribution()[up - 1], dealers(monkeypatch, up), atol=1e-14)


@functools.cache
def observations():
    env, states = Blackjack(), jnp.arange(10 * blackjack.PLAYERS)
    see = jax.vmap(lambda i: env.observe(jax.random.key(0), TabularState(jnp.int32(0), i), env.default_params))
    return jax.device_get(see(states))


HANDS = [hand for hand in itertools.combinations_with_replacement(range(1, 11), 2)] + [
    hand for hand in itertools.combinations_with_replacement(range(1, 11), 3) if theirs.sum_hand(hand) <= 21
]
ENDS = [[10, 7], [10, 8], [10, 9], [10, 10], [10, 6, 5], [10, 6, 9], [1, 10]]


@pytest.mark.parametrize("rules", RULES)
def test_rewards_and_cards_are_gymnasiums(rules, monkeypatch):
    mdp = table(**rules)
    monkeypatch.setattr(theirs, "draw_card", lambda np_random: card)
    for hand in HANDS:
        state = 10 * number(hand) + 4
        for end, dealer in enumerate(ENDS):  # of cards that end the dealer's play
            _, reward, terminated, _, _ = reference(hand, dealer, **rules).step(0)
            assert terminated and mdp.terminated[state, 0, end] and mdp.reward[state, 0, end] == reward, (hand, dealer)
        for card in range(1, 11):
            env = reference(hand, [5, 5], **rules)
            obs, reward, terminated, _, _ = env.step(1)
            assert (mdp.reward[state, 1, card - 1], mdp.terminated[state, 1, card - 1]) == (reward, terminated)
            after = mdp.next_state[state, 1, card - 1]
            assert after // 10 == number(env.player) and after % 10 == 4
            assert tuple(x[after] for x in observations()) == tuple(map(int, obs))
    np.testing.assert_allclose(mdp.probability.sum(-1), 1, atol=1e-12)


def test_starts_are_gymnasiums():
    wanted = np.zeros((blackjack.PLAYERS, 10))
    for one, two, up in itertools.product(range(1, 11), repeat=3):
        wanted[number([one, two]), up - 1] += CARD[one - 1] * CARD[two - 1] * CARD[up - 1]
    np.testing.assert_allclose(table().initial, wanted.reshape(-1), atol=1e-15)


def test_the_best_policy_is_the_books():
    """Figure 5.2: when to hit, by the dealer's card from the ace to the ten."""
    with jax.enable_x64(True):
        mdp = jax.tree.map(jnp.asarray, table(sab=True))
        policy = np.asarray(value_iteration(mdp, 1.0, tol=1e-10).policy).reshape(-1, 10)
    hard = {total: "".join(map(str, policy[2 * total])) for total in range(11, 22)}
    soft = {total: "".join(map(str, policy[2 * total + 1])) for total in range(12, 22)}
    assert hard[11] == "1" * 10 and hard[12] == "1110001111"
    assert all(hard[total] == "1000001111" for total in range(13, 17))
    assert all(hard[total] == "0" * 10 for total in range(17, 22))
    assert all(soft[total] == "1" * 10 for total in range(12, 18))
    assert soft[18] == "0000000011" or soft[18] == "1000000011"
    assert all(soft[total] == "0" * 10 for total in range(19, 22))


@pytest.mark.slow
@pytest.mark.light
def test_values_and_settings():
    _, params = make("Blackjack-v1")
    with jax.enable_x64(True):
        values = [float(Blackjack(**rules).optimal_value(Blackjack().default_params)) for rules in RULES[:3]]
    assert values[0] < values[2] < values[1] < 0
    indexed = make("Blackjack-v1", observation="index")[0]
    assert indexed.reset(jax.random.key(0), params)[0].shape == ()
    with pytest.raises(ValueError, match="observation='sum'; it is 'cards' or 'index'"):
        make("Blackjack-v1", observation="sum")

"""The pure functions of `experiments/stl_control`: times by Metropolis-Hastings, and rewards by stage."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "experiments" / "stl_control"))
    return importlib.import_module


def test_times_follow_the_score(module):
    """Of 4,000 chains in three windows: the first time by its score, the other two uniform, all within."""
    learned, episodes = module("learned"), module("episodes")
    score = jnp.log(1.0 + jnp.arange(15.0))  # of the first time, in 0 to 14

    @jax.jit
    def moved(key):
        times = episodes.allocations(key, 4000)
        return learned.metropolis(key, lambda times: score[times[:, 0]], times, moves=40, reach=4, temperature=1.0)

    times = np.asarray(moved(jax.random.key(0)))
    assert (times >= np.asarray(episodes.FIRST)).all() and (times <= np.asarray(episodes.LAST)).all()
    share = np.bincount(times[:, 0], minlength=15) / len(times)
    np.testing.assert_allclose(share, np.arange(1, 16) / 120, atol=0.02)
    np.testing.assert_allclose(np.bincount(times[:, 1])[8:] / len(times), 1 / 13, atol=0.02)


def test_the_next_goal_is_the_one_whose_time_comes_first(module):
    next_goal = module("episodes").next_goal
    times = jnp.array([14, 9, 25])  # the second holds for two more steps
    for time, wanted in ((0, 1), (10, 1), (11, 0), (13, 0), (14, 2), (24, 2), (25, None)):
        np.testing.assert_array_equal(next_goal(time, times), np.arange(3) == wanted)


def test_rewards_of_a_stage(module):
    """Progress counts towards the next goal alone, and being there at its time and while it holds."""
    episodes = module("episodes")
    times, before, after = jnp.array([4, 12, 25]), jnp.array([1.0, 2.0, 3.0]), jnp.array([0.6, 2.5, 2.0])
    progress, bonus = episodes.PROGRESS, episodes.BONUS
    assert np.isclose(episodes.stage_reward(3, times, before, after, 1.6), progress * 0.4 / 1.6)
    inside = jnp.array([0.6, 0.2, 2.0])
    assert np.isclose(episodes.stage_reward(12, times, before, inside, 1.8), progress * 1.8 / 1.8 + bonus / 3)
    assert np.isclose(episodes.stage_reward(14, times, before, inside, 1.8), progress * 1.8 / 1.8 + bonus / 3)
    assert np.isclose(episodes.stage_reward(15, times, before, inside, 2.0), progress * 1.0 / 2.0)


def test_the_formula_holds_on_a_way_through_all_goals(module):
    systems = module("systems")
    steps = jnp.array([0, 3, 8, 14, 17, 22, 26, 30])
    x = jnp.array([-0.9, 0.0, 0.9, 0.7, 0.7, 0.1, -0.9, -0.9])
    y = jnp.array([-0.9, -1.2, -0.6, 0.9, 0.9, 1.3, 0.7, 0.7])
    t = np.arange(systems.T + 1)
    way = jnp.stack([jnp.interp(t, steps, x), jnp.interp(t, steps, y)], -1)
    assert systems.robustness(way) > 0
    through = way.at[1:8].set(jnp.linspace(way[0], way[8], 9)[1:8])  # straight to the first goal, across a pole
    assert systems.robustness(through) < 0
    out = way.at[16].set(jnp.array([0.7, 0.5]))  # of the second goal, in the middle of the stay
    assert systems.robustness(out) < 0

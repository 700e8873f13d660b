"""What a logged row is made of."""

import numpy as np

from jaxrl.host.run.history import History


def test_a_row_weighs_returns_by_episodes_and_losses_by_updates_that_had_one():
    history = History(None, (), {}, None, 3, 8)
    rows = {
        "episodes": np.array([1, 0, 3]),
        "episode_return": np.array([10.0, np.nan, 2.0]),
        "episode_length": np.array([5.0, np.nan, 1.0]),
        "loss": np.array([4.0, np.nan, 2.0]),
    }
    history.add(0, rows, last=True)
    (row,) = history.rows
    assert row["episodes"] == 4 and row["episode_return"] == (10 + 3 * 2) / 4 and row["episode_length"] == 2
    assert row["loss"] == 3 and (row["update"], row["step"]) == (3, 24)


def test_a_seed_without_an_episode_has_no_return():
    history = History(None, (), {}, 2, 2, 1)
    episodes, returns = np.array([[1, 0], [1, 0]]), np.array([[1.0, np.nan], [3.0, np.nan]])
    history.add(0, {"episodes": episodes, "episode_return": returns, "loss": np.zeros((2, 2))}, last=True)
    np.testing.assert_array_equal(history.rows[0]["episode_return"], [2, np.nan])


def test_recent_is_the_mean_of_the_rows_since_the_last_call_by_their_episodes():
    history = History(None, (), {}, None, 1, 8)
    assert history.recent() == {}

    def rows(*values):
        returns, episodes = np.array([v for v, _ in values]), np.array([n for _, n in values])
        return {"loss": returns, "episode_return": returns, "episode_length": returns, "episodes": episodes}

    history.add(0, rows((430.0, 1), (np.nan, 0), (265.0, 3)), last=False)
    row = history.recent()
    assert row["episode_return"] == (430 + 3 * 265) / 4 and row["episodes"] == 4
    assert row["loss"] == (430 + 265) / 2 and row["update"] == 3 and row["step"] == 24
    assert history.recent() is history.last  # nothing new
    history.add(3, rows((500.0, 2)), last=True)
    assert history.recent()["episode_return"] == 500

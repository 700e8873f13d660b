"""Statistics with known answers; what the report's page does with others is tested there."""

import numpy as np
import pytest

from jaxrl.host.statistics import bootstrap_interval, told, tuned_online


def test_tuning_by_a_bandit_that_sees_no_noise():
    """Each policy once, in random order: the best of t, then the best of those drawn."""
    scores = np.tile(np.arange(10.0)[:, None] / 10, (1, 3))
    curve = tuned_online(scores, episodes=30, policies=4, repeats=4000)
    assert curve.shape == (4000, 30) and (np.diff(curve, axis=1) >= 0).all()
    for t in range(1, 5):  # the largest of t different numbers below 10
        assert curve[:, t - 1].mean() == pytest.approx((t * 11 / (t + 1) - 1) / 10, abs=0.02), t
    assert (curve[:, 3:] == curve[:, 3:4]).all()
    assert (tuned_online(scores, 40, policies=99, repeats=3)[:, 9:] == 0.9).all()


def test_tuning_by_a_bandit_that_sees_single_episodes():
    """The policy that is right half of the time and the one that is right nine times in ten."""
    scores = np.array([[0.0, 1.0] * 10, [1.0] * 18 + [0.0] * 2])
    curve = tuned_online(scores, episodes=300, repeats=2000)
    assert curve[:, 0].mean() == pytest.approx(0.7, abs=0.02)  # the one that came first
    assert curve[:, 1].mean() < 0.85 and curve[:, -1].mean() > 0.895
    assert (tuned_online(scores, repeats=5) == tuned_online(scores, repeats=5)).all()
    shifted = tuned_online(scores - 5, episodes=300, repeats=2000)
    np.testing.assert_allclose(shifted, curve - 5)  # nothing stands for what was not tried


@pytest.mark.parametrize(
    ("scores", "settings"),
    [([1.0], {}), (np.zeros((0, 3)), {}), ([[np.nan]], {}), ([[1.0]], {"episodes": 0}), ([[1.0]], {"policies": 0})],
)
def test_tuning_refuses_what_is_no_table(scores, settings):
    with pytest.raises(ValueError, match="tuned_online"):
        tuned_online(scores, **settings)


def test_what_is_told_of_scores():
    """The statistic and its interval, as a phrase and as two cells of a table."""
    scores = np.array([1.0, 2.0, 3.0, 10.0])
    low, high = bootstrap_interval(scores)
    assert told(scores) == f"2.50 ({low:.2f} to {high:.2f})"
    assert told(list(scores), "+.1f", cells=True) == f"+2.5 | {low:+.1f} to {high:+.1f}"
    low, high = bootstrap_interval(scores, np.mean, 0.5, 200, seed=3)
    assert told(scores, ".0f", np.mean, confidence=0.5, resamples=200, seed=3) == f"4 ({low:.0f} to {high:.0f})"
    assert told(np.full((3, 2), 7.0)) == "7.00 (7.00 to 7.00)"

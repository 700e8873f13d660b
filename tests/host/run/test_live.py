"""The curve of a notebook: what it draws, and that it stays quiet where there is no notebook."""

import sys
import types

import numpy as np
import pytest

from jaxrl.host.run.live import LiveCurve


def row(step, value):
    return {"update": step // 8, "step": step, "episode_return": np.asarray(value), "loss": np.asarray(1.0)}


def test_it_draws_the_mean_over_seeds_and_the_seeds():
    curve = LiveCurve()
    for step, value in ((8, [1.0, 3.0]), (16, [np.nan, 5.0]), (24, [np.nan, np.nan])):
        curve(step // 8, row(step, value))
    (axes,) = curve.figure().axes
    *seeds, mean = (line.get_ydata() for line in axes.lines)
    np.testing.assert_array_equal(mean, [2.0, 5.0])  # in the third call no episode ended
    np.testing.assert_array_equal(seeds[0], [1.0])
    np.testing.assert_array_equal(seeds[1], [3.0, 5.0])
    assert axes.lines[-1].get_xdata().tolist() == [8, 16]
    assert axes.get_ylabel() == "episode return"


def test_a_single_run_is_one_line_and_nothing_yet_is_none():
    curve = LiveCurve("loss")
    assert curve.figure().axes[0].lines[0].get_xdata().size == 0
    curve(1, row(8, 2.0))
    assert len(curve.figure().axes[0].lines) == 1


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="metric='retrun': the rows have episode_return, loss"):
        LiveCurve("retrun")(1, row(8, 2.0))


def test_a_notebook_has_one_picture_that_is_drawn_again(monkeypatch):
    pictures = []

    class Handle:
        def update(self, picture):
            pictures.append(picture._repr_png_())

    def display(picture, display_id):
        assert display_id is True
        pictures.append(picture._repr_png_())
        return Handle()

    module = types.ModuleType("IPython")
    module.get_ipython, module.version_info = lambda: object(), (9, 0)  # matplotlib asks for the latter
    shown = types.ModuleType("IPython.display")
    shown.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    curve = LiveCurve()
    for step in (8, 16, 24):
        curve(step // 8, row(step, float(step)))
    assert len(pictures) == 3 and all(p.startswith(b"\x89PNG") for p in pictures) and pictures[0] != pictures[2]


def test_outside_a_notebook_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "IPython", None)  # as if it were not installed
    curve = LiveCurve()
    curve(1, row(8, 2.0))
    assert capsys.readouterr().out == "" and curve.steps == [8]


def test_a_call_of_fit_in_which_no_row_was_completed_adds_no_point():
    curve = LiveCurve()
    curve(1, {})
    curve(2, row(16, 1.0))
    curve(3, row(16, 1.0))
    assert curve.steps == [16]

"""`benchmarks/history.py`: what it names as slower, what it compares with, its page; one of its measurements."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def history(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("history")


def row(cpu, date, **ratios):
    return {"commit": "abc", "machine": {"cpu": cpu, "date": date, "jax": "0.10.2", "load": 0.5}, "ratios": ratios}


def test_a_tenth_less_is_named_and_a_little_less_is_not(history):
    before = {"a": 2.0, "b": 1.0, "gone": 1.0}
    (line,) = history.slower({"a": 1.79, "b": 0.91, "new": 0.1}, before)
    assert line.startswith("a: 1.79, which was 2")


def test_it_compares_with_the_last_five_rows_of_the_same_processor(history):
    rows = [row("x", "1", a=100.0), *(row("x", str(i), a=float(i)) for i in range(5)), row("y", "9", a=50.0, b=1.0)]
    assert history.usual(rows, "x") == {"a": 2.0}
    assert history.usual(rows, "y") == {"a": 50.0, "b": 1.0} and history.usual(rows, "z") == {}


def test_the_page_says_the_last_row_and_the_picture_is_drawn(history, tmp_path):
    rows = [row("x", "2026-01-01", a=1.0), row("x", "2026-01-02", a=1.5, b=0.25)]
    text = history.page(rows)
    assert "| a | 1.5 | 1 | 2 |" in text and "| b | 0.25 | 0.25 | 1 |" in text and "2026-01-02, commit abc" in text
    history.draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_the_page_of_the_repository_is_that_of_its_history(history):
    assert history.PAGE.read_text() == history.page(history.history())


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("taskset")), reason="needs cc and taskset")
def test_a_checkout_beside_itself_is_measured(tmp_path):
    command = [sys.executable, "benchmarks/history.py", "--against", str(ROOT), "--only", "compile CartPole*"]
    done = subprocess.run([*command, "--rounds", "1"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr  # 1: the second run of two equal ones was a tenth slower
    assert "compile CartPole-v1" in done.stdout


@pytest.mark.slow
def test_every_measurement_is_a_number_above_zero(history, monkeypatch):
    monkeypatch.setattr(history, "IDS", ())
    for name in ("steps CartPole-v1", "steps ppo on CartPole-v1", "plain compile"):
        function, words = history.MEASURES[name]
        assert json.loads(json.dumps(function(*words))) > 0, name

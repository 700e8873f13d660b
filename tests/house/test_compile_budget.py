"""The compile budget lists what is far above its allowance, and fails nothing."""

import json
from types import SimpleNamespace

import pytest

from tests import compile_budget


@pytest.fixture
def budget(tmp_path, monkeypatch):
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"tests/a.py": {"programs": 10, "traces": 100}}))
    monkeypatch.setattr(compile_budget, "TABLE", table)

    def made(mode="warn", file="tests/a.py", **counts):
        plugin = compile_budget.CompileBudget(mode)
        plugin.files[file].update(counts)
        return plugin

    return made


@pytest.mark.parametrize(
    "file, counts, listed",
    [
        ("tests/a.py", {"programs": 11, "traces": 110}, False),
        ("tests/a.py", {"programs": 40, "traces": 220}, False),
        ("tests/a.py", {"programs": 41, "traces": 100}, True),
        ("tests/a.py", {"programs": 10, "traces": 221}, True),
        ("tests/new.py", {"programs": 20, "traces": 20}, False),
        ("tests/new.py", {"programs": 21, "traces": 20}, True),
    ],
)
def test_what_is_far_above_its_allowance_is_listed(budget, file, counts, listed):
    assert bool(budget(file=file, **counts).over()) == listed


@pytest.mark.parametrize("mode", ["warn", "report"])
def test_it_is_said_and_nothing_fails(budget, mode):
    said = []
    plugin = budget(mode, programs=1000, traces=1000)
    session = SimpleNamespace(config=SimpleNamespace(), exitstatus=pytest.ExitCode.OK)
    plugin.pytest_sessionfinish(session)
    plugin.pytest_terminal_summary(
        SimpleNamespace(section=said.append, write_line=lambda line, **colour: said.append(line))
    )
    assert session.exitstatus == pytest.ExitCode.OK
    assert "tests/a.py: makes 1000 programs and 1000 traces; its allowance is 10 programs and 100 traces." in said
    assert ("compile budget: the twenty dearest files" in said) == (mode == "report")

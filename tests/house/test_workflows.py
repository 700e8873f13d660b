"""GitHub's workflows: the nightly shards together are `make test-all`, actions are pinned by commit, rights are few."""

import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob(".github/workflows/*.yml"))}


@pytest.fixture
def selection(pytestconfig):
    """`tests/conftest.py` as pytest loaded it, whose hook selects tests by the flags."""
    return next(plugin for plugin in pytestconfig.pluginmanager.get_plugins() if hasattr(plugin, "SLICES"))


class Item:
    """As much of a collected test as the selection looks at."""

    def __init__(self, nodeid, *marks):
        self.nodeid, self.marks = nodeid, {mark: SimpleNamespace(kwargs={}) for mark in marks}

    def get_closest_marker(self, name):
        return self.marks.get(name)


ITEMS = [
    Item(f"tests/test_{file}.py::test_{n}[{marks}]", *marks)
    for file in "abcdef"
    for n in range(40)
    for marks in [(), ("optimised",), ("slow",), ("slow", "light")]
]


def recipe(target):
    """The flags of each pytest call of a Makefile target."""
    text = (ROOT / "Makefile").read_text()
    lines = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.M)
    assert lines, target
    return [line.strip() for line in lines[1].splitlines() if re.match(r"\s*\$\((LIGHT|OPTIMISED)\)", line)]


def run_by(call, shard, selection):
    """Ids of the tests that a call such as `$(LIGHT) --slice 3` runs, of `ITEMS`."""
    part = "" if shard is None else '-m "not slow"' if shard == "quick" else f"--slice {shard}"
    words = shlex.split(call.replace("$(PART)", part))
    options = {"light": words[0] == "$(LIGHT)", "optimised": words[0] == "$(OPTIMISED)"}
    options["slice"] = int(words[words.index("--slice") + 1]) if "--slice" in words else None
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    items = [item for item in ITEMS if "not slow" not in words or "slow" not in item.marks]
    selection.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda name: options[name[2:]], hook=hook), items)
    return [item.nodeid for item in items]


def test_the_shards_together_are_all_tests_each_once(selection):
    shards = WORKFLOWS["nightly.yml"]["jobs"]["shard"]["strategy"]["matrix"]["shard"]
    assert shards == ["quick", *range(selection.SLICES)]
    ran = [id for shard in shards for call in recipe("test-shard") for id in run_by(call, shard, selection)]
    everything = [id for call in recipe("test-all") for id in run_by(call, None, selection)]
    assert sorted(ran) == sorted(everything) == sorted(item.nodeid for item in ITEMS)
    assert all(run_by(call, shard, selection) for shard in shards for call in recipe("test-shard"))


def test_a_shard_runs_with_what_all_tests_run_with():
    text = (ROOT / "Makefile").read_text()
    needs = {target: re.search(rf"^{target}: (.+)$", text, re.M) for target in ("test-all", "test-shard")}
    assert needs["test-all"] and needs["test-shard"] and needs["test-all"][1] == needs["test-shard"][1]
    assert [call.replace(" $(PART)", "") for call in recipe("test-shard")] == recipe("test-all")


def test_it_runs_every_night_and_by_hand():
    when = WORKFLOWS["nightly.yml"][True]  # YAML 1.1 reads `on` so
    assert re.fullmatch(r"\d+ \d+ \* \* \*", when["schedule"][0]["cron"]) and "workflow_dispatch" in when
    assert "make test-shard SHARD=${{ matrix.shard }}" in str(WORKFLOWS["nightly.yml"]["jobs"]["shard"]["steps"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit(name):
    for line in re.findall(r"uses: (.+)", (ROOT / ".github/workflows" / name).read_text()):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), f"{name}: {line}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_rights_are_few(name):
    rights = WORKFLOWS[name]["permissions"]
    assert rights == {"contents": "write" if name == "docs.yml" else "read"}, "docs.yml pushes the site's branch"


def test_the_oldest_jax_that_is_tried_is_the_oldest_that_is_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = next(word.partition(">=")[2] for word in project["dependencies"] if word.startswith("jax>="))
    tried = [row["jax"] for row in WORKFLOWS["nightly.yml"]["jobs"]["jax"]["strategy"]["matrix"]["include"]]
    assert "" in tried and any(jax == least or jax.startswith(f"{least}.") for jax in tried), (least, tried)
    extras = {row["extra"] for row in WORKFLOWS["nightly.yml"]["jobs"]["extras"]["strategy"]["matrix"]["include"]}
    assert extras <= project["optional-dependencies"].keys()

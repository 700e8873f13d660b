"""`tools/files_to_open.py` on a small made-up project, and on this one."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("files_to_open", ROOT / "tools" / "files_to_open.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

IDS = """
ALGORITHMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alone": ("on_policy.alone", ("Box",)),
    "late": ("on_policy.late", ()),
    "typed": ("typed", ()),
    "lazy": ("lazy", ()),
    "by_package": ("by_package", ()),
    "by_name": Entry(space="Box", module="by_name"),
}
CURRICULA = {"walk": ("curricula.walk", "levels")}
"""
FILES = {
    "jaxrl/__init__.py": "from jaxrl.core import train\n",
    "jaxrl/core.py": "from jaxrl import hidden\n",
    "jaxrl/hidden.py": "",
    "jaxrl/loop.py": "from jaxrl.parts import step\nfrom jaxrl import loop\n",
    "jaxrl/unread.py": "",
    "jaxrl/parts/__init__.py": "from .inner import step\nfrom jaxrl.parts.other import glue as stuck\n",
    "jaxrl/parts/inner.py": "# one\n# two\n",
    "jaxrl/parts/other.py": "",
    "algos/ids.py": IDS,
    "algos/__init__.py": "",
    "algos/on_policy/__init__.py": "",
    "algos/curricula/walk.py": "",
    "algos/on_policy/alone.py": "from jaxrl import core\n\nif __name__ == '__main__':\n    import jaxrl.unread\n",
    "algos/on_policy/late.py": "class A:\n    def f(self):\n        def g():\n            from jaxrl.loop import go\n",
    "algos/typed.py": (
        "from typing import TYPE_CHECKING\n"
        "from jaxrl.parts.other import Kind, Other\n"
        "if TYPE_CHECKING:\n    from jaxrl import unread\n"
        "def f(x: Kind) -> 'Other': ...\n"
    ),
    "algos/lazy.py": "from jaxrl.algos import alone, walk\n",
    "algos/by_package.py": "from jaxrl import parts\nimport jaxrl\nparts.stuck(jaxrl.train)\n",
    "algos/by_name.py": "from .typed import f\nfrom jaxrl import registry\nregistry.get_algo('late')\n",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("algos", "envs"):
        (tmp_path / "jaxrl" / name).symlink_to(f"../{name}")
    return tool.Project(tmp_path, {"jaxrl/core.py": "It trains.", "jaxrl/gone/*": "Nothing."})


def others(project, name):
    return {row.algorithm: set(row.others) for row in tool.rows(project)}[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alone", set()),  # neither what a contract imports, nor what only `python file.py` does
        ("late", {"jaxrl/loop.py", "jaxrl/parts/inner.py"}),  # in a function; through a package
        ("typed", {"jaxrl/parts/other.py"}),  # not what only type checkers see
        ("lazy", {"algos/on_policy/alone.py", "algos/curricula/walk.py"}),  # by the table of names
        ("by_package", {"jaxrl/parts/other.py"}),  # what is read of a package
        (
            "by_name",
            {
                "algos/typed.py",
                "jaxrl/parts/other.py",
                "algos/on_policy/late.py",
                "jaxrl/loop.py",
                "jaxrl/parts/inner.py",
            },
        ),
    ],
)
def test_what_is_opened(project, name, expected):
    assert others(project, name) == expected


def test_lines_and_their_summary(project):
    late = next(row for row in tool.rows(project) if row.algorithm == "late")
    assert (late.own, late.files, late.total) == (4, 3, 4 + 2 + 2)
    said = "\n".join(tool.summary(project, tool.rows(project)))
    assert "1 of 6 algorithms need one file, 2 two, 3 more; the most is 6 (by_name)" in said
    assert f"the longest is algos/ids.py ({IDS.count(chr(10))}), 0 are above 500" in said
    assert project.mere_types({project.algorithms()["typed"]}) == (1, 1)


def test_a_contract_may_be_opened(project, tmp_path):
    opened = tool.Project(tmp_path, project.contracts, opened=("jaxrl/core.py",))
    assert others(opened, "alone") == {"jaxrl/core.py", "jaxrl/hidden.py"}


def test_markdown_names_contracts_that_are_there(project):
    text = "\n".join(tool.shown(project, tool.rows(project), markdown=True))
    assert "| `typed` | 5 | 2 | 5 | `jaxrl/parts/other.py` |" in text
    assert "- `jaxrl/core.py`: It trains." in text and "gone" not in text


def test_real_folders_in_the_package(project, tmp_path):
    before = tool.rows(project)
    (tmp_path / "jaxrl" / "algos").unlink()
    (tmp_path / "algos").rename(tmp_path / "jaxrl" / "algos")
    moved = tool.Project(tmp_path, project.contracts)
    assert tool.rows(moved) == before


def test_every_algorithm_of_this_project_has_its_file():
    from jaxrl import registry

    project = tool.Project(ROOT)
    assert sorted(project.algorithms()) == registry.list_algos()
    assert all(row.own > 30 for row in tool.rows(project))

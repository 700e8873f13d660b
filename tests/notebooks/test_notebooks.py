"""The notebooks run from top to bottom, each cell twice, with warnings as errors, at small budgets; they are built."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import pytest
from matplotlib.figure import Figure

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
SOURCES = sorted(NOTEBOOKS.glob("[0-9]*.py"))

SMALL = {
    "01": {"TOTAL_STEPS": 1024},
    "02": {"TOTAL_STEPS": 512, "RATES": (1e-4, 1e-3), "LENGTHS": (0.5, 1.0), "SEEDS": 2},
    "03": {"TOTAL_STEPS": 4096},
    "04": {"TOTAL_STEPS": 1024, "SEEDS": 2},
    "05": {"TOTAL_STEPS": 2048},
    "06": {"TOTAL_STEPS": 4096, "STEPS": 20},
    "07": {"UPDATES": 2, "PIECES": 2, "SEEDS": 1, "LEVELS": 500, "CAR_UPDATES": 2, "CAR_SEEDS": 1, "CARS": 20},
    "08": {"UPDATES": 2, "LEVELS": 2, "RATES": ((40.0,), (4.0,)), "META_UPDATES": 1, "PUPIL_UPDATES": 20},
    "09": {"TOTAL_STEPS": 16384},
    "10": {"NUM_ENVS": 64},
    "11": {"TOTAL_STEPS": 1408, "SEEDS": 1},
    "12": {"EVALUATIONS": 200},
    "13": {"TOTAL_STEPS": 20480, "PAIRS": (5, 20)},
}
"""In place of what a notebook's cell tagged "parameters" says."""

PICTURES = {
    "01": 3,
    "02": 1,
    "03": 2,
    "04": 1,
    "05": 4,
    "06": 4,
    "07": 4,
    "08": 2,
    "09": 0,
    "10": 0,
    "11": 3,
    "12": 4,
    "13": 3,
}
"""How many figures and films a notebook shows, without those that grow and are drawn again in their place."""

NEEDS = {"10": "libtpu"}
"""A package that a notebook installs, and the tests do not."""


def cells(path):
    """`(tags, source)` of the code cells of a source in percent format, which jupytext reads in the same way."""
    parts = re.split(r"^# %%(.*)$", path.read_text(), flags=re.M)[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" not in head:
            yield head, body


def shown(value):
    """What a notebook does with a cell's last value: its picture is made.

    Figures that pyplot knows are shown in any case, others by a method of their own.
    """
    if isinstance(value, Figure) and getattr(value, "number", None) is None:
        assert value._repr_png_().startswith(b"\x89PNG"), "IPython would print <Figure size ...>"
    elif hasattr(value, "_repr_html_"):
        assert value._repr_html_().startswith("<")


def run(source, name, scope):
    """As a cell: the value of a last expression is shown."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    if last is not None:
        shown(eval(compile(ast.Expression(last.value), name, "eval"), scope))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_runs_and_each_cell_may_be_run_twice(path, tmp_path, monkeypatch):
    number = path.stem[:2]
    if number in NEEDS and importlib.util.find_spec(NEEDS[number]) is None:
        pytest.skip(f"needs {NEEDS[number]}")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    module = type(sys)(f"notebook_{number}")  # whose classes and functions must be found by their module's name
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scope, small = vars(module), SMALL[number]
    for i, (head, source) in enumerate(cells(path)):
        for _ in range(2):
            run(source, f"{path.name}, code cell {i}", scope)
            if "parameters" in head:
                assert small.keys() <= scope.keys(), "the test sets what the notebook has"
                scope.update(small)
    plt.close("all")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_there(path):
    code = "\n".join(source for _, source in cells(path))
    imports = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), path.name, "exec"), {})


def test_there_is_a_small_budget_for_each_notebook():
    assert sorted(SMALL) == [path.stem[:2] for path in SOURCES]


def test_the_notebooks_are_what_their_sources_make(monkeypatch):
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    import build

    assert [path.stem for path in build.sources()] == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    for source in build.sources():
        stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
        assert build.text(build.bare(stored)) == build.text(build.notebook(source)), (
            "old: python notebooks/build.py --run"
        )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_ships_with_its_pictures(path):
    """For who reads it on GitHub: all that it promises, not large, and no object printed in the place of a picture."""
    stored = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    outputs = [output for cell in stored.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [out for out in outputs if out.output_type != "stream"]
    pictures = [out for out in shown if "image/png" in out.data or "<img" in out.data.get("text/html", "")]
    assert len(pictures) == PICTURES[path.stem[:2]]
    assert outputs, "never run: python notebooks/build.py --run"
    assert all(len(text) < 4_000 and "<Figure" not in text and "object at 0x" not in text for text in texts(outputs))
    assert path.with_suffix(".ipynb").stat().st_size < 1_000_000


def texts(outputs):
    return [out.text if out.output_type == "stream" else out.data.get("text/plain", "") for out in outputs]


def test_each_notebook_has_a_badge_and_installs_the_package(monkeypatch):
    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    import build

    for source in build.sources():
        first, install = build.notebook(source).cells[:2]
        assert f"/notebooks/{source.stem}.ipynb" in first.source and first.source.startswith("# ")
        assert "pip" in install.source and "[tpu]" in install.source and "[cuda]" in install.source
        assert f"/{build.REPOSITORY}" in install.source
        compile(install.source, source.name, "exec")


def test_the_list_of_notebooks_is_complete():
    text = (NOTEBOOKS / "README.md").read_text()
    assert [name for name in re.findall(r"\]\((\d\d_\w+)\.ipynb\)", text)] == [path.stem for path in SOURCES]

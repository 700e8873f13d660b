"""Writes the notebooks, `*.ipynb`, from their sources, `*.py` in jupytext's percent format; `--check` compares only.

    python notebooks/build.py

The first two cells of every notebook, its badge and the installation, are written here and not in the sources.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).parent
REPOSITORY = "jaxrl/jaxrl"
"""On GitHub; where a badge leads and what a notebook installs."""

BADGE = """[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb)"""

INSTALL = """\
# Installs jaxrl where it is not installed, on Colab in about a minute. For a GPU or TPU choose it first, under
# Runtime > Change runtime type: what is installed then has jax's plug-in for it. On your own machine: pip install
# jaxrl, jaxrl[cuda] or jaxrl[tpu].
import importlib.util
import pathlib
import shutil
import subprocess
import sys

if importlib.util.find_spec("jaxrl") is None:
    tpu = any(pathlib.Path("/dev").glob("accel*")) or pathlib.Path("/dev/vfio").exists()
    extra = "[cuda]" if shutil.which("nvidia-smi") else "[tpu]" if tpu else ""
    source = f"jaxrl{{extra}} @ git+https://github.com/{repository}"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], check=True)
"""


def sources() -> list[Path]:
    return sorted(path for path in HERE.glob("[0-9]*.py"))


def notebook(source: Path) -> nbformat.NotebookNode:
    """What Jupyter opens: the source's cells behind the badge and the installation, without outputs."""
    made = jupytext.read(source)
    badge = BADGE.format(repository=REPOSITORY, name=source.stem)
    first, rest = made.cells[0], made.cells[1:]
    title, _, text = first.source.partition("\n")
    if not re.fullmatch(r"# .+", title):
        raise ValueError(f"{source.name}: its first cell has no title.")
    first.source = f"{title}\n\n{badge}\n{text}".rstrip()
    install = nbformat.v4.new_code_cell(INSTALL.format(repository=REPOSITORY).rstrip())
    made.cells = [first, install, *rest]
    for i, cell in enumerate(made.cells):
        cell["id"] = f"cell-{i}"
        cell["metadata"] = {k: v for k, v in cell["metadata"].items() if k == "tags"}
    made["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    made["nbformat"], made["nbformat_minor"] = 4, 5
    nbformat.validate(made)
    return made


def text(source: Path) -> str:
    return nbformat.writes(notebook(source)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which are not what their source makes")
    check = parser.parse_args().check
    old = []
    for source in sources():
        path, wanted = source.with_suffix(".ipynb"), text(source)
        if check and (not path.exists() or path.read_text() != wanted):
            old.append(path.name)
        elif not check:
            path.write_text(wanted)
    if old:
        print(f"old: {', '.join(old)}; run python notebooks/build.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())

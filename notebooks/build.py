"""Writes the notebooks, `*.ipynb`, from their sources, `*.py` in jupytext's percent format; `--check` compares only.

    pip install nbclient ipykernel
    python notebooks/build.py --run            # runs all of them, minutes, and keeps their pictures
    python notebooks/build.py --run 06 07      # these alone
    python notebooks/build.py                  # runs none; outputs stay where no code cell changed

The first two cells of every notebook, its badge and the installation, are written here and not in the sources. Pictures
are kept small: PNG of 128 colours, films of few frames. Of other outputs texts alone are kept.
"""

from __future__ import annotations

import argparse
import base64
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from PIL import Image, ImageSequence

HERE = Path(__file__).parent
REPOSITORY = "jaxrl/jaxrl"
"""On GitHub; where a badge leads and what a notebook installs."""

BADGE = """[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb)"""

INSTALL = """\
# Installs jaxrl where it is not installed, on Colab in about a minute. For a GPU or TPU choose it first, under
# Runtime > Change runtime type: what is installed then has jax's plug-in for it. On your own machine, in a
# checkout: pip install -e . (or .[cuda], .[tpu]).
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
    """What Jupyter opens: the source's cells behind the badge and the installation, not yet run."""
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


def small_png(data: bytes) -> bytes:
    """The picture in 128 colours, at most 760 pixels wide."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    if picture.width > 760:
        picture = picture.resize((760, round(picture.height * 760 / picture.width)), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(held, "PNG", optimize=True)
    return held.getvalue()


def small_gif(data: bytes, most: int = 200_000) -> bytes:
    """The film at most 320 pixels wide, of every second, third, ... frame, as slow as before, until it is below `most`
    bytes."""
    film = Image.open(io.BytesIO(data))
    frames, shown = [], []
    for frame in ImageSequence.Iterator(film):
        shown.append(frame.info.get("duration", 40))
        frame = frame.convert("RGB")
        if frame.width > 320:
            frame = frame.resize((320, round(frame.height * 320 / frame.width)), Image.Resampling.LANCZOS)
        frames.append(frame.quantize(48, dither=Image.Dither.NONE))
    for every in range(1, len(frames) + 1):
        times = [sum(shown[i : i + every]) for i in range(0, len(shown), every)]
        held, (first, *rest) = io.BytesIO(), frames[::every]
        first.save(held, "GIF", save_all=True, append_images=rest, duration=times, loop=0)
        if len(held.getvalue()) <= most:
            break
    return held.getvalue()


def small(outputs: list[Any]) -> list[Any]:
    """What a reader looks at: pictures, and texts where there is no picture."""
    kept = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                kept.append(output)
            continue
        data = output.get("data", {})
        film = re.search(r"data:image/gif;base64,([A-Za-z0-9+/=]+)", data.get("text/html", ""))
        if "image/png" in data:
            png = small_png(base64.b64decode(data["image/png"]))
            data = {"image/png": base64.b64encode(png).decode() + "\n"}
        elif film:
            gif = base64.b64encode(small_gif(base64.b64decode(film[1]))).decode()
            data = {"text/html": f'<img alt="an episode" src="data:image/gif;base64,{gif}">'}
        elif "matplotlib" in data.get("text/plain", "matplotlib"):  # what a drawing function handed back
            continue
        kept.append(nbformat.v4.new_output("display_data", data))
    return kept


def run(made: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with what its cells showed."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(made, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = small(cell.outputs), None
            cell["metadata"] = {k: v for k, v in cell["metadata"].items() if k == "tags"}
    made["metadata"]["language_info"] = {"name": "python"}
    return made


def bare(made: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without outputs."""
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    return made


def kept(path: Path, made: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """`made` with the outputs that are stored at `path`, where all of its code is still what showed them."""

    def code(of: nbformat.NotebookNode) -> list[Any]:
        return [cell for cell in of.cells if cell.cell_type == "code"]

    stored = nbformat.read(path, as_version=4) if path.exists() else made
    if [cell.source for cell in code(stored)] == [cell.source for cell in code(made)]:
        for cell, old in zip(code(made), code(stored), strict=True):
            cell.outputs = old.outputs
    return made


def text(made: nbformat.NotebookNode) -> str:
    return nbformat.writes(made) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which are not what their source makes")
    parser.add_argument("--run", nargs="*", metavar="NUMBER", help="run these, default all, and keep their pictures")
    flags = parser.parse_args()
    old = []
    for source in sources():
        path, made = source.with_suffix(".ipynb"), notebook(source)
        if flags.check:
            if not path.exists() or text(bare(nbformat.read(path, as_version=4))) != text(made):
                old.append(path.name)
        elif flags.run is not None and (not flags.run or source.stem[:2] in flags.run):
            print(source.stem, flush=True)
            path.write_text(text(run(made)))
        else:
            path.write_text(text(kept(path, made)))
    if old:
        print(f"old: {', '.join(old)}; run python notebooks/build.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())

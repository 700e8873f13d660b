"""A stored number of a study that keeps results in files is measured again: it has to come out as it is stored.

A study whose numbers no longer come from its program is a wrong page. Each cell runs in a process of its own, in the
folder of its study and with XLA's usual options, as the study's command does; `--light` does not reach it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
from stored_cells import CELLS, EXCEPTIONS, Cell  # noqa: E402

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
CHANCE = 4.0
"""Standard errors that two means of seeds may be apart."""


BEGIN = """
import json, sys
from pathlib import Path

root, file, code = sys.argv[1:]
sys.path.insert(0, root)
import jaxrl  # of this checkout
import jax, jax.numpy as jnp, numpy as np

sys.path[0] = str(Path.cwd())
sys.argv = ["run.py"]
import run

names = {"Path": Path, "run": run, "jaxrl": jaxrl, "jax": jax, "jnp": jnp, "np": np}
names["r"] = json.loads(Path(file).read_text())
exec(code, names)
again, stored = (np.asarray(names[x], float).ravel().tolist() for x in ("again", "stored"))
print(json.dumps([again, stored]))
"""


def folder_of(study: str) -> str:
    """Of a name of `CELLS`: a folder of experiments, or that and, after a comma, a part of the study."""
    return study.split(", ")[0]


def measured(study: str, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """`(again, stored)` of a cell, flat."""
    drop = ("PYTHONPATH", "JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    env = {name: value for name, value in os.environ.items() if name not in drop}
    command = [sys.executable, "-c", BEGIN, str(EXPERIMENTS.parent), cell.file, cell.code]
    env |= {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
    done = subprocess.run(command, env=env, cwd=EXPERIMENTS / folder_of(study), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    again, stored = json.loads(done.stdout.splitlines()[-1])
    return np.array(again), np.array(stored)


def apart(cell: Cell, again: np.ndarray, stored: np.ndarray) -> str:
    """What differs by more than the cell allows; empty if nothing does."""
    if cell.tolerance is not None:
        if again.shape != stored.shape:
            return f"{again.size} numbers, {stored.size} are stored"
        wrong = ~(np.abs(again - stored) <= cell.tolerance + cell.relative * np.abs(stored))
        return f"{again[wrong][:5]}, stored {stored[wrong][:5]}" if wrong.any() else ""
    error = np.hypot(*(x.std(ddof=1) / x.size**0.5 for x in (again, stored)))
    near = abs(again.mean() - stored.mean()) <= CHANCE * error + 1e-6 * abs(stored.mean())
    return "" if near else f"a mean of {again.mean():.4g}, stored {stored.mean():.4g}, standard error {error:.2g}"


def test_every_study_with_stored_results_is_measured_again_or_excused():
    kept = {path.parent.name for kind in ("json", "csv", "npz") for path in EXPERIMENTS.glob(f"*/*.{kind}")}
    assert sorted(kept) == sorted({folder_of(study) for study in (*CELLS, *EXCEPTIONS)})
    assert not {folder_of(study) for study in CELLS} & set(EXCEPTIONS)


def test_what_is_apart_is_told():
    seeds = np.array([1.0, 2.0, 3.0, 4.0])
    assert not apart(Cell(""), seeds, seeds + 0.5) and "stored 9" in apart(Cell(""), seeds, seeds + 6.5)
    assert not apart(Cell("", tolerance=0.1), seeds, seeds + 0.05)
    assert "[4.]" in apart(Cell("", tolerance=0.1), seeds, np.array([1.0, 2.0, 3.0, 5.0]))
    assert apart(Cell("", tolerance=0.1), np.array([np.nan]), np.array([1.0]))  # a flight that crashed
    assert "are stored" in apart(Cell("", tolerance=0.1), seeds, seeds[:2])


@pytest.mark.slow
@pytest.mark.parametrize("study", CELLS)
def test_a_stored_number_comes_out_again(study):
    again, stored = measured(study, CELLS[study])
    wrong = apart(CELLS[study], again, stored)
    assert not wrong, f"experiments/{folder_of(study)}/{CELLS[study].file}: {wrong}"

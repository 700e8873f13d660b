"""The archive of a run of quality diversity, or of the zoo, read back: which genome does what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithm import Algorithm
from jaxrl.host.run.recipe import load_run, read_recipe
from jaxrl.quality_diversity import behaviour, elites
from jaxrl.quality_diversity.elites import Cells
from jaxrl.zoo import PREFIX, Kept, load


class Found(NamedTuple):
    """An archive and the names of its descriptors."""

    archive: Cells
    names: tuple[str, ...]


def archive_in(algo: Algorithm, state: Any, run: Path) -> Found:
    """Of the state of a run. Raises ValueError for an algorithm that keeps none."""
    archive = getattr(state, "archive", None)
    if not isinstance(archive, Cells):
        raise ValueError(f"{run}: {algo.name} keeps no archive; algorithms of quality diversity do, as map_elites.")
    return Found(archive, behaviour.descriptor_of(algo.venv, algo.config).names)


def archive_of(run: Path, seed: int = 0, at: int | str | None = None) -> Found:
    """Of one seed of a run folder, at its newest whole checkpoint, at that of an update, or at the "best"; or of
    `zoo:NAME`.

    Raises RunFolderError, CheckpointError or ZooError, which say what is wrong with it, and ValueError for a seed that
    it has not and for an algorithm that keeps none.
    """
    if str(run).startswith(PREFIX):
        if at is not None:
            raise ValueError(f"--at {at}: of an archive of the zoo there is one alone.")
        algo, *_, archive = load(str(run).removeprefix(PREFIX))
        state = Kept((), jax.tree.map(lambda x: x[None], archive))
    else:
        algo, state, *_ = load_run(read_recipe(run), run, at)
    archives, names = archive_in(algo, state, run)
    seeds = len(archives.fitness)
    if not 0 <= seed < seeds:
        raise ValueError(f"--seed {seed}: the run has seeds 0 to {seeds - 1}.")
    return Found(jax.tree.map(lambda x: x[seed], archives), names)


def drawn(algo: Algorithm, state: Any, num_seeds: int | None, out: Path) -> Path | None:
    """A picture of the first seed's archive; None, and no picture, where there is none over two descriptors."""
    archive = getattr(state, "archive", None)
    if not isinstance(archive, Cells) or archive.centroids.shape[-1] != 2:
        return None
    from jaxrl.host.plotting import archive_picture

    first = archive if num_seeds is None else jax.tree.map(lambda x: x[0], archive)
    return archive_picture(first, out, archive_in(algo, state, out).names)


def cell_at(found: Found, place: Sequence[float]) -> int:
    """The number of the cell around these descriptors.

    Raises ValueError for a wrong number of them, a place outside the archive's box, and an empty cell.
    """
    archive, names = found
    words = f"--cell {' '.join(f'{x:g}' for x in place)}"
    if len(place) != len(names):
        raise ValueError(f"{words}: a number for each of the archive's descriptors, {' and '.join(names)}.")
    for name, x, low, high in zip(names, place, np.asarray(archive.low), np.asarray(archive.high), strict=True):
        if not low <= x <= high:
            raise ValueError(f"{words}: the archive is of {name} from {low:g} to {high:g}.")
    where = jnp.asarray(place, archive.low.dtype)
    cell = int(elites.cell_of(archive, where[None])[0])
    if not archive.filled[cell]:
        filled = np.flatnonzero(np.asarray(archive.filled))
        if not len(filled):
            raise ValueError(f"{words}: the archive is empty.")
        unit = (np.asarray(archive.descriptor)[filled] - np.asarray(where)) / np.asarray(archive.high - archive.low)
        near = np.asarray(archive.descriptor)[filled[np.argmin(np.sum(unit**2, -1))]]
        raise ValueError(f"{words}: that cell is empty; the nearest genome is at {' '.join(f'{x:.4g}' for x in near)}.")
    return cell


def policies_at(algo: Algorithm, state: Any, run: Path, place: Sequence[float], seed: int | None = None) -> Any:
    """The policies of the cells around `place`, one of each seed; printed is what each was found to do.

    Raises ValueError as `cell_at`, of the `seed` alone if one is named.
    """
    archives, names = archive_in(algo, state, run)
    seeds = len(archives.fitness)
    cells = np.zeros(seeds, int)
    for i in range(seeds) if seed is None else [seed] if 0 <= seed < seeds else []:
        archive = jax.tree.map(lambda x, i=i: x[i], archives)
        try:
            cells[i] = cell = cell_at(Found(archive, names), place)
        except ValueError as error:
            raise ValueError(f"seed {i}: {error}") from error
        did = ", ".join(f"{n} {x:.4g}" for n, x in zip(names, np.asarray(archive.descriptor[cell]), strict=True))
        print(f"seed {i}: cell {cell}, found at {did} with fitness {float(archive.fitness[cell]):.4g}")
    return jax.vmap(behaviour.policy_of)(state, jnp.asarray(cells))

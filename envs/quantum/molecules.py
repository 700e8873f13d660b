"""Hamiltonians of molecules on few qubits, of `hamiltonians.json`, which `tests/golden/make_hamiltonians.py` computes.

`H2-2` and `H2-4` are hydrogen with 2 and 4 qubits, `LiH-4` is lithium hydride with 4, each at several bond lengths.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .ids import MOLECULES

NAMES = MOLECULES
EQUILIBRIUM = {"H2-2": 0.7414, "H2-4": 0.7414, "LiH-4": 1.595}
"""The bond length [angstrom] of the task without curriculum."""


class Molecule(NamedTuple):
    """A Hamiltonian, the sum of coefficient times Pauli string, at L bond lengths."""

    paulis: tuple[str, ...]  # P strings, a letter for each qubit
    bond_length: np.ndarray  # (L,) angstrom, increasing
    ground_energy: np.ndarray  # (L,) Ha, the lowest eigenvalue
    coefficients: np.ndarray  # (L, P) Ha

    @property
    def num_qubits(self) -> int:
        return len(self.paulis[0])


@functools.cache
def molecule(name: str) -> Molecule:
    """The table of one of NAMES. Raises KeyError for another name."""
    row = json.loads((Path(__file__).parent / "hamiltonians.json").read_text())[name]
    return Molecule(tuple(row["paulis"]), *(np.array(row[k]) for k in Molecule._fields[1:]))

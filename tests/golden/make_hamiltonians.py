"""Makes `envs/quantum/hamiltonians.json`: molecules on 2 and 4 qubits, at several bond lengths.

    pip install pyscf==2.14.0 openfermion==1.8.1 openfermionpyscf==0.5
    python tests/golden/make_hamiltonians.py

Restricted Hartree-Fock orbitals in the basis STO-3G by PySCF, transformed by OpenFermion. H2-4: Jordan-Wigner, four
spin orbitals. H2-2: the encoding of Bravyi et al. (2017, arXiv:1701.08213), which leaves out two qubits whose values
the number of electrons of each spin fixes. LiH-4: the same, after the choice of orbitals of Kandala et al. (2017,
arXiv:1704.05018): 1s of lithium filled, the two 2p orbitals across the bond empty, so two electrons in three orbitals.

Stored for each length: coefficients [Ha] of the Pauli strings (qubit 0 is the first letter), and the lowest energy
[Ha], by exact diagonalisation. It must equal PySCF's full configuration interaction in the same orbitals, to 1e-8.
"""

import json
from pathlib import Path

import numpy as np
from openfermion import MolecularData, get_fermion_operator, get_sparse_operator, jordan_wigner
from openfermion.transforms import symmetry_conserving_bravyi_kitaev
from openfermionpyscf import run_pyscf
from pyscf import gto, mcscf, scf

PLACE = Path(__file__).parents[2] / "envs" / "quantum" / "hamiltonians.json"
HYDROGEN = (0.35, 0.5, 0.6, 0.7414, 0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5)
LITHIUM = (1.0, 1.2, 1.4, 1.595, 1.8, 2.0, 2.2, 2.5, 3.0, 3.4)
MOLECULES = {"H2-2": ("H", HYDROGEN), "H2-4": ("H", HYDROGEN), "LiH-4": ("Li", LITHIUM)}


def qubits_of(name: str, atom: str, length: float):
    """`(qubit operator, the lowest energy by PySCF)` of a molecule."""
    molecule = MolecularData([(atom, (0, 0, 0)), ("H", (0, 0, length))], "sto-3g", 1, 0)
    molecule = run_pyscf(molecule, run_scf=True)
    field = scf.RHF(gto.M(atom=f"{atom} 0 0 0; H 0 0 {length}", basis="sto-3g", verbose=0)).run()
    if atom == "H":
        operator = get_fermion_operator(molecule.get_molecular_hamiltonian())
        exact = mcscf.CASCI(field, 2, 2).kernel()[0]
        return (jordan_wigner(operator) if name == "H2-4" else symmetry_conserving_bravyi_kitaev(operator, 4, 2)), exact
    operator = molecule.get_molecular_hamiltonian(occupied_indices=[0], active_indices=[1, 2, 5])
    active = mcscf.CASCI(field, 3, 2)
    exact = active.kernel(active.sort_mo([2, 3, 6]))[0]
    return symmetry_conserving_bravyi_kitaev(get_fermion_operator(operator), 6, 2), exact


def main() -> None:
    table = {}
    for name, (atom, lengths) in MOLECULES.items():
        n = int(name[-1])
        rows, grounds = [], []
        for length in lengths:
            operator, exact = qubits_of(name, atom, length)
            ground = np.linalg.eigvalsh(get_sparse_operator(operator, n_qubits=n).toarray())[0]
            assert abs(ground - exact) < 1e-8, (name, length, ground, exact)
            terms = {}
            for factors, coefficient in operator.terms.items():
                letters = dict(factors)
                assert abs(coefficient.imag) < 1e-12
                terms["".join(letters.get(q, "I") for q in range(n))] = float(np.real(coefficient))
            rows.append(terms)
            grounds.append(float(ground))
        paulis = sorted(set().union(*rows))
        table[name] = {
            "paulis": paulis,
            "bond_length": lengths,
            "ground_energy": [round(x, 12) for x in grounds],
            "coefficients": [[round(row.get(p, 0.0), 12) for p in paulis] for row in rows],
        }
        print(name, len(paulis), "terms", grounds)
    PLACE.write_text(json.dumps(table).replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()

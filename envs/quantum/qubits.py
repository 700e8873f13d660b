"""Gates, noise and energies of a few qubits, by state vectors or density matrices in plain JAX.

Qubit 0 is the first letter of a Pauli string and the highest bit of a basis state's number. Every gate here is

    U(theta) = cos(theta / 2) A + sin(theta / 2) B

A rotation about the Pauli matrix P, R_P(theta) = exp(-i theta P / 2), has A = 1 and B = -i P; H has A = Z, B = X and
theta = pi / 2; X and CNOT are A, with theta = 0. All A and B permute basis states and multiply them by phases, so a
circuit whose gates are data is a few tables, a row for each gate, and derivatives by the angles are exact. Conventions
and channels: Nielsen and Chuang, "Quantum computation and quantum information", chapters 4 and 8.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Integer

ROTATIONS = ("RX", "RY", "RZ")
ONE_QUBIT = ("H", "X", *ROTATIONS)
PAULI = {
    "I": np.eye(2, dtype=complex),
    "X": np.array([[0, 1], [1, 0]], complex),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1, -1]).astype(complex),
}


class Gate(NamedTuple):
    name: str  # one of ONE_QUBIT, or CNOT
    qubits: tuple[int, ...]  # of CNOT: control, target

    def __str__(self) -> str:
        return f"{self.name} {' '.join(map(str, self.qubits))}"


class Gates(NamedTuple):
    """Tables of G gates on n qubits, D = 2^n; the last row is the identity, for empty places of a circuit.

    Row k of A (axis 1: 0) and of B (1) has one entry: `phases` in column `sources`.
    """

    sources: np.ndarray  # (G + 1, 2, D) int32
    phases: np.ndarray  # (G + 1, 2, D) complex
    touched: np.ndarray  # (G + 1, n) bool, the qubits a gate acts on
    rotates: np.ndarray  # (G + 1,) bool, whether its angle is free
    angle: np.ndarray  # (G + 1,) rad, theta where it is not


def on_qubits(matrices: dict[int, np.ndarray], num_qubits: int) -> np.ndarray:
    """The Kronecker product (D, D) with `matrices` (2, 2) on some qubits and the identity on the others."""
    product = np.eye(1, dtype=complex)
    for q in range(num_qubits):
        product = np.kron(product, matrices.get(q, PAULI["I"]))
    return product


def gates_on(num_qubits: int, names: tuple[str, ...]) -> list[Gate]:
    """Each gate of `names` on each qubit, CNOT on each ordered pair."""
    singles = [Gate(name, (q,)) for name in names if name != "CNOT" for q in range(num_qubits)]
    pairs = [(c, t) for c in range(num_qubits) for t in range(num_qubits) if c != t]
    return singles + [Gate("CNOT", pair) for pair in pairs if "CNOT" in names]


def parts(gate: Gate, num_qubits: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B (D, D) of a gate."""
    one, none = np.eye(2**num_qubits, dtype=complex), np.zeros((2**num_qubits, 2**num_qubits), complex)
    if gate.name in ROTATIONS:
        return one, -1j * on_qubits({gate.qubits[0]: PAULI[gate.name[1]]}, num_qubits)
    if gate.name == "H":
        z, x = (on_qubits({gate.qubits[0]: PAULI[letter]}, num_qubits) for letter in "ZX")
        return z, x
    if gate.name == "X":
        return on_qubits({gate.qubits[0]: PAULI["X"]}, num_qubits), none
    control, target = gate.qubits
    off, on = (np.diag([1.0 - bit, bit]).astype(complex) for bit in (0, 1))
    flip = on_qubits({control: on, target: PAULI["X"]}, num_qubits)
    return on_qubits({control: off}, num_qubits) + flip, none


def tables(gates: list[Gate], num_qubits: int) -> Gates:
    """The tables of `gates`."""
    none = np.eye(2**num_qubits, dtype=complex), np.zeros((2**num_qubits, 2**num_qubits), complex)
    both = np.array([*(parts(gate, num_qubits) for gate in gates), none])  # (G + 1, 2, D, D)
    sources = np.abs(both).argmax(-1)
    return Gates(
        sources.astype(np.int32),
        np.take_along_axis(both, sources[..., None], -1)[..., 0],
        np.array([[q in gate.qubits for q in range(num_qubits)] for gate in gates] + [[False] * num_qubits]),
        np.array([gate.name in ROTATIONS for gate in gates] + [False]),
        np.array([math.pi / 2 * (gate.name == "H") for gate in gates] + [0.0]),
    )


def pauli_strings(strings: tuple[str, ...]) -> np.ndarray:
    """The matrices (P, D, D) of Pauli strings."""
    return np.stack([on_qubits({q: PAULI[letter] for q, letter in enumerate(s)}, len(s)) for s in strings])


@jax.custom_vjp
def swapped(x: Complex[Array, "D ..."], sources: Integer[Array, " D"]) -> Complex[Array, "D ..."]:
    """`x[sources]` where `sources` swaps pairs, as all gates' do: so the derivative takes from `sources`, too, and does
    not scatter."""
    return x[sources]


swapped.defvjp(lambda x, sources: (x[sources], sources), lambda sources, slope: (slope[sources], None))


class Turn(NamedTuple):
    """A gate of a circuit, ready to be applied; with a leading axis L, all of them."""

    sources: Array  # (2, D)
    factors: Array  # (2, D) cos(theta / 2) times the phases of A, sin(theta / 2) times those of B


def turns(gates: Gates, circuit: Integer[Array, " L"], angles: Float[Array, " L"]) -> Turn:
    """The gates of a circuit: rows of `gates`, and the angles [rad] of those whose angle is free."""
    kind = jnp.result_type(angles.dtype, jnp.complex64)
    theta = jnp.where(jnp.asarray(gates.rotates)[circuit], angles, jnp.asarray(gates.angle, angles.dtype)[circuit])
    weights = jnp.stack([jnp.cos(theta / 2), jnp.sin(theta / 2)], 1)
    return Turn(jnp.asarray(gates.sources)[circuit], weights[:, :, None] * jnp.asarray(gates.phases, kind)[circuit])


def applied(turn: Turn, x: Complex[Array, "D ..."]) -> Complex[Array, "D ..."]:
    """U x."""
    factors = turn.factors.reshape(turn.factors.shape + (1,) * (x.ndim - 1))
    return factors[0] * swapped(x, turn.sources[0]) + factors[1] * swapped(x, turn.sources[1])


def state_vector(circuit: Turn) -> Complex[Array, " D"]:
    """The state after the gates of a circuit on |0...0>."""
    start = jnp.zeros_like(circuit.factors[0, 0]).at[0].set(1)
    return jax.lax.scan(lambda psi, turn: (applied(turn, psi), None), start, circuit)[0]


def density_matrix(
    circuit: Turn, touched: Float[Array, "L n"], depolarising: Float[Array, ""], damping: Float[Array, ""]
) -> Complex[Array, "D D"]:
    """The state after gates on |0...0>, each followed by both noise channels on the qubits that it touched.

    The noise comes after every gate, with probabilities `depolarising` and `damping` for each qubit.
    """
    D = circuit.factors.shape[-1]
    start = jnp.zeros((D, D), circuit.factors.dtype).at[0, 0].set(1)

    def gate(rho: Array, each: tuple[Turn, Array]) -> tuple[Array, None]:
        turn, on = each
        rho = applied(turn, applied(turn, rho).conj().T)  # U (U rho)^* = U rho U^*, as rho is Hermitian
        for q in range(touched.shape[1]):
            rho = damped(depolarised(rho, q, depolarising * on[q]), q, damping * on[q])
        return rho, None

    return jax.lax.scan(gate, start, (circuit, touched))[0]


def _blocks(rho: Complex[Array, "D D"], qubit: int) -> tuple[Array, Array, Array, Array]:
    """The four blocks of `rho` by the qubit's value before and after, as (L, R, L, R)."""
    left = 2**qubit
    x = rho.reshape(left, 2, -1, left, 2, rho.shape[0] // (2 * left))
    return x[:, 0, :, :, 0], x[:, 0, :, :, 1], x[:, 1, :, :, 0], x[:, 1, :, :, 1]


def _joined(off: Array, up: Array, down: Array, on: Array, shape: tuple[int, ...]) -> Array:
    rows = jnp.stack([jnp.stack([off, up], 3), jnp.stack([down, on], 3)], 1)
    return rows.reshape(shape)


def depolarised(rho: Complex[Array, "D D"], qubit: int, p: Float[Array, ""]) -> Complex[Array, "D D"]:
    """With probability p the qubit is replaced by a completely mixed one."""
    off, up, down, on = _blocks(rho, qubit)
    mean = (off + on) / 2
    return _joined(off + p * (mean - off), (1 - p) * up, (1 - p) * down, on + p * (mean - on), rho.shape)


def damped(rho: Complex[Array, "D D"], qubit: int, p: Float[Array, ""]) -> Complex[Array, "D D"]:
    """Amplitude damping: the qubit falls from 1 to 0 with probability p."""
    off, up, down, on = _blocks(rho, qubit)
    kept = jnp.sqrt(1 - p)
    return _joined(off + p * on, kept * up, kept * down, (1 - p) * on, rho.shape)


def energy_of_vector(psi: Complex[Array, " D"], hamiltonian: Complex[Array, "D D"]) -> Float[Array, ""]:
    """<psi|H|psi>, in the unit of H."""
    return jnp.real(jnp.sum(psi.conj() * (hamiltonian * psi).sum(-1)))


def energy_of_matrix(rho: Complex[Array, "D D"], hamiltonian: Complex[Array, "D D"]) -> Float[Array, ""]:
    """tr(rho H), in the unit of H."""
    return jnp.real(jnp.sum(rho * hamiltonian.T))

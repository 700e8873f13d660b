"""Circuit design: place gates, one a step, until a circuit of few qubits prepares the ground state of a molecule.

The task of Ostaszewski, Trenkwalder, Masarczyk, Scerri and Dunjko (2021), "Reinforcement learning for optimization of
variational quantum circuit architectures" (arXiv:2103.16089) and of Patel et al. (2024), "Curriculum reinforcement
learning for quantum architecture search under hardware errors" (arXiv:2402.03500): H2 on 2 or 4 qubits, LiH on 4.

A step places the chosen gate behind the others and then turns the angles of all rotations towards a lower energy
E = <H>: a new rotation gets the angle at which E is least, the others as they are (E is a + b cos + c sin of one angle,
so three energies tell; Ostaszewski, Grant and Benedetti 2021, arXiv:1905.09692); then all angles take
`num_gradient_steps` steps of gradient descent with exact derivatives, and the best of all that were seen are kept. The
authors run COBYLA in its place.

| observation | range | |
|---|---|---|
| `circuit` (max_gates, A) | 0, 1 | which gate is in each place, none in empty ones |
| `error` | -6 to 2 | log10 of (E - ground_energy) / Ha, clipped |
| `threshold` | -6 to 2 | log10 of threshold / Ha, clipped |
| `action_mask` (A,) | 0, 1 | not a gate that was the last one on all of its qubits; all where that leaves none |

Actions: `env.gate_list`: RX, RY, RZ on each qubit and CNOT on each ordered pair, or those of `gates`, which may have H
and X. Reward: `success_reward` where E - ground_energy is below `threshold`, else `failure_reward` for the last place
of the circuit, else (E_before - E) / |E_before - ground_energy|, clipped to [-1, 1]. Terminates in the first two cases.
`info`: `energy` [Ha], `num_gates`, `success`: whether the error is below `accuracy`, whatever the threshold is.

A level is the params: `generate` draws one of the bond lengths of `molecules.py`, `mutate` takes a neighbouring one.
With `noisy=True` the state is a density matrix, and each gate is followed by depolarising and amplitude damping of the
qubits it touches; optimisation and reward then see the noisy energy.

Deviations: the authors' observation has the gates by layers, and the bare energy; `ground_energy` is exact, not a lower
bound; no circuit is halted at random.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.canvas import BLUE, INK, ORANGE, PALE, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, require_positive, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete

from . import molecules, qubits

CHEMICAL_ACCURACY = 1.6e-3
"""Ha: 1 kcal/mol, the error that calculations of reaction rates bear."""


@pytree
class Params:
    coefficients: jax.Array  # (P,) Ha, of the molecule's Pauli strings
    ground_energy: jax.Array  # Ha, the lowest energy or a lower bound of it
    bond_length: jax.Array  # angstrom; only told
    max_steps: jax.Array = NO_LIMIT
    threshold: jax.Array = CHEMICAL_ACCURACY  # Ha above ground_energy, below which the circuit is good enough
    accuracy: jax.Array = CHEMICAL_ACCURACY  # Ha, of `info["success"]`
    success_reward: jax.Array = 5.0
    failure_reward: jax.Array = -5.0
    step_size: jax.Array = 0.5  # rad^2 / Ha, of gradient descent
    depolarising: jax.Array = 0.0  # probability for each gate and qubit
    damping: jax.Array = 0.0  # likewise


@pytree
class State:
    time: jax.Array  # steps since reset, which is the number of gates
    circuit: jax.Array  # (max_gates,) int32, gates by their actions; A in empty places
    angles: jax.Array  # (max_gates,) rad, 0 where there is none
    energy: jax.Array  # Ha


def least_angle(at_zero: Float[Array, ""], at_plus: Float[Array, ""], at_minus: Float[Array, ""]) -> Float[Array, ""]:
    """The angle [rad] at which a + b cos + c sin is least, of its values at 0, pi/2 and -pi/2; 0 where it is flat."""
    b = at_zero - (at_plus + at_minus) / 2
    c = (at_plus - at_minus) / 2
    flat = b**2 + c**2 < 1e-10  # in float32 the rest is rounding
    return jnp.where(flat, 0, jnp.arctan2(-c, jnp.where(flat, 1, -b)))


def optimised(
    energy: Callable[[Array], Array], angles: Float[Array, " L"], num_steps: int, step_size: Float[Array, ""]
) -> tuple[Float[Array, " L"], Float[Array, ""]]:
    """`(angles, energy)`: the best that gradient descent from `angles` meets in `num_steps` steps."""

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        now, best, least = carry
        value, slope = jax.value_and_grad(energy)(now)
        best = jnp.where(value < least, now, best)
        return (now - step_size * slope, best, jnp.minimum(value, least)), None

    start = angles, angles, energy(angles)
    (last, best, least), _ = jax.lax.scan(step, start, length=num_steps)
    final = energy(last)
    return jnp.where(final < least, last, best), jnp.minimum(final, least)


@dataclasses.dataclass(frozen=True)
class CircuitDesign(Environment):
    molecule: str = "H2-2"
    max_gates: int = 20
    num_gradient_steps: int = 10
    gates: tuple[str, ...] = ("RX", "RY", "RZ", "CNOT")
    noisy: bool = False
    id: str = dataclasses.field(default="CircuitDesign-H2-2-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"max_gates": (1, 200), "num_gradient_steps": (0, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {"molecule": molecules.NAMES, "gates": (*qubits.ONE_QUBIT, "CNOT")}
        for name, value in [("molecule", self.molecule), *(("gates", gate) for gate in self.gates)]:
            if value not in known[name]:
                near = difflib.get_close_matches(str(value), known[name], 1, 0) or known[name]
                allowed = ", ".join(known[name])
                raise ValueError(f"{self.id}: {name}={value!r} is none of {allowed}; did you mean {near[0]!r}?")
        if not self.gates or len(set(self.gates)) < len(self.gates):
            raise ValueError(f"{self.id}: gates={self.gates} must be different ones, at least one.")

    @property
    def gate_list(self) -> list[qubits.Gate]:
        """The gate of each action."""
        return qubits.gates_on(molecules.molecule(self.molecule).num_qubits, self.gates)

    @functools.cached_property
    def tables(self) -> qubits.Gates:
        return qubits.tables(self.gate_list, molecules.molecule(self.molecule).num_qubits)

    @property
    def default_params(self) -> Params:
        """The molecule at its equilibrium."""
        table = molecules.molecule(self.molecule)
        row = int(np.argmin(np.abs(table.bond_length - molecules.EQUILIBRIUM[self.molecule])))
        return strongly_typed(self._level(jnp.int32(row), Params(*[jnp.float32(0)] * 3)))

    # ---- level kit

    def _level(self, row: Integer[Array, ""], params: Params) -> Params:
        table = molecules.molecule(self.molecule)
        columns = (table.coefficients, table.ground_energy, table.bond_length)
        numbers = (jnp.asarray(x, jnp.result_type(float))[row] for x in columns)
        return params.replace(**dict(zip(("coefficients", "ground_energy", "bond_length"), numbers, strict=True)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """The molecule at one of its bond lengths, each at equal chance."""
        return self._level(jax.random.randint(key, (), 0, len(molecules.molecule(self.molecule).bond_length)), params)

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """The molecule at the next shorter or longer of its bond lengths; the same at an end."""
        lengths = molecules.molecule(self.molecule).bond_length
        row = jnp.argmin(jnp.abs(lengths - params.bond_length))
        move = 2 * jax.random.bernoulli(key).astype(row.dtype) - 1
        return self._level(jnp.clip(row + move, 0, len(lengths) - 1), params)

    def describe(self, params: Params) -> dict[str, Array]:
        return {"bond_length": params.bond_length}

    # ---- the task

    def energy(
        self, circuit: Integer[Array, " L"], angles: Float[Array, " L"], hamiltonian: Array, params: Params
    ) -> Float[Array, ""]:
        """The energy [Ha] of a circuit, with noise if the task has any."""
        turns = qubits.turns(self.tables, circuit, angles)
        if not self.noisy:
            return qubits.energy_of_vector(qubits.state_vector(turns), hamiltonian)
        touched = jnp.asarray(self.tables.touched, angles.dtype)[circuit]
        rho = qubits.density_matrix(turns, touched, params.depolarising, params.damping)
        return qubits.energy_of_matrix(rho, hamiltonian)

    def hamiltonian(self, params: Params) -> Array:
        """The matrix (D, D) [Ha]."""
        kind = jnp.result_type(params.coefficients.dtype, jnp.complex64)
        strings = qubits.pauli_strings(molecules.molecule(self.molecule).paulis)
        return jnp.tensordot(params.coefficients.astype(kind), jnp.asarray(strings, kind), 1)

    def initial(self, key: Array, params: Params) -> State:
        empty = jnp.full(self.max_gates, len(self.gate_list), jnp.int32)
        energy = jnp.real(self.hamiltonian(params)[0, 0])  # of |0...0>
        return State(jnp.int32(0), empty, jnp.zeros(self.max_gates, energy.dtype), energy)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        action = action.astype(jnp.int32)
        place = jnp.arange(self.max_gates) == state.time
        circuit = jnp.where(place, action, state.circuit)
        hamiltonian = self.hamiltonian(params)

        def energy(angles: Array) -> Array:
            return self.energy(circuit, angles, hamiltonian, params)

        turns = jnp.asarray([0, np.pi / 2, -np.pi / 2], state.angles.dtype) * jnp.asarray(self.tables.rotates)[action]
        angle = least_angle(*jax.vmap(lambda turn: energy(jnp.where(place, turn, state.angles)))(turns))
        angles = jnp.where(place, angle, state.angles)
        angles, lower = optimised(energy, angles, self.num_gradient_steps, params.step_size)
        error = lower - params.ground_energy
        reached, full = error < params.threshold, state.time >= self.max_gates - 1
        before = jnp.maximum(jnp.abs(state.energy - params.ground_energy), 1e-12)
        gain = jnp.clip((state.energy - lower) / before, -1, 1)
        reward = jnp.where(reached, params.success_reward, jnp.where(full, params.failure_reward, gain))
        info: dict[str, Any] = {"energy": lower, "num_gates": state.time + 1, "success": error < params.accuracy}
        after = state.replace(circuit=circuit, angles=angles, energy=lower)
        return Transition(after, reward, reached | full, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        actions = jnp.arange(len(self.gate_list))
        repeated = self._repeated(state.circuit)

        def scaled(x: Array) -> Array:
            return jnp.log10(jnp.clip(x, 1e-6, 1e2)).astype(jnp.float32)

        return {
            "circuit": (state.circuit[:, None] == actions).astype(jnp.float32),
            "error": scaled(state.energy - params.ground_energy),
            "threshold": scaled(params.threshold),
            "action_mask": ~repeated | repeated.all(),  # all False would leave nothing to do where nothing is over
        }

    def _repeated(self, circuit: Integer[Array, " L"]) -> Bool[Array, " A"]:
        """Whether each gate is the last one on all of its qubits, so that a second one would add nothing."""
        touched = jnp.asarray(self.tables.touched)[circuit]  # (L, n)
        places = jnp.where(touched, jnp.arange(self.max_gates)[:, None], -1)
        last = places.max(0)  # (n,) where each qubit was touched last, -1: nowhere
        on_last = jnp.where(last >= 0, circuit[last], -1)  # (n,) by which gate
        same = on_last == jnp.arange(len(self.gate_list))[:, None]
        return jnp.all(same | ~jnp.asarray(self.tables.touched)[:-1], -1)

    def observation_space(self, params: Params) -> Dict:
        A = len(self.gate_list)
        return Dict(
            {
                "circuit": Box(0, 1, (self.max_gates, A)),
                "error": Box(-6, 2, ()),
                "threshold": Box(-6, 2, ()),
                "action_mask": Box(0, 1, (A,), jnp.bool_),
            }
        )

    def action_space(self, params: Params) -> Discrete:
        return Discrete(len(self.gate_list))

    def validate(self, params: Params) -> None:
        require_positive(self, params, "threshold", "accuracy", "step_size")
        P = len(molecules.molecule(self.molecule).paulis)
        if (shape := np.shape(params.coefficients))[-1:] != (P,):
            raise ValueError(f"{self.id}: coefficients {shape} must be ({P},), one for each Pauli string.")
        for name in ("depolarising", "damping"):
            value = np.asarray(getattr(params, name))
            if np.any((value < 0) | (value > 1)):
                raise ValueError(f"{self.id}: {name}={value} must be in [0, 1], a probability.")
            if np.any(value > 0) and not self.noisy:
                raise ValueError(f"{self.id}: {name}={value} has no effect without noise; make it with noisy=True.")

    def render(self, state: State, params: Params) -> np.ndarray:
        """Wires from left to right, with the gates in their order."""
        wires, columns = molecules.molecule(self.molecule).num_qubits, max(6, int(state.time))
        canvas = Canvas(60 * columns + 60, 60 * wires + 50, columns + 1.0, (columns / 2 - 0.5, -wires / 2 + 0.9), WHITE)
        for q in range(wires):
            canvas.line([(-0.8, -float(q)), (columns - 0.2, -float(q))], 0.03, INK)
        for x, number in enumerate(np.asarray(state.circuit)[: int(state.time)]):
            name, on = self.gate_list[number]
            if name == "CNOT":
                canvas.line([(float(x), -float(on[0])), (float(x), -float(on[1]))], 0.05, ORANGE)
                canvas.circle((float(x), -float(on[0])), 0.12, ORANGE)
                canvas.circle((float(x), -float(on[1])), 0.26, ORANGE)
                canvas.text((x - 0.11, -float(on[1])), "X", WHITE, size=16)
                continue
            canvas.rectangle((x - 0.38, -on[0] - 0.32), (x + 0.38, -on[0] + 0.32), PALE)
            canvas.text((x - 0.2, -on[0] + 0.12), name, INK, size=15)
            if name in qubits.ROTATIONS:
                canvas.text((x - 0.3, -on[0] - 0.17), f"{float(state.angles[x]):.2f}", BLUE, size=13)
        error = float(state.energy - params.ground_energy)
        canvas.caption(f"{self.molecule}   energy {float(state.energy):.4f} Ha, {1e3 * error:.1f} mHa too high")
        return canvas.image()

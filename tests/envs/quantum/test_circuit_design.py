"""Circuits against NumPy's Kronecker products, molecules against diagonalisation, noise, angles, the task's rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxrl
from jaxrl.envs.quantum import circuit_design, molecules, qubits
from jaxrl.envs.quantum.circuit_design import CircuitDesign

KEY = jax.random.key(0)
I2, X, Y, Z = np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])
LETTERS = {"I": I2, "X": X, "Y": Y, "Z": Z}
EVERY = ("H", "X", "RX", "RY", "RZ", "CNOT")


def kron(*matrices):
    return functools.reduce(np.kron, matrices)


def unitary(gate, angle, n):
    """By exponentials of Kronecker products, and by the truth table of CNOT."""
    if gate.name == "CNOT":
        control, target = gate.qubits
        matrix = np.zeros((2**n, 2**n))
        for number in range(2**n):
            bits = [(number >> (n - 1 - q)) & 1 for q in range(n)]
            bits[target] ^= bits[control]
            matrix[int("".join(map(str, bits)), 2), number] = 1
        return matrix
    small = {"H": (X + Z) / np.sqrt(2), "X": X}.get(gate.name)
    if small is None:
        small = scipy.linalg.expm(-0.5j * angle * LETTERS[gate.name[1]])
    return kron(*[small if q == gate.qubits[0] else I2 for q in range(n)])


def random_circuit(rng, n, length):
    """`(tables, gates of the circuit or None, their rows, angles)`, with one empty place at the end."""
    gates = qubits.gates_on(n, EVERY)
    rows = np.append(rng.integers(len(gates), size=length), len(gates))
    angles = np.append(rng.uniform(-4, 4, length), 0.0)
    return qubits.tables(gates, n), [*(gates[row] for row in rows[:-1]), None], rows, angles


@pytest.mark.optimised
@pytest.mark.parametrize("n", [2, 3, 4])
def test_states_are_matrix_products(n):
    rng = np.random.default_rng(n)
    with jax.enable_x64():
        for _ in range(4):
            tables, gates, rows, angles = random_circuit(rng, n, 30)
            psi = np.eye(2**n)[0].astype(complex)
            for gate, angle in zip(gates[:-1], angles, strict=False):
                psi = unitary(gate, angle, n) @ psi
            turns = qubits.turns(tables, jnp.asarray(rows), jnp.asarray(angles))
            np.testing.assert_allclose(qubits.state_vector(turns), psi, rtol=0, atol=1e-12)
            touched = jnp.asarray(tables.touched, float)[rows]
            rho = qubits.density_matrix(turns, touched, jnp.float64(0), jnp.float64(0))
            np.testing.assert_allclose(rho, np.outer(psi, psi.conj()), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", molecules.NAMES)
def test_ground_energies_are_those_of_diagonalisation(name):
    table = molecules.molecule(name)
    with jax.enable_x64():
        env = CircuitDesign(name)
        for row in (0, 3, len(table.bond_length) - 1):
            matrix = sum(
                c * kron(*[LETTERS[x] for x in s]) for c, s in zip(table.coefficients[row], table.paulis, strict=True)
            )
            np.testing.assert_allclose(matrix, matrix.conj().T, atol=1e-12)
            values, vectors = np.linalg.eigh(matrix)
            np.testing.assert_allclose(values[0], table.ground_energy[row], atol=1e-9)
            params = env.default_params.replace(coefficients=jnp.asarray(table.coefficients[row]))
            hamiltonian = env.hamiltonian(params)
            np.testing.assert_allclose(hamiltonian, matrix, atol=1e-12)
            ground = jnp.asarray(vectors[:, 0], complex)
            np.testing.assert_allclose(qubits.energy_of_vector(ground, hamiltonian), values[0], atol=1e-12)
            rho = jnp.outer(ground, ground.conj())
            np.testing.assert_allclose(qubits.energy_of_matrix(rho, hamiltonian), values[0], atol=1e-12)


def test_the_two_encodings_of_hydrogen_agree_and_known_energies():
    """-1.1373 Ha: full configuration interaction of H2 in STO-3G at equilibrium (Szabo and Ostlund 1996)."""
    two, four = molecules.molecule("H2-2"), molecules.molecule("H2-4")
    np.testing.assert_allclose(two.ground_energy, four.ground_energy, atol=1e-9)
    assert abs(two.ground_energy.min() + 1.1373) < 5e-4
    assert two.bond_length[two.ground_energy.argmin()] == 0.7414
    assert (len(two.paulis), len(four.paulis), len(molecules.molecule("LiH-4").paulis)) == (5, 15, 100)


def kraus(rho, operators, q, n):
    big = [kron(*[k if i == q else I2 for i in range(n)]) for k in operators]
    assert np.allclose(sum(k.conj().T @ k for k in big), np.eye(2**n))
    return sum(k @ rho @ k.conj().T for k in big)


@pytest.mark.optimised
def test_noise_channels_are_their_kraus_sums():
    n, rng = 3, np.random.default_rng(0)
    a = rng.normal(size=(8, 8)) + 1j * rng.normal(size=(8, 8))
    rho = a @ a.conj().T / np.trace(a @ a.conj().T)
    with jax.enable_x64():
        for p in (0.0, 0.3, 1.0):
            for q in range(n):
                pauli = [np.sqrt(1 - 3 * p / 4) * I2, *(np.sqrt(p) / 2 * m for m in (X, Y, Z))]
                found = qubits.depolarised(jnp.asarray(rho), q, jnp.float64(p))
                np.testing.assert_allclose(found, kraus(rho, pauli, q, n), atol=1e-14)
                fall = [np.diag([1, np.sqrt(1 - p)]), np.array([[0, np.sqrt(p)], [0, 0]])]
                found = qubits.damped(jnp.asarray(rho), q, jnp.float64(p))
                np.testing.assert_allclose(found, kraus(rho, fall, q, n), atol=1e-14)
        tables, _, rows, angles = random_circuit(rng, n, 20)
        turns = qubits.turns(tables, jnp.asarray(rows), jnp.asarray(angles))
        touched = jnp.asarray(tables.touched, float)[rows]
        noisy = np.asarray(qubits.density_matrix(turns, touched, jnp.float64(0.05), jnp.float64(0.1)))
        assert abs(np.trace(noisy) - 1) < 1e-12
        np.testing.assert_allclose(noisy, noisy.conj().T, atol=1e-14)
        assert np.linalg.eigvalsh(noisy)[0] > 0  # mixed, and a state
        assert np.trace(noisy @ noisy).real < 0.9


@pytest.mark.optimised
@pytest.mark.parametrize("noisy", [False, True])
def test_slopes_are_finite_differences(noisy):
    rng = np.random.default_rng(1)
    with jax.enable_x64():
        env = CircuitDesign("H2-4", gates=EVERY, noisy=noisy)
        params = env.default_params
        params = params.replace(depolarising=jnp.float64(0.02), damping=jnp.float64(0.03)) if noisy else params
        rows = jnp.asarray(rng.integers(len(env.gate_list), size=12))
        hamiltonian = env.hamiltonian(params)
        energy = jax.jit(lambda angles: env.energy(rows, angles, hamiltonian, params))
        angles = rng.normal(size=12)
        slope = np.asarray(jax.grad(energy)(angles))
        free = env.tables.rotates[np.asarray(rows)]
        assert 0 < free.sum() < 12 and np.all(slope[~free] == 0) and np.abs(slope[free]).max() > 1e-2
        for i in range(12):
            step = np.eye(12)[i] * 1e-5
            np.testing.assert_allclose(slope[i], (energy(angles + step) - energy(angles - step)) / 2e-5, atol=1e-9)


def test_least_angle():
    theta = np.linspace(-np.pi, np.pi, 2001)
    for b, c in ((1.0, 0.3), (-1.0, 0.2), (0.4, -2.0), (-1.0, 0.0)):
        found = circuit_design.least_angle(
            *(jnp.float32(3 + b * np.cos(x) + c * np.sin(x)) for x in (0, 1.5707964, -1.5707964))
        )
        assert abs(found - theta[np.argmin(b * np.cos(theta) + c * np.sin(theta))]) < 4e-3
    assert circuit_design.least_angle(jnp.float32(2), jnp.float32(2), jnp.float32(2)) == 0


def play(env, params, gates):
    step, names = jax.jit(env.step), [str(gate) for gate in env.gate_list]
    obs, state = env.reset(KEY, params)
    steps = []
    for gate in gates:
        assert obs["action_mask"][names.index(gate)]
        steps.append(step(KEY, state, jnp.int32(names.index(gate)), params))
        obs, state = steps[-1][:2]
    return steps


@pytest.mark.optimised
def test_two_gates_prepare_hydrogen_on_two_qubits():
    """The ground state is a superposition of |00> and |11>: a rotation about Y and a CNOT."""
    env, params = jaxrl.make("CircuitDesign-H2-2-v0")
    turn, end = play(env, params, ["RY 0", "CNOT 0 1"])
    assert not turn.terminated and end.terminated and end.info["success"] and end.info["num_gates"] == 2
    assert end.reward == 5 and end.info["energy"] - params.ground_energy < 1e-5
    start = float(env.hamiltonian(params)[0, 0].real)
    ground = float(params.ground_energy)
    np.testing.assert_allclose(turn.reward, (start - turn.info["energy"]) / (start - ground), atol=1e-5)
    np.testing.assert_allclose(turn.obs["error"], np.log10(turn.info["energy"] - ground), atol=1e-5)
    np.testing.assert_allclose(turn.obs["threshold"], np.log10(1.6e-3), atol=1e-6)
    loose = play(env, params.replace(threshold=jnp.float32(2.0)), ["RX 0"])[0]
    assert loose.terminated and loose.reward == 5 and not loose.info["success"]


def test_the_reward_pays_for_breaking_a_circuit_and_mending_it():
    """A gate that undoes all costs 1, and the two that mend it earn more: PPO found it. Discounting hides it."""
    env, params = jaxrl.make("CircuitDesign-H2-2-v0")
    step = jax.jit(env.step)

    def played(gates):
        _, state = env.reset(KEY, params)
        rewards = []
        for gate in gates:
            ts = step(KEY, state, jnp.int32(gate), params)
            state, rewards = ts.state, [*rewards, float(ts.reward)]
        assert ts.terminated and ts.info["success"]
        return np.array(rewards)

    found = played([3, 2, 7, 6, 3, 7, 6, 1, 7, 6, 1, 4, 7, 1, 3, 1, 7, 3, 6, 3])
    names = [gate.name + str(gate.qubits) for gate in env.gate_list]
    two = played([names.index("RY(0,)"), names.index("CNOT(0, 1)")])
    assert found.sum() > 1.5 * two.sum()
    assert found @ 0.88 ** np.arange(20) < two @ 0.88 ** np.arange(2)


@pytest.mark.optimised
def test_six_gates_prepare_hydrogen_on_four_qubits():
    env, params = jaxrl.make("CircuitDesign-H2-4-v0")
    steps = play(env, params, ["RX 0", "RX 1", "RY 2", "CNOT 2 3", "CNOT 2 0", "CNOT 2 1"])
    assert [bool(step.info["success"]) for step in steps] == [False] * 5 + [True]
    assert steps[-1].info["energy"] - params.ground_energy < 1e-5


def test_a_full_circuit_ends_and_repeated_gates_are_masked():
    env = CircuitDesign(max_gates=4)
    names = [str(gate) for gate in env.gate_list]
    steps = play(env, env.default_params, ["RZ 0", "RZ 1", "CNOT 1 0", "RZ 1"])
    masked = [[names[i] for i in np.flatnonzero(~step.obs["action_mask"])] for step in steps]
    assert masked == [["RZ 0"], ["RZ 0", "RZ 1"], ["CNOT 1 0"], ["RZ 1"]]
    assert [bool(step.terminated) for step in steps] == [False, False, False, True]
    assert steps[-1].reward == -5 and steps[0].reward == 0 and not steps[-1].info["success"]
    np.testing.assert_array_equal(steps[-1].obs["circuit"].sum(1), 1)
    np.testing.assert_array_equal(steps[1].obs["circuit"].sum(1), [1, 1, 0, 0])


@pytest.mark.parametrize("gate", ["H", "X", "RX", "RZ", "CNOT"])
def test_where_every_gate_repeats_all_are_allowed(gate):
    env = CircuitDesign(max_gates=4, num_gradient_steps=1, gates=(gate,))
    names = [str(gate) for gate in env.gate_list]
    masks = [step.obs["action_mask"] for step in play(env, env.default_params, names[:2])]
    np.testing.assert_array_equal(masks[0], [False, True])
    np.testing.assert_array_equal(masks[1], [True, False] if gate == "CNOT" else [True, True])


def test_energies_do_not_rise_with_rotations_and_noise_costs_energy():
    env = CircuitDesign("H2-2", max_gates=6, noisy=True)
    params = env.default_params
    gates = ["RY 0", "CNOT 0 1"]
    clean = play(env, params, gates)[-1].info["energy"]
    assert abs(clean - params.ground_energy) < 1e-4
    noisy = params.replace(depolarising=jnp.float32(0.02), damping=jnp.float32(0.02))
    assert play(env, noisy, gates)[-1].info["energy"] > clean + 5e-3
    turned = play(env, params, ["RY 0", "RX 1", "RY 1", "RX 0"])
    energies = [float(step.info["energy"]) for step in turned]
    assert all(later <= before + 1e-6 for before, later in zip(energies, energies[1:], strict=False))


def test_levels():
    env, params = jaxrl.make("CircuitDesign-H2-4-v0")
    table = molecules.molecule("H2-4")
    drawn = jax.vmap(env.generate, (0, None))(jax.random.split(KEY, 256), params)
    assert set(np.asarray(drawn.bond_length).tolist()) == set(np.float32(table.bond_length).tolist())
    rows = [int(np.argmin(np.abs(table.bond_length - x))) for x in np.asarray(drawn.bond_length)]
    np.testing.assert_allclose(drawn.coefficients, table.coefficients[rows], atol=1e-6)
    moved = jax.vmap(env.mutate)(jax.random.split(KEY, 256), drawn)
    after = [int(np.argmin(np.abs(table.bond_length - x))) for x in np.asarray(moved.bond_length)]
    steps = np.subtract(after, rows)
    assert set(steps) <= {-1, 0, 1} and {-1, 1} <= set(steps)
    assert all(row in (0, len(table.bond_length) - 1) for row, step in zip(rows, steps, strict=True) if step == 0)
    np.testing.assert_allclose(moved.ground_energy, table.ground_energy[after], atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match=r"molecule='H2-3' is none of H2-2, H2-4, LiH-4; did you mean 'H2-"):
        CircuitDesign("H2-3")
    with pytest.raises(ValueError, match=r"gates='CNOTT' is none of H, X, .*; did you mean 'CNOT'"):
        CircuitDesign(gates=("CNOTT",))
    with pytest.raises(ValueError, match="must be different ones, at least one"):
        CircuitDesign(gates=())
    env, params = jaxrl.make("CircuitDesign-H2-2-v0")
    for change, message in (
        ({"depolarising": jnp.float32(0.1)}, "no effect without noise; make it with noisy=True"),
        ({"damping": jnp.float32(1.5)}, r"damping=1.5 must be in \[0, 1\]"),
        ({"threshold": jnp.float32(0)}, "threshold"),
        ({"coefficients": jnp.zeros(4)}, r"coefficients \(4,\) must be \(5,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(KEY, params.replace(**change))

"""Tasks on quantum computers of few qubits, simulated exactly."""

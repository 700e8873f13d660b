"""Mathematics with known answers: exact solvers, indices, mixtures, planners, temporal logic, knapsacks and tours."""

"""Combinatorial optimisation by construction: each state is the rest of the problem."""

"""Curricula, which choose the levels on which a student trains, one file for each method."""

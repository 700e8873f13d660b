"""Stored experience: datasets, how learners draw from them, and models of transitions."""

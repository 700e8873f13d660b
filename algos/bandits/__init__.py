"""Bandit algorithms, a file each."""

"""Tabular algorithms, one file each."""

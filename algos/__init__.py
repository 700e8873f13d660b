"""Algorithms, a file each, readable alone."""

"""Sokoban and its levels."""

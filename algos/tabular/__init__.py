"""Learners of tables, a file each."""

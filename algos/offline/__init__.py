"""Learners from stored data; each goes on in the environment where it has a memory of its own."""

"""Behaviour cloned given what came of it."""

"""Chains, locks and trees, whose optimal values are known."""

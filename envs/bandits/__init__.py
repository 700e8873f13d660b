"""Bandits: one state, many arms, and a regret that can be computed."""

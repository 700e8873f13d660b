"""Generative policies: what draws an action step by step, and so has as many modes as it needs."""

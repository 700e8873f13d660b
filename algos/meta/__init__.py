"""Agents that learn to learn, a file a method."""

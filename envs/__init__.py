"""Environments, a folder a family and a file an environment."""

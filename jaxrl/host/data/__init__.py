"""Datasets and models as files."""

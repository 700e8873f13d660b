"""Tabular MDPs: small enough that every value can be computed exactly."""

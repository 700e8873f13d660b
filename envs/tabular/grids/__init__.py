"""Small grids as tables."""

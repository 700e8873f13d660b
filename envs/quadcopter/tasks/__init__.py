"""Tasks of one drone, a file each."""

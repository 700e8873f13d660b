"""The equations of the machines, a file each."""

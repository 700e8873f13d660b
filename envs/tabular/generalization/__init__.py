"""Tasks drawn to tell learned models from perfect ones."""

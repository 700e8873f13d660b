"""Tasks that need memory: what has to be known was seen before."""

"""Meta-learning algorithms, one file each."""

"""Running an experiment: training with checkpoints, sweeps, run folders, recipes."""

"""Model-based algorithms: with a learned model, or with the environment as the model."""

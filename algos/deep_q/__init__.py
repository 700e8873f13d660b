"""Deep Q-learning: networks of action values for discrete actions."""

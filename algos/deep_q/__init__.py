"""Action values of discrete actions, learned by networks."""

"""Policy-gradient methods that learn from rollouts of the current policy."""

"""Policy gradients on what the policy itself just did."""

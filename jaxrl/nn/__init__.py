"""What learners are made of: networks, distributions, value heads, running statistics, optimisers."""

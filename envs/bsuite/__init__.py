"""The behaviour suite for reinforcement learning (Osband et al. 2020): small tasks that each ask one question."""

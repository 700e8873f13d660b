"""Streaming deep reinforcement learning: one transition in, one update, nothing kept."""

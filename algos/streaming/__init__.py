"""Streaming deep reinforcement learning: one update for each transition, and no replay."""

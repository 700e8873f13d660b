"""Curricula: what chooses the levels on which a student trains, a file a method."""

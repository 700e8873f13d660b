"""Buffers that must be in memory at known times, and a memory that is only so large."""

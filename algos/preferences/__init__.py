"""Learning from preferences: which of two segments is the better one."""

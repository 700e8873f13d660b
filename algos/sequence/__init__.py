"""Outcome-conditioned behaviour cloning: actions given a return or a goal."""

"""Learners that look ahead in a model, be it learned or the environment itself."""

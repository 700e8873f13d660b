"""Shells of algorithms that learn from stored steps: acting and storing, or a dataset, and when to take gradient steps.

The gradient step itself is in each algorithm's file: a `learner.Rule` or a `q_learner.Rule`.
"""

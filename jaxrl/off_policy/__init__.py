"""Learning from stored steps: acting and storing, or drawing from a dataset, and the gradient steps that are due.

What a gradient step does is in each algorithm's file; `learner` and `q_learner` say what they ask of it.
"""

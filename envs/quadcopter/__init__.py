"""Quadcopters: one rigid-body core, its models and controllers, and the tasks of the accepted simulators."""

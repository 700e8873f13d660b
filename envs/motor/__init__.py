"""Electric motor drives: machines, converters, supplies, loads and references, after gym-electric-motor."""

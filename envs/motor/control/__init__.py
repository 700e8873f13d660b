"""Controllers of motor drives, and the operating points that they aim at."""

"""The grid worlds of learned policy gradient, whose optimal values are exact."""

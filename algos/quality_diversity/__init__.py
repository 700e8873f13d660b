"""Quality diversity: archives of the best behaviour of every kind."""

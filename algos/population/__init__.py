"""Population methods: many learners or policies at once, with selection."""

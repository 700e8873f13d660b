"""Many learners or policies at once, the better ones of which go on."""

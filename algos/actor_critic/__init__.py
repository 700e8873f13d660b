"""An actor and critics that learn from stored steps."""

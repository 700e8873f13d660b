"""Classic control: the tasks of Gymnasium and what control people expect next to them."""

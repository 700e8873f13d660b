"""Off-policy actor-critics, online and from datasets."""

"""Programs of `jaxrl meta-train`, which learn update rules: no algorithms, so `jaxrl.list_algos()` has none of them."""

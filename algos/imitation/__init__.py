"""Learning beside an expert, who drives, labels or steps in: see `jaxrl.off_policy.interventions`."""

"""Bodies with contacts, as MuJoCo computes them, in plain operations: no engine is imported."""

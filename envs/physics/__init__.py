"""Bodies with joints and contacts: MuJoCo's equations in plain operations or on MJX, Brax's and Playground's tasks."""

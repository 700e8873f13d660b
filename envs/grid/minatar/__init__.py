"""MinAtar: five Atari games on 10 x 10 cells."""

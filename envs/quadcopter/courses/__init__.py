"""Where to fly: paths as functions of time, and race tracks."""

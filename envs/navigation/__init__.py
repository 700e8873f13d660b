"""Navigation: a robot that senses distances drives to a goal."""

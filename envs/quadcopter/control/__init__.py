"""What flies a quadcopter: controllers, and the levels of action between a policy and the rotors."""

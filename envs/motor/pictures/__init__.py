"""Pictures, figures and reports of drives; what their plane of torque and speed is. Host only."""

"""What the simulator costs."""

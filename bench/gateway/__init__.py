"""What the gateway costs."""

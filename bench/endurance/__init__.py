"""Many events and many faults at random, on real processes."""

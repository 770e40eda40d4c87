"""What one node costs: time per stage, memory, a slow subscriber, a quick smoke run."""

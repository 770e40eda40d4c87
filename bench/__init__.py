"""Measurements. `smoke` is what `make bench` runs; each file says what it measures."""

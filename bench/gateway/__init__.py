"""Faults that are planted into the gateway (bench/mutations)."""

"""Faults of what keeps nodes with keys safe, which bench/mutations plants."""

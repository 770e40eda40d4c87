"""Measurements of `canopy sync`: ``measure``, between real databases in real processes."""

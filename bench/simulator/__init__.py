"""Processor time and memory that simulations of growing size take (`cost`)."""

"""A run as YAML: nodes, load, faults, its stages and its result."""

"""Random scenarios by seed, pairs of faults, and smaller scenarios with the same fault."""

"""Faults planted on purpose, to prove that the soak and the tests find faults.

`planting` (how: symbols of the product are replaced in the running process), a file of faults for
each part of the product (`chord_faults`, `host_faults` …), `planted` (all of them), `run` (the
`canopy` command with a fault planted) and `check` (which faults are found, and by what).
Rows: docs/lab/mutations.md.
"""

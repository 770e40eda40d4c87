"""Faults planted on purpose, to prove that the soak and the tests find faults.

`planting` (how: symbols of the product are replaced in the running process), `lower_faults`,
`chord_faults`, `tree_faults`, `event_faults` and `order_faults` (the faults, by layer), `planted`
(all of them), `run` (the `canopy` command with a fault planted) and `check` (which faults are
found, and by what).
Rows: docs/lab/mutations.md.
"""

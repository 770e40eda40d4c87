"""What health from logs is worth (docs/lab/health.md), beside `python -m bench.experiments health`.

`train` learns the tree of `canopy trace health` from simulated faults, and judges both trees.
"""

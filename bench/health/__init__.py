"""What health from logs is worth: elections with and without the file, and how well faults are told.

    python -m bench.lab.record health-elections -- python -m bench.health.elections
    python -m bench.health.train                      # learns the tree anew, and judges both
    python -m bench.lab.record health-faults -- python -m bench.health.train --judge

The first is `canopy sim health` as rows. docs/lab/health.md has the tables.
"""

"""What health from logs is worth (docs/lab/health.md).

    python -m bench.lab.record health-elections -- python -m bench.health.elections

    python -m bench.health.train                      # learns the tree again, and judges all trees
    python -m bench.lab.record health-faults -- python -m bench.health.train --judge

The rows of the first are those of `python -m bench.experiments health`.
"""

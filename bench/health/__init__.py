"""What health from logs is worth (docs/lab/health.md).

    python -m bench.lab.record health-elections -- python -m bench.health.elections

The rows are those of `canopy sim health`.
"""

"""What health from logs is worth (docs/lab/health.md), beside `python -m bench.experiments health`.

python -m bench.health.train                      # learns the tree anew, and judges all trees
python -m bench.lab.record health-faults -- python -m bench.health.train --judge
"""

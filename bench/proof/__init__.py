"""Large trials of what Canopy promises, in pieces: `python -m bench.proof`.

*Called by*: `make proof`. The pieces are runs of other benches, of the soak and of the fuzzers.
"""

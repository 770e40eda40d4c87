"""`python -m bench.streams.content`: consumers that want few rows of a stream, beside others.

*Read in this order*: ``__main__`` (what is measured, and Canopy), ``others``.
"""

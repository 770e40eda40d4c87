"""`python -m bench.streams.volume`: what much data costs a stream of three real nodes.

*Promises*: every figure is of real processes over real files; nothing is left on the disk.

*Read in this order*: ``__main__``; ``restart`` (one node, more and more of a log).
"""

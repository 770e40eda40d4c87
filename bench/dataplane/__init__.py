"""Events per second and latency between real processes, beside other systems that do the same.

`compare` runs the variants one after the other, `stage` is one run, `adapter` the interface that
each system is given, `overlays` has peers with three servers each, and `columns` is a prototype of
another format of batches. Rows: docs/lab/performance.md.
"""

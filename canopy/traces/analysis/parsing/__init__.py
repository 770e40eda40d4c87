"""Lines of trace files become records.

``lines`` has the rules: which line is a record, and why another is none. ``blocks`` reads a stretch
of a file and has Arrow parse all of its lines at once; only where one of these is not as nodes
write it is each parsed by the rules. ``stretches`` divides files among tasks, and is what a task
does: it writes the records of its stretches as Parquet, by kind, and counts them
(``tally``).

Spark's workers run this code, which is sent to them, and need PyArrow and msgspec but not Canopy.
"""

"""Streams of real processes under faults of every kind, with every row accounted for.

*Promises*: what a program was told of a row is kept beside the row; in the end each is held against
the stream as it is then, and against the files of each replica.

*Called by*: `bench.streams.endurance`.

*Read in this order*: ``programs`` (who appends, decides, shares and folds), ``disks`` (folders
that fill up, files that are altered), ``injector`` (what is done to nodes, and undone), ``account``
(what is wrong in the end).
"""

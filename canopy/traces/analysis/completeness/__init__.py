"""Determines which records exist and which are absent, before anything is judged.

A node numbers the records of each run of its process, and the first record of each file says whose
it is, what share of the events it keeps, and how many records were lost. ``facts`` has these
numbers for each file, and what nodes say of each other. ``holes`` concludes from them which
stretches are absent and which run has ended, ``overlays`` which nodes belong together, and
``claims`` compares what a run says of itself with its other records. ``collect`` has Spark gather
the facts; all else is without Spark.
"""

"""Determines which records exist and which are absent, before anything is judged.

A node numbers the records of each run of its process, and the first record of each file says whose
it is, what share of the events it keeps, and how many records were lost. ``facts`` has these
numbers for each file, what nodes say of each other, and what a run says of itself, compared with
its other records. ``holes`` concludes from them which stretches are absent and which run has ended,
and ``overlays`` which nodes belong together. ``collect`` has Spark gather the facts; all else is
without Spark.
"""

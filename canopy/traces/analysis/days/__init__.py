"""Analyses day by day: a state folder carries what earlier ones found (docs/design/traces.md).

``state`` is the folder: its index, its generations, its lock. ``taking`` reads new files into one
table of records for each day. ``judging`` says which days have to be judged, what later runs
need to know of them, and a line for each day. ``closing`` leaves of old days what they were found
to be. ``analysis`` is the analysis itself, with these in the place of the stages
that read and judge.
"""

"""Analyses day by day: a state folder carries what earlier ones found (docs/design/traces.md).

``state`` is the folder: its index, its generations, its lock. ``taking`` reads new files into one
table of records for each day. ``judging`` says which days have to be judged, and what later runs
need to know of them. ``closing`` leaves of old days what they were found
to be. ``analysis`` is the analysis itself, with these in the place of the stages
that read and judge. ``trends`` has a line for each day.
"""

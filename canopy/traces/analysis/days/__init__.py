"""Analyses day by day: a state folder carries what earlier ones found (docs/design/traces.md).

``state`` is the folder: its index, its generations, its lock. ``intake`` reads new files into one
table of records for each day. ``verdicts`` says which days have to be judged, what later runs need
to know of them, and a line for each day. ``analysis`` is the analysis itself, with these in the
place of the stages that read and judge.
"""

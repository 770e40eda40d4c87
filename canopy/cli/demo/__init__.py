"""`canopy demo`: an overlay of real processes on loopback delivers a real feed, and proves it.

In the order of a run: `plan` (what is wanted, checked before anything starts), `folder` (where it
goes), `overlay` (the node processes), `subscribers`, `publisher`, `quiet` (until nothing is under
way), then Spark's analysis of the traces, and `summary` (the verdict). `run` is that order;
`display` shows it; `command` is the command line.
"""

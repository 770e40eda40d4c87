"""Measurements of whole overlays, each a `canopy sim` command.

`figures` (the papers' figures), `routing_model` (routing decisions without links and timers, for
sizes that full nodes cannot be simulated at), `recovery`, `timeliness`, `mass_failure`, and
`recorded_run` with `replay` (what a trace folder contains, run again in another configuration).
"""

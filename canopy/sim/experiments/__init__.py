"""Measurements of whole overlays, each a `canopy sim` command.

`figures` (the papers' figures; `routing_model` is their CBDLO), `recovery`, `timeliness`,
`mass_failure`, and `recorded_run` with `replay` (what a trace folder contains, run again in another
configuration). `running` and `svg` are what they share.
"""

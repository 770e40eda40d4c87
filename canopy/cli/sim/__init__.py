"""`canopy sim`: the overlay in a world of virtual time, one file per command.

``command`` has the group and `sim run`; each other file has one command: its options, its tables,
and a call of `canopy.sim`, which computes everything. `soak`, `pairs` and `run` report a failing
seed with ``shrink``; `replay` runs traces again; ``progress`` shows how far a run is.
"""

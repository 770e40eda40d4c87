"""The overlays that CBDLO is compared with in its paper: *Simple* and *TERA* (C12).

They get their graph and load from `canopy.sim.experiments.figures`, so that all curves of a figure
are about the same overlay. Run by `canopy sim figure`.
"""

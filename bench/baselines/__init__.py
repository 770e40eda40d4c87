"""The overlays that CBDLO is compared with in its paper: *Simple* and *TERA* (C12).

They get their graph and load from `bench.experiments.figures`, so that all curves of a figure
are about the same overlay. Run by `python -m bench.experiments figure`.
"""

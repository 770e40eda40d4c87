"""What CBDLO is held against in its paper: *Simple* and *TERA* (C12). No part of the product.

They get their graph and load from the figures (sim/figures), so that all curves of a picture are
about the same overlay.
"""

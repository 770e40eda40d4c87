"""Figures 5 to 9 of the CBDLO paper, with curves from the product's own code (C12).

`model` (what a figure is), `points` (what one point of a curve costs, in the routing model),
`full_nodes` (what it costs in an overlay of whole nodes), `paper` (the five figures), `experiment`
(how they are run and shown). What the paper leaves open, and what was chosen, stands in
docs/lab/figures.md. The baselines are in bench/baselines.
"""

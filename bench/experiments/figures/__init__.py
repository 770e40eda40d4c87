"""Figures 5 to 9 of the CBDLO paper, with curves from the product's own code (C12).

`plan` (what a point depends on), `points` (what it costs in the routing model, and the baselines in
bench/baselines), `full_nodes` (what it costs in an overlay of whole nodes), `curves` (how a row
follows from costs), `shared_world` and `sharing` (many points and nodes in one process),
`experiment` (all points). What the paper leaves open, and what was chosen, stands in
docs/lab/figures.md.
"""

"""`bench.experiments`: measurements of whole overlays in the simulator, by seed.

`frame` says what an experiment is: a plan, trials that make rows, a table and a picture. `registry`
names them all, ``__main__`` runs them, `pictures` draws. A module or folder each: `figures` (the
CBDLO paper's, with `routing_model`, the paper's CBDLO), `backlog`, `timeliness`, `scaling`,
`health`. `bench.papers` has those of VENUS, Minos and Tensor, and names all whose rows stand beside
a paper's.
"""

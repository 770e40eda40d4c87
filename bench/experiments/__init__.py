"""`bench.experiments`: measurements of whole overlays in the simulator, by seed.

`frame` says what an experiment is: a plan, what runs its trials, tables, a picture. `registry`
names them all, and ``__main__`` runs them: `figures` (the CBDLO paper's; `routing_model` is their
CBDLO), `recovery`, `timeliness`, `scaling`, `health`, `liars`, `mass_failure`, `regions`,
`revocation`. `running` and `svg` are what they share. `bench.papers` names the commands whose rows
stand beside a paper's.
"""

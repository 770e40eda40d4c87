"""`bench.experiments`: measurements of whole overlays in the simulator, by seed.

A folder or module for each: `figures` (the CBDLO paper's; `routing_model` is their CBDLO),
`recovery`, `timeliness`, `scaling`, `health`, `liars`, `mass_failure`, `regions`, `revocation`.
`commands` has the command of each, `options` what they share; `running` and `svg` are what the
experiments share. `bench.papers` names the commands whose rows stand beside a paper's.
"""

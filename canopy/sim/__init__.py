"""The simulator: the very same Node in a world of virtual time, by seed.

In the order of reading: `world` (time, nodes, clients), `driver` (one process), `network`, `disk`,
`recorder` (trace hash), `clients` (who subscribes and publishes), `workload` (what), `oracle` (what
should have come), `checkers` and `*_checks` (what must hold), `traffic` (what it cost), `scenario`
(a run as YAML), `population` (its nodes and what befalls them), `run` (its stages), `result`. Of
what is wrong: `story` (the records that matter), `examine` and `shrink` (a smaller scenario).
`recorded` and `replay` run once more what real nodes' traces tell.

sim imports node, overlay, matching and traces, never wire: the codec is handed in. With that the
bodies of batches are encoded and decoded as between processes, so that nothing is shared by
reference and whatever the codec cannot carry is found here.
"""

"""The routing model: the product's routing decisions without links, timers and traces.

Nodes are made when something first reaches them, messages are handed over at once, and nothing is
lost, so a hundred thousand nodes cost no more than the walks that are taken. What decides is the
product's: `Crawl` with `AccessPoints` (C2 to C4), `PartitionMap` and `Slice` (C6, C7), and the
`PartialMatch` of the receiver (C8).

CBDLO as in the paper: `random_graph` (access points and walks), `counting_trees` (a tree for each
attribute) and `counting_routing` (an event on its whole way).

Routing close to the lower bound (docs/lab/routing.md): `measure` (the experiment),
`pivot_placement` (pivots, virtual nodes, shards, shared hosts), `host_assignment` (replicas and
work of hosts), `pivot_routing` (an event on its way, with dead nodes), `upkeep` (what summaries and
leases cost), `brute_force_match` (who is interested), `report` and `picture`. The load is
`canopy.sim.scenario.range_load`.
"""

"""CBDLO as in its paper, for the figures: without links, timers and traces.

Nodes are made when something first reaches them, messages are handed over at once, and nothing is
lost. What decides is the product's: `Crawl` with `AccessPoints` (C2 to C4), `PartitionMap` and
`Slice` (C6, C7), and the `PartialMatch` of the receiver (C8). Access points are planted, not
learnt.

`random_graph` (access points and walks), `counting_trees` (a tree for each attribute) and
`counting_routing` (an event on its whole way). The load is `canopy.sim.scenario.range_load`.
"""

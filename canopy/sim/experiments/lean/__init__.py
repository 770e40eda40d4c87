"""The lean mode: the product's routing decisions without links, timers and traces.

Nodes are made when something first reaches them, messages are handed over at once, and nothing is
lost, so a hundred thousand nodes cost no more than the walks that are taken. What decides is the
product's: `Crawl` with `AccessPoints` (C2 to C4), `PartitionMap` and `Slice` (C6, C7), and the
`PartialMatch` of the receiver (C8).

`load` (who subscribes to what), `lower` (random graph and walks), `upper` (trees), `counting`
(an event on its whole way): CBDLO as in the paper.

`measure` (everything below, side by side), `fit` (how wide ranges are), `audience` (who is
interested, by brute force), `placing` (pivots, virtual nodes, shards, who shares a host), `fleet`
(replicas), `routing` (an event on its way, dead nodes), `upkeep`, `report`, `picture`: routing
close to the lower bound (docs/lab/routing.md).
"""

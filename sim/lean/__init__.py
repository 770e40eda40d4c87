"""The lean mode: the product's routing decisions without links, timers and traces.

Nodes are made when something first reaches them, messages are handed over at once, and nothing is
lost, so a hundred thousand nodes cost no more than the walks that are taken. What decides is the
product's: `Crawl` with `AccessPoints` (C2 to C4), `PartitionMap` and `Slice` (C6, C7), and the
`Counted` set of the receiver (C8).

`load` (who subscribes to what), `lower` (random graph and walks), `upper` (trees), `counting`
(an event on its whole way).
"""

"""Keeps keys through the loss of their whole cluster (P5; Phoenix section 2, cluster failure).

*Promises*: a copy that is called whole lacks nothing that was acknowledged; two forks of one
cluster never have the same epoch; of clusters that claim overlapping arcs the lower epoch stops
when it hears of the higher (docs/design/clusters.md: *Copies outside of the cluster*, *A lost
cluster*).

*Called by*: `clusters.Clusters` and `role_changes`; the registry of the trees waits for observers
before a SUBACK.

*Read in this order*: `messages`, `observers` (at the primary: who keeps a copy of the log),
`observed_logs` (such copies, where they are kept), `recovery` (who takes a lost cluster's place).
An *observer* is what ZooKeeper calls one: it gets the log and has no vote. Members that do not vote
yet are Raft's learners, and followers of the log.
"""

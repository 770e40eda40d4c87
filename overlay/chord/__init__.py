"""The ring of clusters, and this node's role in one of them (P1, P2, P4, P5;
docs/design/clusters.md, docs/design/chord-ring.md).

The ring consists of clusters, not of nodes: a few nodes (five by default) own the keys of an arc
together, as primary, standby and match brokers (Phoenix, sections 1 and 2). There are as many
clusters as the load needs; most nodes may be in none. `node.py` builds two machines, `Ring` and
`Clusters`; the registry of the trees (overlay/upper_tree/owner) calls them. Read in this order:

* `keys`, `messages`, `events`, `epochs`: positions on the ring, the vocabulary on the wire and
  upwards, Raft's terms, with what is signed of votes and descriptions where nodes have keys.
* `role`: this node's role, and the one place where it changes. `constants`: every number that is
  no setting.
* `ring/`: who owns a key? Chord (Stoica et al.) over clusters, with Zave's corrections.
* `cluster/`: the replicated log, heartbeats and elections of one cluster (Raft).
* `membership/`: founding, recruiting, joining, leaving, splitting.
* `recovery/`: copies of the log outside of the cluster, and who takes the place of a lost cluster.
* `ring_merge`: two rings that become one.
* `clusters`, `role_changes`: put the parts together; what follows when another node leads.

Imports go one way: shared files ← `ring`, `cluster` ← `membership` ← `recovery`, `ring_merge`
← `role_changes`, `clusters`.

Two rules hold everything together. **Arcs decide, pointers route**: a primary owns what its own
description says, and wrong pointers cost only time. **Epochs fence**: a node that takes over keys
does so under a higher epoch, so of two descriptions that overlap the higher epoch is right, and a
primary that hears of one above its own stops serving. An epoch of an existing cluster is granted by
a majority of its voters, who store their votes first; a primary decides only while a majority
answers its heartbeats. Only where no majority is left does an epoch fork off.
"""

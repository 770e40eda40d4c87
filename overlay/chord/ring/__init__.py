"""The Chord ring of clusters: who owns a key, and the maintenance that keeps lookups right (P2).

*Promises*: the owner's own answer is the only one; wrong pointers and old descriptions cost hops,
never an event; in a ring without forks the arcs of all led clusters are disjoint and cover the ring
(docs/design/chord-ring.md).

*Called by*: `clusters.Clusters` says what this node is; the trees (overlay/upper_tree) look up
owners; `node.py` routes messages to `Ring`.

*Read in this order*:

* `known_clusters`: a cache of cluster descriptions and of hints from gossip.
* `ring_state`: predecessor and successor list with Zave's rules ("Reasoning about identifier
  spaces", IEEE TSE 2017), what the parts share, and the choice of the next hop.
* `claims`: the descriptions of clusters that are believed, where nodes have keys.
* `lookups` (Chord, SIGCOMM 2001, section 4), `stabilisation` (stabilise, rectify, fingers).
* `ring`: the machine that puts them together, and visits all clusters for who asks.
"""

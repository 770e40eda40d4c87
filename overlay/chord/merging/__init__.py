"""Two rings that meet become one: the one with the smaller id goes on (docs/design/clusters.md,
*Merging two rings*).

*Promises*: a key has one owner whom a node asks at a time; no acknowledged registration is lost,
and none misses an event that was published where it was registered.

*Called by*: `clusters.Clusters`; `RegistryMerge`
(overlay/upper_tree/owner/registrations) does the work of the first two phases.

`merging` has the voters that confirm a ring where nodes have keys, and the machine. The messages,
and how far a cluster is on its way, are in overlay/chord/messages.py.
"""

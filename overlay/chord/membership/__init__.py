"""Membership of a cluster: founding, recruiting, joining, leaving, and arcs that change hands (P1).

*Promises*: the primary alone changes the membership; at no moment do two nodes serve a key; no
majority depends on a node that has been released (docs/design/clusters.md: *Splitting, handing
over, leaving*).

*Called by*: `clusters.Clusters`, `role_changes`, `ring_merge`.

*Read in this order*: `recruitment` (of outsiders, and the first cluster of a ring), `members`
(descriptions, joining, leaving, being lost), `handover` (the old primary's side of a split or a
leaving primary; Scatter, SOSP 2011) and `taking_over` (the coming primary's side), `cluster_merge`
(a cluster that is too small gives its arc to the next one) and `taking_in` (the next one's side).
*When* a cluster splits is decided where its trees are counted
(overlay/upper_tree/owner/rebalance.py), which reports to `cluster_merge` what the cluster owns.
"""

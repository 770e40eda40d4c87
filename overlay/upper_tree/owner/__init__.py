"""The owner's side: the primary of a cluster decides about the attribute trees of its arc (C6, P1).

What an owner promises: a registration that was acknowledged (`Registered`) is in the log of a
majority, is matched by every host that serves a virtual node it overlaps, and is admitted by every
summary that a publisher may still use; it stays so through changes of the map, another primary, a
split of the cluster and a merge of rings. CBDLO sections 2 and 5 have the trees, Phoenix the
clusters; docs/design/attribute-trees.md and docs/design/clusters.md say what is done differently.

Read in this order: ``tree_log`` (what the cluster's log says, and the state that it makes),
``owned_tree`` (a tree as the primary decides about it: the only writer of what is pending, of a
map's change and of stale hosts), ``owner`` (the role, the log, and arcs that leave),
``host_supervisor`` and ``lease_grants`` (who can be reached, and may serve), then
``registrations/`` (registering, renewing, ending, and what comes from a lost cluster or another
ring), ``rebalance`` with ``reported_loads``, ``host_pool``, ``machines``, ``host_selector`` and
``placement`` (virtual nodes that are split, merged and moved, in two steps, by what hosts report),
``cluster_size`` (when the cluster itself recruits or has to split), ``subscriber_placement`` (the
paper's way, in the place of ``placement``) and ``registration_transfers`` (what moves with them).
``constants`` has every number that is no setting.

node.py builds the machines; overlay/chord's `Clusters` is called for the log and the cluster's
members. summaries/ listens above, behind the Protocol `Summaries` of ``registrations.registry``.
"""

"""Registrations at the primary of the cluster that owns a tree: made, renewed, ended, brought back.

Read in this order: ``registry`` (registering: what has to be so before a SUBACK), with
``leaf_inbox`` (the requests of leaves, a little at a time) and ``leaf_quota`` (what is taken of a
leaf), ``policy_changes`` (registrations follow the policy), then ``registration_ends`` (ends and
drains) with ``registration_leases`` (renewing, lapsing), then what brings registrations here from
elsewhere: ``restoration`` (the trees of a lost cluster, or of one that merged with this one),
``tree_stop`` (nothing is served any more), ``arc_merge`` (a cluster merges with the next one) and
``registry_merge`` (two rings become one).

All of it stands on the room above, owner/: its log, its `OwnedTree`s and the hosts that it may use.
owner/ knows nothing of this room: a change of a tree's map goes on without it. The numbers that are
no settings are in owner's ``constants``.
"""

"""Registrations at the primary of the cluster that owns a tree: made, renewed, ended, brought back.

Read in this order: ``registry`` (registering: what has to be so before a SUBACK, and what is taken
of a leaf), with ``leaf_inbox`` (the requests of leaves, a little at a time), ``policy_changes``
(registrations follow the policy), then ``registration_ends`` (ends and drains, leases that are
renewed or lapse), then what brings registrations here from elsewhere: ``restoration`` (the trees of
a lost cluster, or of one that merged with this one) and ``registry_merge`` (a cluster merges with
the next one, or two rings become one).

All of it stands on the room above, owner/: its log, its `OwnedTree`s and the hosts that it may use.
owner/ knows nothing of this room: a change of a tree's map goes on without it. The numbers that are
no settings are in owner's ``constants``.
"""

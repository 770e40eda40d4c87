"""Bounds and times of a subscriber's work, and what each number would be measured by.

None of them was measured. Times are seconds. Numbers that a user may set are in
overlay/settings.py.
"""

from __future__ import annotations

# --- registrar.py ---

RETRY_PAUSE = 0.25
"""Until what was refused, or asked of a lost node, is tried again. By the time that an election
takes beside the messages that are refused meanwhile."""

POPULARITY_MOST = 4_096
"""Attributes whose popularity is remembered. By the attributes that one node's subscriptions
name."""

SENT_AT_ONCE = 256
"""Registrations that are sent in one turn: 3 ms (measured)."""

REGISTRATIONS_LOOKED_AT = 1_024
"""… that are looked at for that in one turn: 1 ms. Guess."""

LEAF_WINDOW = 768
"""Registrations of a leaf that an owner has not answered: half of what it lets wait of all leaves,
a second's worth (overlay/upper_tree/owner/registrations/leaf_inbox.py)."""

LEAF_SENT_AT_ONCE = 32
"""Registrations that a leaf sends in one turn: of a tenant's an owner narrows each when it comes,
and that takes 0.1 ms."""

PUT_OFF_MOST = 60.0
"""Seconds for which an owner can put off a registration."""

PUT_OFF_SAID_EVERY = 10.0
"""Seconds between two incidents that say that a node puts off what is asked of it."""

UNREGISTERED_AT_ONCE = 1_024
"""Registrations whose owners are asked in one turn to end them: 5 ms (measured)."""

# --- renewals.py ---

RENEW_WITHIN = 0.5
"""The subscribers of a cluster spread their renewals over so long after it was lost. By the new
owner's longest turn in bench/recovery."""

STALL_SHARE = 6
"""A node that stood still for 1/6 of a lease renews at once: half of the time between two renewals,
so that two that are late do not add up to a lease. Shorter stalls are those of a loaded machine."""

CONFIRM_FOR, CONFIRM_PERIOD = 12.0, 2.0
"""After that a subscriber renews often: for how long, and the time between two renewals. What a new
owner does not know yet cannot be claimed before it was registered again. By when the last
registration of a lost cluster is there again."""

STOOD_STILL = 1.0
"""Seconds by which this node was late with its timers so that others may hold something for it:
they suspect its links by then (`links.heartbeat`)."""

UNDER_WAY = 8.0
"""Seconds before a pause within which what was published may have been under way, and after which
an owner has noticed that a host has ended: longer than a silent link is waited for
(`links.dead_after`, six)."""

# --- renewals.py: confirmations ---

DOUBT_SHARE = 0.8
"""The share of a lease after which, without an answered renewal, it may have ended. The clocks of
two nodes differ in rate by less than a fifth, as for the other leases (docs/design/clusters.md)."""

RENEWALS_KEPT = 1_024
"""Renewals without an answer that are remembered: one per owner and round. By the clusters in which
one node's subscriptions are."""

# --- publication_order.py ---

ORDERED_EVENTS, ORDERED_BYTES = 4_096, 8 * 1024 * 1024
"""Events that wait for earlier ones, of all publishers together, and their bytes: beyond, those of
a publisher wait no more. 50 ms of a busy node. Not measured; would be measured by `order_held`."""

ORDERED_SOURCES, ORDERED_HOSTS = 1_024, 64
"""Publishers, and hosts of each, of which it is remembered up to where they have delivered: those
heard of first are forgotten, and then waited for without need. Some 10 MB at most."""

LOOKED_AT_ONCE = 64
"""Waiting events of a publisher that are gone through whenever another one comes: 0.1 ms."""

LOOK_PAUSE = 10e-6
"""Seconds per waiting event between two times that more are gone through, which takes a fifth of
that: where links heal, thousands come at once, each with word of others."""

SHOWN_AT_ONCE = 512
"""Events that have waited and are shown in one turn: some 10 ms."""

# --- publication_order.py: parts ---

PARTS_MOST = 256
"""Parts of trees of which it is remembered which subscriptions reach beyond them: the virtual nodes
from which one node has events. By how often a part is looked at again."""

# --- receiver.py ---

SAMPLED_EVENTS = 8
"""Events of a message whose attributes are remembered for completion, or up to twice as many: what
comes together is mostly of one kind. By the attributes that completion misses."""

HELD_SHARE = 0.8
"""The share of the time for which a host says that it held a delivery: so long ago at least, by
this node's clock, it has matched. The clocks of two nodes differ in rate by less than a fifth, as
for leases (docs/design/clusters.md)."""

YOUNGER_MOST = 1_024
"""Events that were held, of which it is remembered which subscriptions are younger: as long as they
may wait for others of their publisher."""

"""Bounds and times of the work for clients, and what each number would be measured by.

Unless a line says that a number was measured, it was not.
"""

from __future__ import annotations

MAX_SUBSCRIPTIONS = 100_000
"""Subscriptions of one node. By the memory of a node with this many, and the length of its longest
turn."""

ENDED_AT_ONCE = 256
"""Conjunctions of subscriptions that are ended in one turn when their program goes: 10 ms
(measured)."""

ENDED_MOST = 256
"""Subscriptions that have ended and that `canopy why` can still explain. Some kilobytes each. Not
measured; by how long after the end of a program its events are asked about."""

SUBSCRIPTIONS_NAMED = 10
"""Subscriptions that are named where one is asked for that is not there: what fits on a screen."""

MISSED_MOST = 64
"""Reports of given up deliveries that are remembered for `canopy why`."""

WHY_TIMEOUT = 2.0
"""Seconds after which a `Why` is answered with what is known. By the slowest answer of a
neighbour."""

WHY_PEERS_MOST = 32
"""Neighbours that are asked about an event at once. By how often none of them remembers it."""

QUERY_TIMEOUT = 3.0
"""Seconds after which a question about ring or trees is answered with what is known. By the time of
a walk around the largest ring."""

DRY_RUN_AGAIN = 1.0
"""Seconds after which a dry run asks an owner once more, or the next replica of a host that has not
answered: several round trips, and a third of `QUERY_TIMEOUT`."""

EVENTS_BYTES = 1 << 20
"""Bytes of the events in one answer to `GetEvents`: an eighth of a frame."""

NAMED_MOST = 256
"""Subscriptions that a notice of a gap names, 10 kB; of more it is said that it may be any. By the
size of a frame (`canopy.wire.constants.CLIENT_FRAME`)."""

GAP_LASTS = 30.0
"""Seconds after which programs get a second notice of a gap that began where this node's
registrations were unknown. By then no part of the overlay lacks them: two rings are one within 15 s
(docs/lab/recovery.md), and a publisher uses an answer of a former owner for `tree.summary_term` at
most. By the last event that is missing after a long partition (canopy/sim)."""

MARK_PERIOD = 5.0
"""Seconds between two marks, by which the gap of a program whose node goes away may begin too early
beside what is under way. Each is a frame of some 20 bytes to each program that asks for them: 0.2
writes per second and program."""

SLACK = 2.0
"""Seconds beyond `links.dead_after` for which an event may be under way: within that its link is
given up, and it goes by a relay or is held (delivery/hold.py)."""

SETTLES = 10.0
"""Seconds after a node can be reached again until what others held for it has come: they try it
every second (`HOLD_CHECK`), or a relay for eight (`RELAY_TRIAL`), and send 50 MB per second. By the
age of events that come after a long pause."""

STOOD_STILL = 1.0
"""Seconds by which a timer is late so that the node stood still: others suspect its links by
then (`links.heartbeat`)."""

HINDRANCES_MOST = 4_096
"""Reasons for which deliveries may be incomplete: as many as nodes may be out of reach
(`LOST_PEERS_MOST`)."""

LOST_FOR = 3_600.0
"""Seconds for which a node that was lost may still have something for this one: as long as it
reports what it gave up (`NOTICE_FOR`)."""

CLOCK_SET = 0.5
"""Seconds by which the wall clock moves against the monotonic one so that it was set: more than
clocks drift between two marks."""

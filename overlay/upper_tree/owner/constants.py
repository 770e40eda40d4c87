"""Bounds and times of the owner's work, and what each number would be measured by.

Unless a line says that a number was measured, it was not. Times are seconds. Numbers that a user
may set are in overlay/settings.py.
"""

from __future__ import annotations

# --- owner.py, owned_tree.py ---

REBALANCE_DELAY = 0.2
"""Between a change of the load and a look at it, so that a burst is looked at once. By the time
from a burst's first registration to its last."""

MAX_STALE_HOSTS = 64
"""Stale hosts that a tree remembers: more than any tree loses before the next look at its load. By
the hosts of one tree that are lost within `SCAN_PERIOD` in the largest simulated failure."""

SCAN_PERIOD = 1.0
"""Between scans when nothing happens: leases end, hosts stay unfit. By how long a virtual node may
be too large beside the share of a turn that scans take."""

SCAN_SHARE = 64
"""A scan of all registrations is due sooner if one in this many has changed. As above."""

# --- host_supervisor.py ---

REPLACED_FOR = 120.0
"""Seconds for which subscribers are told that a tree has lost a host: two leases of their
registrations. Who stood still for longer has to register again, and reports that gap."""

LOST_NODES_MOST = 10_000
"""Lost nodes that are remembered until they are back, the oldest forgotten first. By the nodes that
a member of the largest cluster loses for good within a day."""

# --- host_supervisor.py: silent hosts ---

SILENT_LEAST = 1.0
"""Seconds without an answer after which a host that has virtual nodes alone may be relieved: more
than a host that is loaded takes for its longest turn. By the virtual nodes that are given a second
host on a machine whose processors are busy, beside the delay of events for a host that died."""

DETOUR_LEAST, DETOUR_ROUND_TRIPS = 0.3, 4.0
"""Seconds, and round trips, that other nodes are given to reach a host whose link is suspected: a
detour is looked for at once, and asks twice over four hops (overlay/links/links.py)."""

SILENT_LATE = 0.25
"""Seconds of delay of the own check from which this node takes itself to have stood still: it then
handles what came meanwhile before it judges others."""

RELIEVED_FOR = 15.0
"""Seconds that a host that was silent shares its virtual nodes with the one that relieves it: as
long as hosts of a burst are kept (`POOL_KEPT`). By the maps that change around a host that stands
still again and again."""

# --- lease_grants.py ---

BEATS = 5
"""Serving beats in the shortest term: with one on its way and one lost, a lease still stands."""

TERM_SHARE = 4.0
"""A term is the longest measured time of an answer times this. By how often a lease ends at a host
that was heard all the time, on links that lose frames."""

NEARLY = 0.9
"""The share of the time between two beats after which one is due, since timers are not exact."""

BEATS_REMEMBERED = 32
"""Beats per host whose time of sending the owner remembers, to measure how long answers take: more
than are under way within `tree.serving_most`."""

# --- host_selector.py, placement.py ---

FEWEST_HOSTS = 2
"""Number of match brokers below which standby and primary host as well: with one host more, losing
one costs no event."""

FILL = 0.75
"""The share of a host's room that a plan fills, so that what grows does not have to move at once.
By the registrations that are moved per hour under a load that comes and goes."""

SUBSCRIBER_CUTS_MOST = 2_048
"""Cuts of one tree by its subscriptions (`tree.placement: subscribers`). A map is sent whole to who
takes a cluster over; the paper's figures have 10,000 subscriptions with 486 attributes, 160 each on
average. Not measured."""

PLAN_PERIOD = 5.0
"""Between two plans for the load's sake: what the last one moves has mostly arrived by then. By the
time that a change of a full virtual node takes."""

REPACK_SHARE = 2
"""Plans that need no more than half of the hosts in use are packed again. By what a move costs
beside the visits that it saves."""

TARGET = 0.5
"""The share of a host's time that events are to ask for: hosts at which work comes by chance have
queues of a few events up to some four fifths, and the rest is for what comes until the next plan.
By the 99th percentile of deliveries over the rate (bench/experiments/scaling)."""

SPARE = 0.2
"""Share of `TARGET` by which a host may exceed its part before something moves."""

ALONE_SHARE = 0.8
"""A virtual node may move by itself if this share of its events visits nothing else at its host:
the others cost a visit more then. By visits per event over the maps that change."""

REPLICAS_MOST = 64
"""Hosts of one virtual node, however busy: an acceptance names them to a publisher in 3 kB. By the
events per second that one value can have."""

RELIEF_LEAST, RELIEF_MOST = 1.0, 60.0
"""Between two plans, or two rounds of cuts, because hosts are busy: at first, what the last one
moves has mostly arrived by then; and at most, where they do not help. By the maps that change under
a steady load."""

RELIEF_SOON = 0.4
"""… and where the load has grown since, or what was cut is to be placed: until those hosts report
that have been given something. By the time until 99 % of deliveries are in time again after a burst
(bench/experiments/scaling)."""

GROWN = 1.5
"""A load has grown if it is this many times the load of the last plan: more than reports deviate
where hosts share one machine."""

# --- host_selector.py: regions ---

REGION_SHARE = 0.05
"""Share of a cluster's registrations from which a region is to have hosts of all of its trees: each
of its publishers then visits one nearby. Guess; to be measured by crossings per event over the
registrations that each further region has installed."""

REGIONS_MOST = 8
"""Regions with hosts of one cluster: a SUBACK waits for all hosts. Guess."""

# --- host_pool.py ---

POOL_MOST = 1_024
"""Hosts beside a cluster's members: each is sent a serving beat 1.25 times a second."""

ASKED_MOST = 32
"""Nodes that are asked to host in one step."""

ASK_TIMEOUT, ASK_AGAIN = 1.0, 5.0
"""Seconds for which a node that was asked may answer, and after which it is asked again: as
recruits are (overlay/chord/constants.py)."""

CONFIRM_WITHIN = 3.0
"""Seconds for which a new primary takes the hosts that it finds in the maps to be there, though
they do not answer."""

CANDIDATES_MOST = 1_024
"""Nodes that are remembered as possible hosts, or as having refused."""

POOL_KEPT = 15.0
"""Hosts of which half would do are kept for so long: a burst that comes again finds them."""

# --- reported_loads.py ---

BUSY, OVERLOADED = 0.7, 1.0
"""A host is busy if two reports say that it needs the first share of its time, or one report says
that it needs the second. `BUSY` is far enough from `TARGET` for a host that was relieved not to be
busy again by chance. By the maps that change under a steady load."""

HALF_LIFE = 5.0
"""Seconds in which what is known of a load that has ended falls by half: what a burst has grown is
kept for some ten of them. By the bursts that come again."""

ESTIMATED_FOR = 2.5
"""Seconds for which the part of a virtual node that was cut is taken to ask for its share at least:
until all of its hosts have reported twice."""

REPORT_VALID = 5.0
"""Seconds for which a host's report counts: some serving beats may be lost."""

REPORTS_WITHIN = 2.5
"""Seconds after an election within which hosts have reported: until then nothing is merged, and
nothing planned. Three serving beats."""

SECONDS_SHARE = 0.25
"""Share of a host's load that a virtual node needs before the host reports how long its events
take. A host may have some shards of one value."""

LOADS_REMEMBERED = 16_384
"""Virtual nodes whose load is remembered: 64 of each of 256 hosts."""

SPLIT_SHARE = 0.25
"""A busy cluster splits only where each part has at least this share of the load: another primary
costs members, and has to relieve the present one."""

# --- rebalance.py ---

SPLIT_AFTER = 10.0
"""Seconds that a cluster is busy without a pause before it splits for that, since splits are not
undone. By the bursts that last longer."""

GROW_SHARE = 1.5
"""A virtual node is cut at a busy host if it alone needs this many hosts' shares: its parts have
between half a share and one, and so are not cut again by chance."""

CUTS_MOST = 64
"""Parts into which one virtual node is cut at once. By the bytes of one entry of the log."""

SLOW, SHARD_SECONDS = 0.03, 0.015
"""Seconds that one event of a hot value takes from which the value is cut into shards, and which an
event should take in each. A host with half of its time asked for has some five events in a row now
and then: of 25 ms each they take a tenth of a second, and then shards cost messages and gain
nothing. Far enough apart for a shard not to be cut again by chance. By the 99th percentile of
deliveries (bench/experiments/scaling)."""

SHARDED_BUSY = 0.15
"""A value is cut into shards only if its events take this share of a host's time: as much as
neighbours are merged below (`MERGED_BUSY`)."""

HOT_SHARE = 0.5
"""Share of a slow virtual node's events that one value must have to be cut out of it: how long the
others take is not known."""

SHARDS_IDLE = 0.02
"""Shards of a value that together ask for less of a host's time of late are merged: next to no
events come, so that none waits for another."""

MERGED_BUSY = 0.15
"""Neighbours that together ask for less of a host's time of late are merged: a third of what
one of them has after it was cut."""


SCANNED_AT_ONCE, CHANGE_COST = 64, 16
"""Trees that are scanned in one turn, some 2 ms, and for how many of them one counts that has to
be changed (measured)."""

PREFERRED_MOST = 32
"""Subscribers that are recruited as hosts before other nodes. By the share of deliveries that stay
on the host that matched them."""

SUBSCRIBERS_SEEN = 1_024
"""Registrations of a busy tree that are looked at for subscribers who might host it."""

LEADERS = 2
"""Members beside the match brokers: primary and standby (P1)."""

REMOVE_AFTER = 5.0
"""A tree without registrations is kept for so long, for a subscriber who comes back. By how soon
clients subscribe again after a restart."""

MERGE_SHARE = 4
"""Two neighbours are merged if together they have less than 1/4 of what splits one: far enough from
the split's threshold not to oscillate. By the splits and merges per hour under a load that comes
and goes."""

# --- registration_transfers.py ---

TRANSFERRED_AT_ONCE = 2_048
"""Registrations that hosts are given in one turn, each to all hosts that gain it: 20 ms
(measured)."""

# --- registry.py ---

ACKNOWLEDGE_PERIOD = 0.5
"""Between two looks at all registrations that wait for their SUBACK, while the log grows: what each
waits for is looked at when it comes, so this finds only what had no sign of its own. By the share
of a turn that it takes with `sliced_inbox.WAITING_MOST` registrations waiting."""

# --- policy_changes.py ---

LOOKED_AT_ONCE = 5_000
"""Registrations that a turn looks at when another policy holds. Guess: some 2 ms."""

NARROWED_AT_ONCE = 64
"""Registrations that a turn narrows again: a tenth of a millisecond each. Guess."""

# --- registration_ends.py ---

UNREGISTERED_MOST = 16_384
"""Answers to Unregister that wait for the log; a subscriber that gets none asks again. By the most
that end within one round trip to the voters."""

# --- restoration.py ---

RESTORE_LEAST = 1.5
"""A lost cluster's arc waits for registrations for so long at least: who missed the owner looks for
another twice a second, and renews within half a second. By when the last subscriber has registered
again (bench/recovery)."""

RESTORE_QUIET = 1.0
"""… and for so long after the last registration that came. As above."""

RESTORE_MOST = 8.0
"""… and for so long at most: some rounds of gossip, by which those hear of it, too, who had nothing
to do with the owner for long. As above."""

# --- registry_merge.py ---

MERGE_PERIOD = 0.1
"""Between two looks at how far a merging is. By how long both rings' events wait, beside the load
of looking."""

ADOPT_AGAIN = 0.5
"""After a refusal, or without an answer, until an owner in the winning ring is asked again. By the
time that a lookup takes there."""

AUDIENCE_MOST = 10_000
"""Subscribers that each owner informs of the end of its ring; the others hear of it from them. By
the time until all nodes of the largest simulated ring have gone over."""

# --- owned_tree.py: summaries ---

SUMMARY_PAUSE_LEAST, SUMMARY_PAUSE_MOST = 0.25, 4.0
"""Without a contradicting registration for so long, a summary is made again: at first, and where
summaries did not last. By the visits that summaries save less the messages that recall them."""

SUMMARY_STALE_SHARE = 4
"""A summary is made again when a quarter of what it was made of has ended. As above."""

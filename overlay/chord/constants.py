"""Every number of the clusters and their ring that is no setting (settings: `RingSettings`,
`ClusterSettings` and `ElectionSettings` in `overlay.settings`).

Each says where it comes from. *Guess* means that it was never measured; then it says what would
measure it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import Final

# --- keys.py ---

KEYS_KEPT: Final = 4_096
"""Attributes whose keys are kept: as many as a publisher's cached locations (`tree.locations`). A
registration, and a message about a tree, asks for its attribute's key several times."""

# --- ring: what is known, lookups ---

HINTS_MOST: Final = 16
"""Ways into the ring that are kept from gossip. Guess; to be measured by how many of them answer
after a partition (`lookups_failed` right after it heals)."""

UNREACHABLE_MOST: Final = 256
"""Nodes that are remembered as unreachable. Guess; to be measured by the number of different
primaries that a node loses within `UNREACHABLE_FOR` in a mass failure."""

UNREACHABLE_FOR: Final = 10.0
"""Seconds for which routes avoid a node that did not answer. Guess; to be measured by the hops of
lookups under churn."""

MOST_HOPS: Final = 64
"""Hops after which a lookup is taken to go around in circles: O(log n) needs 64 hops only where
there are 2^64 clusters."""

LOOKUP_TRIES: Final = 4
"""Ways that a lookup is tried along before OwnerUnknown. Guess; to be measured by `lookups_failed`
per lookup under churn."""

LOOKUPS_MOST: Final = 4_096
"""Lookups under way at a time. Guess; to be measured by the highest number that publishers cause
when all their trees are unknown at once."""

LOOKUPS_WAITING_MOST: Final = 1_024
"""Lookups that wait at a member for another primary; beyond that the oldest is dropped, and its
origin tries again. Guess; to be measured by `lookups_dropped` during elections."""

WALK_STEPS_MOST: Final = 4_096
"""Clusters that one walk around the ring visits. Guess: far more clusters than ever ran; to be
measured by the clusters of the largest overlay."""

# --- ring: other rings, contradictions ---

RING_MET_AGAIN: Final = 1.0
"""Seconds for which the same other ring is no news: gossip repeats itself. Guess; to be measured by
the time that two rings take to merge against the number of `RingMet` messages."""

RINGS_MOST: Final = 16
"""Other rings, and rings that have ended, that are remembered. Guess: one is rare; to be measured
by the rings that many founders without a connection make."""

UNHEARD_FOR: Final = 20.0
"""A cluster before the own one that has not stabilised for so long is looked for as if it were
lost: many rounds (`ring.stabilise`), and longer than a split or a merge leaves an arc between two
descriptions. Guess; to be measured by `predecessors_unheard` while clusters split and merge."""

CONTRADICTION_AGAIN: Final = 2.0
"""Seconds for which a primary that gossip names and our pointers contradict is not asked again.
Guess; to be measured by how soon a ring is one again after a partition."""

CONTRADICTIONS_MOST: Final = 64
"""Number of such primaries that are remembered. Guess; to be measured like
`CONTRADICTION_AGAIN`."""

# --- ring: claims ---

CLAIMS_MOST: Final = 64
"""Claims about who leads that are in doubt, and as many that were settled, where nodes have keys.
Guess: as many clusters as change their primary within seconds; to be measured by `claims_doubted`
in a mass failure."""

CLAIM_SETTLED_FOR: Final = 60.0
"""Seconds for which a claim that was believed is not looked at again. Its epoch is known by
then."""

CLAIM_REFUSED_FOR: Final = 3.0
"""Seconds for which a claim that was refused is not looked at again: more nodes know the truth by
then. Guess; to be measured by the time until all know who leads in the place of a lost cluster."""

CLAIM_FORKS_MOST: Final = 1_024
"""By how many forks (`epochs`) a claim may be above what is known. A cluster that is lost once a
second is out of sight for a quarter of an hour; a liar that claims the highest epoch is refused, so
that there is always a higher one."""

FIRST_FORKS_MOST: Final = 1 << 20
"""The same of a cluster of which nothing is known: half of all forks that there can be."""

SEALS_KEPT: Final = 256
"""Descriptions whose signature was verified, by which the same one is not verified again: as many
as `ring.known_clusters`."""

# --- cluster: votes ---

EPOCH_STEP_MOST: Final = 1 << 35
"""By how much one voter's word raises the epoch that the next candidate asks for: eight forks
(`epochs.FORK`). A voter that lies at each of 262,144 elections uses all epochs up."""

RAISES_MOST: Final = 3
RAISE_AGAIN: Final = 30.0
"""One node that says it has voted for another epoch, or leads, moves a primary that a majority
follows to so many elections in so many seconds, where nodes have keys. Guess: an honest one says so
once, after a partition."""

# --- cluster: the log ---

ENTRY_OVERHEAD: Final = 160
"""Bytes that each entry of a log counts in memory beside its body: two objects and a pointer."""

DISCONNECT_ASSUMED: Final = 6.0
"""Seconds for which a voter is taken to be out of reach as long as none was: `links.dead_after`,
after which it is voted out."""

DISCONNECT_LEAST: Final = 1.0
"""A shorter silence of a voter is no disconnect: its answers to heartbeats were late."""

SNAPSHOT_PIECE: Final = 128 * 1024
"""Entries per message: half of a link's batch (`LinkSettings.frame`), so that the rest of the
message and other messages fit beside it."""

JOURNAL_GROWTH_LEAST: Final = 256 * 1024
"""A state file that has grown by less is not rewritten. Guess; to be measured by the share of
written bytes that snapshots make."""

JOURNAL_GROWTH: Final = 2
"""A snapshot is written when the entries since the last one are this many times its size: then at
most a third of all that is written is written again. Guess; to be measured by bytes written against
the time to read the file at start."""

VOTED_CLUSTERS_MOST: Final = 256
"""Clusters in which a node remembers its vote. A node serves in one at a time, so this is its whole
life. Guess; to be measured by the clusters that a node serves in per month."""

# --- cluster: heartbeats, lease, elections ---

LEASE_SHARE: Final = 0.8
"""Share of the election timeout for which a voter's answer lets the primary decide: clocks may
differ in rate by a fifth. Far more than any clock does, since a process that is slow to look at its
clock counts, too."""

TIMEOUT_SHARE: Final = 2.0
"""Election timeout in longest measured answers of a majority: the next may be longer than any
before. Guess; to be measured by elections of live primaries under loss (bench/recovery)."""

TIMEOUT_HALF_LIFE: Final = 20.0
"""After so long a measured answer counts half: a network that got better is trusted within a
minute. Guess; to be measured like `TIMEOUT_SHARE`."""

STORED_TIMEOUT_SHARE: Final = 6.0
"""A stored election timeout is replaced when it is this many times the required one. Each is stored
at twice its value, and an outage doubles it. Guess; to be measured by how often it is written on a
slow network."""

TIMEOUT_MOST: Final = 3_600.0
"""A longer election timeout is refused: the cluster would wait an hour for a dead primary."""

HEARTBEATS_KEPT: Final = 64
"""Heartbeats whose time of sending is remembered: more than fit into any lease."""

LEASES_KEPT: Final = 256
"""Members whose last answer is remembered: far more than serve at a time."""

LEADERLESS_AFTER: Final = 5.0
"""A pause of heartbeats that is longer counts as a time without a primary: an election takes one or
two. Guess; to be measured by the times of elections (bench/recovery)."""

STALLED_FOR: Final = 60.0
"""Seconds for which a node that stood still for a heartbeat of its links lets others stand for
election first (T6: Tensor looks back on half an hour of logs). Guess; to be measured by how soon
nodes that stalled once stall again."""

# --- membership ---

RECRUITS_ASKED: Final = 2
"""Nodes asked at a time to serve: one is slow, many overshoot. Guess; to be measured by the time
from founding to a full cluster."""

RECRUIT_AGAIN: Final = 5.0
"""Seconds for which a node that refused is not asked again. Guess; to be measured by the share of
`Recruit` messages that are refused."""

IDLE_LEAST: Final = 3.0
"""Seconds for which a node must be idle before it serves in a cluster that has its size already and
grows for a split or its load: a cluster that has lost members comes first. By then its primary has
noticed (a closed link at once) and knows of the idle node. Guess; to be measured by the time for
which clusters lack members under churn."""

RECRUITS_PREFERRED: Final = 32
"""Nodes that the registry may prefer at a time. Guess; to be measured by how many deliveries stay
within a node if members are subscribers."""

MEMBERS_MOST: Final = 64
"""Members that the load may recruit: as many as `cluster.size` may ask for."""

CONTACT_AGAIN: Final = 2.0
"""Time between attempts of a member to reach a primary that does not answer. Guess; to be measured
by how long members that were cut off serve under an old description."""

LEAVE_WITHIN: Final = 10.0
"""After so long a leaving member goes even if it was not released. What it hosted is then moved as
if it had died. Guess; to be measured by the time that moving a full host takes."""

HELLOS_KEPT: Final = 64
"""HELLOs that wait until this node follows who sent them. As many as claims that may be in doubt:
those are why they wait."""

REMOVED_MOST: Final = 64
"""Lost members that are remembered, to be released when they return. Guess; to be measured by the
members that a cluster loses within a day."""

SPLIT_LEAST: Final = 6
"""Members below which a cluster does not split: three voters for each half (P1), unless its
configured size is smaller."""

EXHAUSTED_AFTER: Final = 5.0
"""After so long without a node to recruit a split goes on with fewer members than wanted. Guess; to
be measured by how often an idle node appears later."""

QUIESCE_MOST: Final = 5.0
"""Seconds for which a split may quiesce its arc: no registration is taken and no summary given in
it meanwhile. What is under way takes some round trips, or the time to install some thousand
registrations; what waits for a lost host's lease (`tree.serving_most`) makes the split wait, not
the arc. Guess; to be measured by the splits that are given up under load."""

HAND_OVER_MOST: Final = 30.0
"""Seconds that a hand-over may take, quiescing included. Guess; to be measured by the longest that
succeeds under load."""

ASK_ARC_EVERY: Final = 1.0
"""Time between two questions of a coming primary whether its arc is decided. Guess; to be measured
by how long arcs are without an owner when the old primary dies in a split."""

MERGE_LITTLE: Final = 0.25
"""A cluster merges with the next one only if it owns at most this share of what makes one split
(`cluster.split_trees`, `split_registrations`, `split_load`) …"""

MERGE_ROOM: Final = 0.5
"""… and both together at most this: what has just merged is as far from splitting as what has just
split is from merging. By how often a cluster that merged splits again."""

MERGE_AGAIN: Final = 10.0
"""Seconds for which a merge that was refused or given up is not tried again, half more or less by
chance, so that two clusters that offer themselves to each other do not go on so. Guess; to be
measured by the merges that are given up."""

MERGE_STATE_AGAIN: Final = 5.0
"""After so long the state of an arc is offered again to the cluster that should have it by then.
Guess; to be measured by the time that writing a quarter of a full cluster's state takes."""

PROMISE_SILENT: Final = 5.0
"""A cluster whose arc was promised to be taken and that is not heard for so long is looked for as
if it were lost: as long as it may take to stop its trees (`QUIESCE_MOST`)."""

# --- recovery: copies of the log outside of the cluster ---

OBSERVERS: Final = 2
"""Copies of a log outside of its cluster: one may be lost together with it. Guess; to be measured
by registrations lost in mass failures."""

OBSERVER_HEARD_EVERY: Final = 0.5
"""After so long an observer hears that the primary lives, if nothing else was said: as often as the
primary looks at its members (`ClusterSettings.recruit_period`)."""

OBSERVER_AWAITED: Final = 2.0
"""Seconds for which a SUBACK waits for an observer that does not answer: four of its heartbeats.
Guess; to be measured by the slowest SUBACK when an observer dies."""

OBSERVER_SILENT_MOST: Final = 6.0
"""Seconds for which an observer that does not answer stays one, while its link lives: as long as
links wait (`LinkSettings.dead_after`). Another one costs the whole state, with which a busy machine
becomes busier: replaced after `OBSERVER_AWAITED` at a load of 18, two observers of 10,000
subscriptions took a megabyte a second, for ever."""

OBSERVER_AGAIN: Final = 10.0
"""Seconds for which an observer that did not answer is not asked again. Guess; to be measured by
how often it answers then."""

OBSERVER_LAG_MOST: Final = 4_096
"""Entries that an observer may not have acknowledged; then it gets none until it answers. Beyond
what the log's tail keeps its copy begins again anyway."""

OBSERVED_LOGS_MOST: Final = 4
"""Copies that a node keeps: a cluster has one predecessor in the ring, or two while the ring
changes. Guess; to be measured by `observing_refused`."""

OBSERVED_LOG_KEPT: Final = 60.0
"""Seconds for which a copy is kept after its primary was heard last: longer than any recovery, and
as long as a registration lives that is not renewed (`TreeSettings.lease`)."""

WHOLE_WITHIN: Final = LEASE_SHARE * OBSERVER_AWAITED
"""A copy is whole if its primary was heard so shortly before its link was lost; the margin is that
of leases."""

# --- recovery of a lost cluster ---

RECOVERY_ROUND: Final = 0.5
"""Time between two looks at lost clusters. Guess; to be measured by the time to recover a cluster
(bench/recovery), as are all numbers of this section."""

LOST_ROUND_TRIPS: Final = 4.0
"""A cluster counts as lost no sooner than after the time that a majority takes to answer, times
this: an election that may still succeed has had two rounds. Guess."""

RESTARTING: Final = 10.0
"""Seconds after its own start for which a node takes no cluster for lost: nodes that were stopped
with it may be starting as well. One with as much of the log may act meanwhile. Guess."""

AGREE_AFTER: Final = 0.9
"""Seconds for which a node has looked for a leader itself before it agrees with another: nearly two
rounds. Guess."""

RANK_WAIT: Final = 0.2
"""Seconds that each rank of members waits longer than the one before it, before it asks …"""

NEIGHBOUR_WAIT: Final = 0.3
"""… that the ring successor waits longer than members …"""

OUTSIDER_WAIT: Final = 0.3
"""… and that outsiders wait longer, with up to half a second by chance. Guesses."""

COPY_WAIT: Final = 0.5
"""Seconds that an outsider without a copy of the log waits longer than one with it, so that the
other was agreed to before. Guess."""

ISOLATED_WAIT: Final = 12.0
"""After so long a node acts that reaches no other node: long enough for a pause or a short
partition to end. Guess."""

ANSWER_WITHIN: Final = 0.4
"""Seconds for an answer, at least …"""

ANSWER_MOST: Final = 2.0
"""… and at most, where members of the lost cluster did not answer and their links are not known to
be down: an outsider does not know how long messages take. Guesses."""

NEIGHBOURS_ASKED: Final = 6
"""Neighbours in the view that are asked beside the members. Guess."""

AGREED_FOR: Final = 3.0
"""Seconds for which a node that has agreed to one agrees to no other that is less fit. Guess."""

RECOVERY_AGAIN: Final = 1.5
"""Seconds for which a node waits after a refusal, half more or less by chance. Guess."""

LOST_MOST: Final = 64
"""Lost clusters that a node keeps in mind. Guess."""

LED_FOR: Final = 3.0
"""Seconds for which a leader that has answered this node is not looked for again because of what
others miss. Guess; to be measured by the messages of a large overlay that has lost a cluster."""

NOT_LOST_AFTER: Final = 10.0
"""A cluster that has been led for so long when it hears of its own fork was out of sight, not lost:
one that comes back hears of the fork sooner. Guess."""

# --- merging of two rings ---

MERGE_ROUND: Final = 0.3
"""Time between two rounds of a cluster that leads or follows a merge. Guess; to be measured by the
time that two rings take to merge (soak, rings), as are all numbers of this section."""

MERGE_PHASE_MOST: Final = 20.0
"""Seconds that a phase may take: longer than `tree.summary_term`, which a registration may have to
wait for, and as long as the longest serving lease. Guess."""

MERGE_REST: Final = 3.0
"""Time until a merge that took too long is tried again. Guess."""

MERGE_HEARD_WITHIN: Final = 4.0
"""A cluster that does not hear for so long from the one that leads goes on as before. Guess."""

MERGE_INFORM_EVERY: Final = 2.0
"""Time between two messages of a node about the better ring to primaries of its own. Guess."""

RING_LEADERLESS_AFTER: Final = 8.0
"""After so long without a word from any primary of its ring a node that serves nowhere goes over to
the better one: longer than recovering a cluster takes. Guess."""

BACKERS_MOST: Final = 3
"""Voters that have to serve in a ring for it to be as good as any: what a cluster has at least that
goes on without one of them. Of a ring with fewer the other one is better."""

BACKING_HOLDS: Final = 10.0
"""Seconds for which a node's word counts that it serves in a ring."""

BACKING_AGAIN: Final = 2.0
"""Seconds until a node is asked again whether it does. Guess: a few lookups' time."""

RING_DOUBTED_FOR: Final = 30.0
"""Seconds for which a ring that is not better is not looked at again, nor another one of the same
primary: who founds rings without end has this node ask its own few nodes twice in a minute."""

RING_UNBACKED_AFTER: Final = 45.0
"""After so long who serves under another primary, or nowhere, leaves a ring that has fewer voters
than one that is known. Longer than that ring takes to go over as a whole."""

RING_END_FAN_OUT: Final = 8
"""Neighbours that each node informs of a ring's end: all but e^-8 of the nodes hear it. Guess."""

RING_END_WITNESSES: Final = 2
"""Nodes that have to say that a ring has ended, where none is known to serve in it: one liar moves
nobody. Of a ring that ends each primary informs its members and neighbours, and these go on."""

RING_MET_FAN_OUT: Final = 3
"""Primaries of the own ring that one node informs of the better ring at a time. Guess."""

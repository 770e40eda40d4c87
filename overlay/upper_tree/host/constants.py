"""Bounds and times of a host's work, and what each number would be measured by.

Unless a line says that a number was measured, it was not. Times are seconds. Numbers that a user
may set are in overlay/settings.py.
"""

from __future__ import annotations

# --- host.py, visit_handler.py ---

HOP_BOUND = 64
"""Messages on a tree path after which an event is given back to its publisher as `TreeMoved`: far
over any tree's height (2^64 virtual nodes), so only a loop between stale slices meets it."""

EPOCHS_MOST = 4_096
"""Attributes whose owner's epoch a host remembers, also of trees that it serves no more, and arcs;
as many as a publisher's cached locations. By the trees that one host serves within a day."""

FORMER_FOR = 5.0
"""Seconds for which a host keeps what it had of a tree that was taken away: a new primary takes all
trees away from all hosts and gives them back at once. By the time that it takes to send them."""

RETAKEN = 7
"""A registration that the host has already costs 1 / (RETAKEN + 1) of one that it installs
(measured)."""

IDS_MOST = 4_096
"""Registrations that one event names to one node at once in counting routing (a node with more gets
the event once more): 4,096 ids of some 30 bytes keep a message far under a frame."""

NAMED_FROM = 16
"""Registrations of one node at a host from which a delivery names one that matches: some ten bytes
per event. Already with 64 matching takes a node three times as long as the check (measured)."""

ANNOUNCE_AGAIN = 1.0
"""After so long a publisher is sent all locations once more. Until then one that has forgotten them
sends its events to some access point of the tree. By the hops of a publisher's events after a lost
link, beside the bytes of acceptances."""

ANNOUNCED_MOST = 1_024
"""Publishers of which it is remembered what they were sent. By the publishers that visit one host
within `ANNOUNCE_AGAIN`."""

# --- shard_gatherings.py ---

GATHERED_EVENTS = 8_192
"""Events of which a host awaits other shards: as many as may wait to be matched (`EVENTS_MOST`)."""

PART_SILENT, PART_CHECK = 0.4, 0.2
"""A host that was asked for a shard is silent after so long, and how often that is looked at: a
little less than what makes a publisher ask elsewhere (`TIMEOUT_LEAST` in publisher/constants.py),
which would have all shards match the event again."""

GATHERED_FOR = 5.0
"""Seconds for which an event is gathered at most, and a silent host is asked last: its publisher
has visited others by then (`tree.retry`)."""

SILENT_HOSTS = 256
"""Silent hosts that are remembered: more than there are of one value (`REPLICAS_MOST` in
owner/constants.py)."""

# --- orphaned_trees.py ---

ORPHAN_PERIOD = 5.0
"""Between two looks for trees without a lease: an election ends, and its leases are granted, within
that. By the longest election in bench/recovery."""

FORKS_MOST = 64
"""Clusters in the place of lost ones that a host remembers, the last heard of. By the clusters that
are lost within a day in the largest simulated overlay."""

# --- orphaned_trees.py: leases ---

LEASE_SHARE = 0.8
"""The share of the term for which a host serves, as it counts the term: clocks may differ in rate
by a fifth, as between voters (overlay/chord/cluster/heartbeat.py)."""

REPLIES_MOST = 32
"""Own answers that a host remembers, per owner: more than fit into a term."""

LEASES_MOST = 1_024
"""Leases that a host has, and owners whose beats it remembers, the oldest forgotten first. By the
clusters whose trees one node serves: mostly one."""

# --- visit_scheduler.py ---

SLICE_SHARE = 4
"""A slice is this part of what waits: something urgent that comes overtakes the rest."""

SLICE_LEAST, SLICE_MOST = 4, 1_024
"""Events in a slice. A turn costs about what matching four events does: a frame for each interested
node, which it takes in a turn of its own. So small slices cost much; but the further behind a host
is, the larger they are, and the less they cost. (Slices of a few milliseconds would feed back: a
host that gets too little of its machine seems slow, so its slices become small, and it slower.)"""

SLICE_CALM, SLICE_SECONDS = 8, 0.05
"""Bounds of a slice where no subscriber names a level and so nothing is urgent: it has the events
that are matched within `SLICE_SECONDS`: with a turn of a second, the events of a whole second and
all messages of owners would wait for its end. It has at least `SLICE_CALM` events, which a turn
makes dearer by half."""

SLICE_BYTES = 1 << 20
"""Bytes of a slice's events, beyond which one event more may go: a link that carries less than
comes for its node is known to do so in the next turn only, and what was matched until then is
held. By a piece of held deliveries (delivery/constants.py)."""

SLICE_FIRST = 32
"""Events in a slice while nothing is known of how long they take: half a millisecond where matching
is as fast as usual, and measured before the next slice where it is not."""

GRADED_FOR = 1.0
"""Slices are small for so long after the last event came whose subscribers name a level: a few
times as long as what is urgent may be apart. By the delay of urgent events beside the throughput
(bench/experiments/timeliness)."""

HELD_BACK_CHECK = 0.02
"""Seconds after which a host that was held back looks again: as long as a piece of held deliveries
waits for the next (delivery/constants.py)."""

LITTLE_WORK, LITTLE_TIMED = 0.002, 0.02
"""Turns whose matching takes less than `LITTLE_WORK` seconds are timed only once every
`LITTLE_TIMED` seconds: timing one takes a timer, and so another turn for each event that comes
alone."""

MATCH_AT_ONCE = 256
"""Events that a host which has nothing to do yet matches in the turn in which they come at most:
one full visit (batches.py), if it takes no longer than `SLICE_SECONDS`."""

ACCEPTED_WITHIN = 0.005
"""Seconds within which a publisher hears that its events were taken, where few come at a time and
the next soon: a hundredth of the time after which it would take the host for silent. Of a thousand
events a second that come alone each costs 2.1 frames and 3.5 turns by that, and 2.7 and 4.0 without
(counted in the simulator, eight nodes)."""

ACCEPTED_FEW, ACCEPTED_TOGETHER = 4, 64
"""A publisher hears at once of a visit with more events than the first, and when more than the
second wait: one message for them all costs each event little. Guesses; to be measured by the
processor time of an event in visits of two to eight."""

WAITING_WORD = 0.4
"""Seconds after which a publisher that heard nothing is told at the latest that its events wait:
less than what makes it take a host for silent (`TIMEOUT_LEAST` in publisher/constants.py)."""

EVENTS_MOST = 8_192
"""Events that may wait at one host. At the 30,000 events per second that a host matches
(docs/lab/performance.md) they wait 0.3 s, a tenth of what makes their publishers ask again."""

BYTES_MOST = 32 * 1024 * 1024
"""Bytes of the events that may wait at one host. Events of the host's own clients do not count: its
publisher keeps them until they are accepted, and has its own bound. By a node's memory in a burst
of the largest events."""

# --- host.py: dry runs ---

LISTED_MOST = 2_000
"""Nodes and subscriptions that one answer to a dry run lists; what is beyond is counted. Some 50
bytes each, a tenth of the largest message."""

# --- served_loads.py ---

LOADS_PERIOD = 0.4
"""Seconds between two measurements of what virtual nodes ask for: half of the time between two
serving beats, so that each answer has a new one. By the time until a tree has grown (`canopy sim
scaling`)."""

TOGETHER_MOST = 64
"""Sets of trees that events visit together which are remembered: as many shapes of events as are
published at a time; others are looked at tree by tree."""

PLACES_LEAST, PLACES_MOST = 128, 256
"""Places of events that are drawn between two measurements, about, and that are remembered of one
tree: 128 find a median within a twelfth of the events in two of three cases (the deviation of a
binomial share), and take 2 kB."""

REPORTED_LEAST = 0.02
"""The least share of a host's time that is reported: a fiftieth changes no placement."""

LOADS_MOST = 64
"""Virtual nodes in one report, those first that ask for most; with `REPORTED_LEAST` no more than 50
can be there, except where a host is asked for more than it has."""

# --- host_offers.py ---

OFFER_BUSY = 0.5
"""Share of its time from which a node hosts for no other cluster: as much as owners give one host
(`TARGET` in owner/constants.py)."""

STOP_AGAIN = 1.0
"""After so long the owners hear again that a host leaves: another one may lead by then."""

LEAVE_WITHIN = 10.0
"""After so long a leaving host goes whatever it serves, as a leaving member does
(overlay/chord/constants.py)."""

# --- urgency.py ---

TYPES_MOST = 16
"""Types that one registration counts for; one that lists more counts for all. By the types that
selectors of real workloads list."""

# --- host.py ---

LIVES_MOST = 65_536
"""Nodes of which it is remembered which start of theirs has registered here: more than a host has
interested nodes. 8 MB. What is for one that is forgotten is tied to no start."""

LEAVES_MOST = 65_536
"""Subscribers that are remembered as leaves."""

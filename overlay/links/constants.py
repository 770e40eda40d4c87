"""Every number of the links that is no setting (those are `overlay.settings.LinkSettings`).

Each says where it comes from. *Guess* means that it was never measured; then it says what would
measure it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

# --- acknowledgements and retransmission ---

ACK_DELAY = 0.1
"""Seconds for which an acknowledgement waits for a batch to ride on. A frame of its own costs both
nodes a turn: with the 25 ms of QUIC (RFC 9000, section 18.2) one turn in three was for that.
Nothing waits for it as long as the window is not used up, and it is well below `MIN_RTO`."""

ACK_SHARE = 4
"""An acknowledgement is sent at once when 1/4 of the window is unacknowledged, so that the sender
never runs out of credit. Guess; to be measured by the throughput of one link with a full window."""

MIN_RTO = 0.5
"""The least time after which a peer that has not acknowledged is asked what it has: under load a
node may take some tenths of a second to look at what arrived. TCP's retransmission time-out is 1
(RFC 6298) or 0.2 (Linux). Guess; to be measured by `indirect_probes` in a loaded overlay."""

LATE_LEAST = 0.05
"""Seconds by which this node has to look late at an overdue acknowledgement before it counts as
late itself: longer than most turns, a tenth of `MIN_RTO`."""

LATE_REMEMBERED = 10.0
"""Half-life of the longest round trip, up to which a peer is not asked: processes that share a
processor are late every few seconds. Guess; to be measured by `indirect_probes` as well."""

QUEUE_DELAY = 0.25
"""Bytes in flight beyond the link's own round trip, in seconds of the peer's work: half of
`MIN_RTO`, and twice and a half the delay of acknowledgements, so that a link is never idle between
two of them. What waits longer waits with the sender, where heartbeats overtake it."""

LEAST_WINDOW = 64 * 1024
"""… and at least this many bytes: two batches of `links.frame`, one under way while one is
handled."""

FIRST_WINDOW = 256 * 1024
"""… and this many bytes before a round trip was measured. The window doubles with each short round
trip. Guess; to be measured by the time that a first megabyte takes."""

WINDOW_GROWTH = 1.25
"""… until it was once too large; then it grows by this factor: a sender pauses only briefly when
the window is too large again, so that a congested link is seen to drain (`HOLD_BACK_MOST` of
delivery)."""

LIST_HEAD = 5
"""Bytes that joining adds to the messages' own: MessagePack's longest array header."""

COMPRESS_FROM = 1_024
"""Smaller bodies are not worth zlib's 10 to 20 µs (setting `links.compress`)."""

# --- congestion ---

CONGESTED_SHARE = 8
"""A link is congested when over 1/8 of `links.queue` waits for credit: 8 MB, twice a window, so
that it stays busy. Guess; to be measured by the throughput of a link beside its node's memory."""

RELIEVED_SHARE = 8
"""… and no more when 1/8 of that has left: what waits elsewhere follows in pieces of about a
megabyte. As often it is said that a congested link drains."""

# --- suspicion ---

DIAL_SUSPECT_AFTER = 1.0
"""A link whose dial is not answered for so long is suspected: two round trips of half a second.
Guess; to be measured by the delays of deliveries around a paused node."""

REPORT_INTERVAL = 0.2
"""Between two LinkSuspected of one suspicion: the most by which it delays a message that takes
another way. Guess; measured the same way."""

FIRST_REPORT = 16
"""Messages that the first LinkSuspected names at most; each may carry dozens of events. Four times
as many each time after, as TCP's slow start: to a peer that is merely slow they go twice. Guess; to
be measured by the duplicates that relays cause under load."""

LARGEST_REPORT = 256
"""Messages that any LinkSuspected names at most: each costs some 0.1 ms where it is sent another
way, and all that is named is sent in that turn."""

FULL_REPORT_INTERVAL = 0.05
"""Between two LinkSuspected of that size: half of a processor. Guess."""

STALL_ANSWER = 2.0
"""After this node stood still for `links.dead_after`, a watched peer that does not answer for so
long counts as dead: it has given this node up by then, unless it stood still as well, and what
closed the connection may be lost (a suspended machine). Two heartbeats. Guess; to be measured by
the sessions that end though the peer still has them."""

# --- other ways to a silent peer ---

SILENT_HEARTBEATS = 2.5
"""Heartbeats without a frame after which another way to a watched, quiet peer is looked for: two
answers are missing. That leaves more than half of `links.dead_after`."""

LOOK_AGAIN = 1.0
"""Between the first two looks for another way to a silent peer; then twice as long each. So there
are three within `links.dead_after`, by other nodes each time."""

LOOK_MOST = 4.0
"""… up to this, which leaves one look within `links.dead_after` to a peer that was silent again and
again. The next look is the first one again after twice as long without any."""

DETOUR_GRACE = 0.05
"""After another node has reached a silent peer its own link is given so long to speak: both answers
may have come together, and be read in any order. A tenth of `MIN_RTO`."""

DETOUR_TIMEOUT = 2.5
"""Seconds that an answer by way of another node may take: four hops of half a second, and some.
Guess."""

# --- dialling ---

MAX_REFUSALS = 2
"""Refused dials in a row after which a session ends: a process listens as long as it lives. Two, so
that a peer that cannot be dialled has `links.retry_first` to dial this node instead. Guess."""

MAX_DOUBLINGS = 16
"""Exponential back-off stops doubling here: every sensible limit is reached by then, and the float
cannot overflow."""

MAX_AWAITING_HELLO = 1_024
"""Accepted connections that have not sent their Hello. Guess; bounds what unknown peers can open,
at about 10 kB each."""

MAX_HELLOS = 32
"""Hellos on one connection: a lossy transport repeats one at most six times in the five seconds of
`links.connect_timeout`, once to ask for a name and once for a session. The rest is margin."""

# --- seeds ---

MAX_SEEDS = 1_024
"""Addresses in the peer list. Guess: more than a file ever has."""

SEED_RECHECK = 600.0
"""A seed whose link was suspended for want of use was alive then, and is dialled again after so
long (half of it to all, at random). Ten thousand nodes may share a seed, which answers 17 dials a
second then. Guess; to be measured by how long two healed partitions stay apart."""

# --- penalties ---

CORRUPTION_SHARE = 3
"""A link that was damaged is shut for at most 1/3 of `links.dead_after`, which leaves time for some
dials before the peer counts as dead. Guess; to be measured by sessions that end on a network that
damages one frame in a thousand."""

MAX_PENALTIES = 1_024
"""Peers whose violations are remembered, the latest ones. Guess; about 200 bytes each."""

PENALTY_RESET_AFTER = 60.0
"""A violation so long after the last one counts as the first. Guess."""

# --- eviction ---

MAX_ACTIVE_SESSIONS = 4_096
"""Sessions that are connected or dialling. A node talks to its view, clusters, hosts and
subscribers; each costs a file descriptor and some buffers of the system. Guess; to be measured by
the memory of a node that 10,000 others know."""

MAX_DORMANT_SESSIONS = 16_384
"""Suspended sessions whose numbers are remembered: 1.5 kB each (measured), so 25 MB."""

EVICTABLE_AFTER = 3.0
"""Heartbeats without a batch or a probe after which a link may be evicted: with fewer, one that the
peer watches might be closed between two of its probes. Guess; two would do on a network without
delay."""

EVICTION_BATCH = 64
"""Links that are evicted together: finding the least recently used looks at all of them, so it is
not done for every new link. Guess; to be measured by the longest turn of a node at its limit."""

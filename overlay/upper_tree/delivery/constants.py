"""Measures of delivery, in one place, each with where it comes from or what would measure it."""

from __future__ import annotations

# --- fan_out.py, deliveries.py ---

DELEGATE_RUN = 64
"""Events of a publisher in a row that have the same delegates: as many as a visit has in a busy
turn. With one, each event of a visit would go its own way, in frames of its own. Not measured;
would be measured by frames per delivery and by the spread of work over delegates."""

COUNTED_MOST = 16_384
"""Events whose copies are counted: what a busy host handles in some tenths of a second, and 2 MB.
Copies of an event are sent within some round trips. Not measured; would be measured by how often an
event is forgotten before its last copy is sent."""

SHARE_MOST = 2_000
"""Peers that one message names per event at most: about 100 kB, far under a frame. A delegate with
a larger share gets the event more than once."""

# --- hold.py: access nodes ---

WEIGHED_MOST = 4_096
"""Nodes whose weight in the choice of access nodes is kept: as many as a host delivers to."""

# --- relays.py ---

RETRY_FOR = 18.0
"""Seconds that a delegate tries to give back to a host whose link was lost, before it takes the
host's place: three times as long as a silent link is waited for (`links.dead_after`). Not measured;
would be measured by how long links between live nodes are broken."""

RELAYS_MOST = 4
"""Relays that are tried for a node within `RELAY_FAILED_FOR`: other hosts are often behind the same
broken switch, and each of them dials the node without success. Not measured; would be measured by
how long deliveries are held for nodes that some relay reaches."""

RELAY_FAILED_FOR = 60.0
"""Seconds that a relay that gave back is passed over: as long as a lease (`tree.lease`)."""

COPIED_MOST = 16_384
"""Deliveries on a suspected link that are remembered as copied, per link: what is beyond is not
copied. 2 MB; some seconds of a busy link. Not measured; would be measured by duplicates after a
silence under full load."""

LOST_PEERS_MOST = 4_096
"""Unreachable nodes that are remembered, as many as there may be links. Those that were lost first
are forgotten, and so tried somewhat longer."""

# --- hold.py ---

HOLD_CHECK = 1.0
"""Seconds between two looks at what is held, and from one attempt to the next at least. Not
measured; would be measured by the time from a healed partition to the first delivery."""

RELAY_TRIAL = 8.0
"""Seconds after which a relay that has not given back what it was to bring is taken to have brought
it: longer than it takes to find a link dead (`links.dead_after`, six)."""

PIECE_PAUSE = 0.02
"""Seconds between two pieces of held deliveries (a megabyte each, with the default `links.queue`),
if the link does not hold them up: 50 MB per second for one node, in half of a host's time. Not
measured; would be measured by the delays of other nodes' deliveries after a partition."""

HOLD_BACK_MOST = 0.4
"""Seconds for which a congested link may hold a host back without draining by a step: shorter than
a publisher waits until it takes its host for silent (`TIMEOUT_LEAST`, 0.5). A step is a megabyte,
but room comes by the frame, of up to a window (4 MB): in the simulator publishers are slowed down
to what a link of 8 MB per second carries, and not to 6. For a slower one they go on, and what
exceeds the bound is given up."""

GIVEN_UP_AT_ONCE = 2_048
"""Deliveries whose holding is over that are given up in a turn: some 20 ms with traces, each of
which is a record. Guess."""

# --- gap_notices.py ---

NOTICE_PAUSE = 10.0
"""Seconds after which a node for which a notice waits is dialled again. Not measured; would be
measured by the dials of a host half of whose subscribers died."""

NOTICE_DIALLED = 60.0
"""Seconds for which a node whose process has ended is dialled for a notice: most that come back
are back by then. Each attempt is a refused connection. Guess."""

NOTICE_ATTRIBUTES = 64
"""Attributes of events that a notice names; of more it says that it may be any. Some hundred bytes.
By how many programs hear of gaps that do not concern them."""

ON_ITS_WAY = 8.0
"""Seconds that a notice may be on its way, which are added to the time that it names: longer than a
silent link is waited for (`links.dead_after`, six)."""

NOTICE_FOR = 3_600.0
"""Seconds for which a node with a waiting notice is dialled: after a partition of an hour hardly
any notice is of use. Guess."""

# --- who delivers ---

FORMER_TOKENS_FOR = 600.0
"""Seconds after its start for which a process takes deliveries that name the token of a former one:
longer than owners, and those who take the place of lost ones, keep a former process's registrations
(`tree.lease` after that). Guess."""

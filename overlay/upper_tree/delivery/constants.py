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

# --- relays.py ---

RETRY_FOR = 18.0
"""Seconds that deliveries to a node are tried again since its link was lost and no other came up:
three times as long as a silent link is waited for (`links.dead_after`). Not measured; would be
measured by how long links between live nodes are broken."""

RELAYS_MOST = 4
"""Relays that have to fail before a node is given up: other hosts are often behind the same broken
switch. Not measured; would be measured by deliveries given up while the node lived."""

RELAY_FAILED_FOR = 60.0
"""Seconds that a relay that gave back is passed over: so that `RELAYS_MOST` of them, one after the
other and with an attempt of this node's own before each (`links.dead_after`), count together."""

COPIED_MOST = 16_384
"""Deliveries on a suspected link that are remembered as copied, per link: what is beyond is not
copied. 2 MB; some seconds of a busy link. Not measured; would be measured by duplicates after a
silence under full load."""

UNREACHABLE_MOST = 4_096
"""Unreachable nodes that are remembered, as many as there may be links. Those that were lost first
are forgotten, and so tried somewhat longer."""

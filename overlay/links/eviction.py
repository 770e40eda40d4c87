"""Room for newcomers: which links give way when a node has too many (M5).

Many may know one node: all name it in their peer lists, or it owns what all ask for. It keeps as
many links as it can afford (`MAX_ACTIVE_SESSIONS`), and those who talk to it now come first.
When another one is to begin, the links that nobody used for longest are put to rest, as if
`idle_close` had come for them early: both sides keep the session's numbers, so nothing is lost, and
whoever has something to say again resumes. A link rests only if nothing waits or is unacknowledged
on it, if this node does not watch it, and if it was quiet for a while: the other side may watch
it, and then asks once per heartbeat. If no link is quiet the newcomer is refused, and tries again
with back-off.

Sessions at rest cost no connection but some memory, so that of those there is a bound as well
(`MAX_DORMANT_SESSIONS`). The one that has rested longest is forgotten: if the other side still
knows it, it learns so when it resumes.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable

from overlay.links.session import Session, State
from overlay.machine import NodeId

MAX_ACTIVE_SESSIONS = 4_096
"""Sessions that are connected or dialling. A node talks to its view, clusters, hosts and
subscribers; each costs a file and some buffers of the system. Wild guess."""

MAX_DORMANT_SESSIONS = 16_384
"""Sessions at rest whose numbers are remembered: 1.5 kB each (measured), so 25 MB. Wild guess."""

EVICTABLE_AFTER = 3.0
"""Heartbeats without a batch or a question after which a link may give way: with fewer, one that
the other side watches might be closed between two of its questions. Wild guess."""

EVICTION_BATCH = 64
"""Links that give way together: finding the least used looks at all, so it is not done for every
newcomer. Wild guess."""


def least_recently_used(
    sessions: Iterable[Session], pinned: Container[NodeId], before: float
) -> list[Session]:
    """At most `EVICTION_BATCH` links that may rest now, of those that were used `before` (monotonic
    seconds) and not since; the one that was used longest ago first."""
    idle = [
        session
        for session in sessions
        if session.state is State.CONNECTED
        and session.used <= before
        and not session.is_missed(session.peer.id in pinned)
    ]
    return heapq.nsmallest(EVICTION_BATCH, idle, key=lambda session: session.used)

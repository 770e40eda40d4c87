"""All sessions of one node: which are active, which dormant, which are watched, and which idle
ones give way when there are too many (M5).

Many may know one node: all name it in their peer lists, or it owns what all ask for. At most
`constants.MAX_ACTIVE_SESSIONS` are connected or dialling. When another one is to begin, the links
that were idle for longest are suspended, as if ``links.idle_close`` had come early for them: both
sides keep the session's numbers, so that nothing is lost, and either resumes when it has something
to send. A link may be evicted only if nothing is queued or unacknowledged on it, if this node does
not watch it, and if it was idle for some heartbeats: a peer that watches it probes once in each. If
no link is idle the new link is refused, and its peer tries again with back-off.

Dormant sessions cost no connection but some memory, so that they are bounded, too
(`constants.MAX_DORMANT_SESSIONS`). The one that is dormant for longest is forgotten: if the peer
still knows it, the peer learns so when it resumes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from overlay.bounded import BoundedDict
from overlay.links.constants import (
    EVICTABLE_AFTER,
    EVICTION_BATCH,
    MAX_ACTIVE_SESSIONS,
    MAX_DORMANT_SESSIONS,
)
from overlay.links.events import Codec, LinkContext
from overlay.links.session import LinkSession, SessionState
from overlay.machine import NodeId, Peer


class SessionTable:
    """Sessions by peer, oldest first. Adds and removes them, and changes their states."""

    def __init__(self, context: LinkContext, codec: Codec) -> None:
        self._clock = context.clock
        self._settings = context.settings
        self._codec = codec
        self._sessions: dict[NodeId, LinkSession] = {}
        self._dormant: BoundedDict[NodeId, LinkSession] = BoundedDict(
            MAX_DORMANT_SESSIONS, self._forget
        )
        self._pins: dict[NodeId, int] = {}
        self._number = 0  # of the latest session
        self.find = self._sessions.get
        """The session with a peer (by its id), or None."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LinkSession]:
        return iter(self._sessions.values())

    @property
    def dormant(self) -> int:
        """The number of suspended sessions, which keep their state and have no connection."""
        return len(self._dormant)

    @property
    def active(self) -> int:
        """The number of sessions that are connected or dialling."""
        return len(self._sessions) - len(self._dormant)

    @property
    def is_full(self) -> bool:
        """Whether another session may become active only after others are suspended."""
        return self.active >= MAX_ACTIVE_SESSIONS

    def connected_at(self, address: str) -> Peer | None:
        """The peer of a connected session whose address this is."""
        for session in self._sessions.values():
            if session.peer.address == address and session.state is SessionState.CONNECTED:
                return session.peer
        return None

    def evictable(self) -> list[LinkSession]:
        """At most `EVICTION_BATCH` idle links to suspend, the least recently used first."""
        before = self._clock() - EVICTABLE_AFTER * self._settings.heartbeat
        idle = [
            session
            for session in self._sessions.values()
            if session.state is SessionState.CONNECTED
            and session.last_used <= before
            and not session.expects_answer()
        ]
        return heapq.nsmallest(EVICTION_BATCH, idle, key=lambda session: session.last_used)

    def renew_dormant(self, session: LinkSession) -> bool:
        """Make `session` the last of the dormant ones to be forgotten. False if it is active."""
        if session.peer.id not in self._dormant:
            return False
        self._dormant.move_to_end(session.peer.id)
        return True

    def begin(self, peer: Peer, not_before: float) -> LinkSession:
        """A new session, to be dialled `not_before` (monotonic seconds)."""
        now = self._clock()
        self._number += 1
        session = self._sessions[peer.id] = LinkSession(
            peer,
            self._number,
            self._settings,
            self._codec,
            now,
            max(now, not_before),
            peer.id in self._pins,
        )
        return session

    def change_state(self, session: LinkSession, state: SessionState) -> None:
        """Any change but to CLOSED, which is `remove`. May forget the oldest dormant session."""
        session.enter(state, self._clock())
        if state is SessionState.NOT_CONNECTED:
            self._dormant.renew(session.peer.id, session)
        else:
            self._dormant.pop(session.peer.id, None)

    def _forget(self, peer_id: NodeId, session: LinkSession) -> None:
        session.enter(SessionState.CLOSED, self._clock())
        del self._sessions[peer_id]

    def remove(self, session: LinkSession) -> None:
        """Close a session and forget its peer; pins of the peer stay."""
        self.change_state(session, SessionState.CLOSED)
        del self._sessions[session.peer.id]

    def pin(self, peer_id: NodeId) -> LinkSession | None:
        """Watch the peer once more. Returns its session if that is news for it."""
        pins = self._pins.get(peer_id, 0)
        self._pins[peer_id] = pins + 1
        session = self._sessions.get(peer_id)
        if session is None or pins > 0:
            return None
        if not session.expects_answer():
            session.begin_silence(self._clock())
        session.watch(True)
        return session

    def unpin(self, peer_id: NodeId) -> LinkSession | None:
        """Take one pin back. Returns the peer's session."""
        pins = self._pins.pop(peer_id, 0)
        assert pins > 0, f"{peer_id} was not pinned"
        if pins > 1:
            self._pins[peer_id] = pins - 1
        session = self._sessions.get(peer_id)
        if session is not None:
            session.watch(pins > 1)
        return session

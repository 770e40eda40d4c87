"""Brings sessions up and takes them down: who is dialled when, and what an end means (M5).

A *connection* that ends costs its session nothing but time: the session goes on CONNECTING and
dials with back-off. A *session* that ends is reported once (LinkDown) with everything that may be
lost. Between the two is suspension: an idle link's connection is closed and its numbers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from overlay.bounded import BoundedDict
from overlay.links.connections import ConnectionTable, LinkConnection
from overlay.links.constants import MAX_DOUBLINGS, MAX_PENALTIES, MAX_REFUSALS, PENALTY_RESET_AFTER
from overlay.links.deadlines import DeadlineQueue
from overlay.links.events import LinkContext, LinkDown, LinkSuspected, SessionEnd
from overlay.links.messages import Bye
from overlay.links.peer_list import PeerList
from overlay.links.session import LinkSession, SessionState
from overlay.links.session_table import SessionTable
from overlay.machine import NodeId, Peer

# --- back-off for peers that broke the protocol: neither dialled nor accepted for a while ---
#
# A peer that sends garbage loses its connection. If it could return at once it would keep this node
# busy with handshakes; so each violation doubles the time for which it is shut out.
#
# Where only bytes were corrupted on the way the session goes on with the next connection, and the
# peer may have done nothing wrong. That time therefore stays well below the silence that counts as
# death: otherwise a network that damages a frame now and then would, once the time has doubled
# often enough, end sessions with all that waits in them.


class Penalty(NamedTuple):
    """The recent violations of one peer. Times are monotonic seconds."""

    violations: int
    last: float
    until: float  # when it may connect again


class Penalties:
    """Peers with recent violations; the one whose last violation is oldest is forgotten first."""

    def __init__(self, first: float, most: float, corruption_most: float) -> None:
        """Seconds: half of the penalty for a first violation, the longest penalty, and the longest
        for corrupted bytes."""
        self._first = first
        self._most = most
        self._corruption_most = corruption_most
        self._penalties: BoundedDict[NodeId, Penalty] = BoundedDict(MAX_PENALTIES)

    def protocol_violated(self, peer: NodeId, now: float) -> None:
        """Penalise `peer` for a frame or message that the protocol does not allow."""
        self._add(peer, now, self._most)

    def bytes_corrupted(self, peer: NodeId, now: float) -> None:
        """Penalise `peer` for bytes that were no frame or did not match their digest."""
        self._add(peer, now, self._corruption_most)

    def _add(self, peer: NodeId, now: float, most: float) -> None:
        last = self._penalties.get(peer, Penalty(0, now, 0.0))
        violations = 1 + (0 if now - last.last > PENALTY_RESET_AFTER else last.violations)
        wait = min(self._first * 2.0 ** min(violations, MAX_DOUBLINGS), most)
        self._penalties.renew(peer, Penalty(violations, now, max(now + wait, last.until)))

    def until(self, peer: NodeId) -> float:
        """Return when `peer` may connect again; 0 if it has no penalty."""
        penalty = self._penalties.get(peer)
        return 0.0 if penalty is None else penalty.until


class CloseListener(Protocol):
    """Called at once when a session is closed, before LinkDown is emitted."""

    def session_closed(self, session: LinkSession) -> None:
        """Write nothing more for this session, which is closed."""


@dataclass(eq=False)
class LinkParts:
    """The parts of `Links` that the dialler and the handshake work on."""

    _node: LinkContext
    _deadlines: DeadlineQueue
    _sessions: SessionTable
    _connections: ConnectionTable
    _peer_list: PeerList
    _penalties: Penalties


@dataclass(eq=False)
class Dialler(LinkParts):
    """Opens, dials, suspends and closes sessions."""

    _listener: CloseListener

    def __post_init__(self) -> None:
        self._is_stopped = False

    # --- up ---

    def want(self, peer: Peer, session: LinkSession | None) -> LinkSession | None:
        """Open or resume the session with `peer`, to which there is something to send, and dial.
        `session` is not CONNECTED; None: there is no session. Returns None if this is
        impossible."""
        if self._is_stopped:
            return None
        now = self._node.clock()
        if session is None:
            session = self.open(peer)
            if session is None:
                return None
        elif not self.make_room(session):
            return None
        elif session.state is SessionState.NOT_CONNECTED:
            session.dials.allow(max(now, self._penalties.until(peer.id)))
            self._sessions.change_state(session, SessionState.CONNECTING)
        session.update_address(peer)
        if session.connection is None and session.dials.next_at <= now:
            self._dial(session)
        self.reschedule(session)
        return session

    def open(self, peer: Peer) -> LinkSession | None:
        """A new session, not dialled yet; None if there are too many."""
        if not self.make_room():
            return None
        return self._sessions.begin(peer, self._penalties.until(peer.id))

    def make_room(self, session: LinkSession | None = None) -> bool:
        """Suspend idle links if another session, a new one or the dormant `session`, would be one
        too many. False if none is idle."""
        if session is not None and not self._sessions.renew_dormant(session):
            return True
        if not self._sessions.is_full:
            return True
        idle = self._sessions.evictable()
        for victim in idle:
            self.suspend(victim, "room for another link")
        self._node.count("links_evicted", len(idle))
        return bool(idle)

    def _dial(self, session: LinkSession) -> None:
        self._connections.dial(session.peer.address).attach_session(session)

    def reschedule(self, session: LinkSession) -> None:
        """Something of the session may fall due earlier than before. What would have been due in
        the past is due now: this node did not stall."""
        self._deadlines.schedule(session, max(session.next_deadline(), self._node.clock()))

    def on_deadline(self, session: LinkSession, now: float) -> None:
        """A session that is CONNECTING: dial, report what waits, or give up."""
        if now >= session.give_up_at():
            self.close(session, session.reason)
            return
        if session.connection is None and now >= session.dials.next_at:
            self._dial(session)
        self.report_suspicion(session, now)
        self.reschedule(session)

    def report_suspicion(self, session: LinkSession, now: float) -> None:
        """Emit LinkSuspected if it is due: what waits may take another way."""
        if now >= session.suspicion.report_at and (unacknowledged := session.suspect(now)):
            self._node.emit(LinkSuspected(session.peer, unacknowledged))

    # --- down ---

    def connection_lost(self, connection: LinkConnection, reason: str) -> None:
        """Handle a connection that was lost or not established, and is closed and forgotten
        already: back off and dial again, or close the session if the dial was refused
        repeatedly."""
        if self._is_stopped:
            return
        if connection.seed is not None:
            self._peer_list.failed(connection.seed, reason)
        session = connection.session
        if connection.candidate_for is not None:
            return  # the session has another one, or dials anyway
        if session is None or session.state in (SessionState.CLOSED, SessionState.NOT_CONNECTED):
            return
        now = self._node.clock()
        refusals = session.connection_failed(reason, now)
        if session.state is SessionState.CONNECTED:
            self._sessions.change_state(session, SessionState.CONNECTING)
            self._node.trace("link", peer=session.peer.id, reason=f"lost: {reason}")
        if refusals >= MAX_REFUSALS:
            self.close(session, reason, end=SessionEnd.GONE)
            return
        session.dials.back_off(
            self._node.settings, now, self._node.rng, self._penalties.until(session.peer.id)
        )
        self.reschedule(session)

    def suspend(self, session: LinkSession, reason: str) -> None:
        """Close an idle link in order: the peer first hears what of its batches arrived."""
        connection = session.connection
        assert connection is not None, "CONNECTED without a connection"
        if session.ack_due:
            connection.write(session.make_ack(self._node.clock()))
        connection.write(Bye(reason, rest=True))
        self._connections.close(connection, reason)
        self.suspended(session)

    def suspended(self, session: LinkSession) -> None:
        """Keep only the numbers of a session whose idle connection was closed, by either side."""
        self._sessions.change_state(session, SessionState.NOT_CONNECTED)
        session.suspended()
        self._deadlines.cancel(session)
        self._node.trace("link", peer=session.peer.id, reason="at rest")
        self._peer_list.session_suspended(session.peer.id)

    def close(
        self,
        session: LinkSession,
        reason: str,
        left: bool = False,
        end: SessionEnd = SessionEnd.UNREACHABLE,
    ) -> None:
        """End the session and report what may be lost. `left`: the peer said that it leaves."""
        if session.state is SessionState.CLOSED:
            return
        for connection in (session.connection, session.candidate):
            if connection is not None:
                self._connections.close(connection, reason)
        self._sessions.remove(session)
        self._deadlines.cancel(session)
        self._listener.session_closed(session)
        self.report_down(session, reason, left, end)
        self._peer_list.session_closed(session.peer.id)

    def report_down(
        self,
        session: LinkSession,
        reason: str,
        left: bool = False,
        end: SessionEnd = SessionEnd.RESET,
    ) -> None:
        """Emit LinkDown. Called by itself where the peer has reset a session that goes on."""
        self._peer_list.something_failed()
        what = "reset" if end is SessionEnd.RESET else "down"
        self._node.trace("link", peer=session.peer.id, reason=f"{what}: {reason}")
        self._node.emit(LinkDown(session.peer, reason, left, session.outgoing.undelivered(), end))

    def stop(self) -> None:
        """Dial nothing and report nothing from now on: the node leaves."""
        self._is_stopped = True
        for session in list(self._sessions):
            self._sessions.remove(session)
            self._deadlines.cancel(session)

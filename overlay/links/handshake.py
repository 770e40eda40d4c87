"""The handshake: who is there, resume or begin again, and which of two connections stays (M5).

**Resuming or beginning again.** A session is named by what both sides call it: (incarnation,
session number). Hello and Welcome carry the sender's own name for it and the other's, if known.

* Both agree: the session resumes, and each side sends again from what the other `expected`.
* One knows the other's name, but the other does not know its own (0): that side has just begun, or
  its Welcome was lost. Nothing can have been consumed, so everything is sent from number 0.
* The name is newer than the one remembered: the other side has forgotten the session (it
  restarted, or gave this node up). The old session is over (LinkDown), a new one begins.
* The name is older: a frame from the past, on a connection that was slow. Closed without a word.

**Simultaneous dials.** Of two connections in the handshake the one stays that the node with the
smaller id dialled; both sides decide the same. A Hello also carries how many Hellos were sent in
the session, and a Welcome the same number: a Hello that its sender has since given up is
recognised, however late it comes.

**Two processes with one id.** A data folder that was copied makes two processes of one node. Of two
processes the one that was started later is accepted (`ProcessName`), as after a restart, and the
other one learns that it is superseded: with the later one's Hello where it has a connection, and
in answer to each of its own greetings. Being there to read that, it knows that this was no restart,
and ends (IdentityConflict). So of any number of processes one stays, whichever peers they have.

**Unknown names.** A node that dialled a mere address, or finds another node at it, gets a Welcome
with session 0, which only says who is there. It may then send a Hello to that node on the same
connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from overlay.links.connections import HandshakeStage, LinkConnection, Seed
from overlay.links.constants import DETOUR_TIMEOUT
from overlay.links.deadlines import NEVER
from overlay.links.dialler import Dialler, LinkParts
from overlay.links.events import (
    ConnectionId,
    IdentityConflict,
    LinkRecovered,
    LinkUp,
    SessionEnd,
)
from overlay.links.messages import (
    CAPABILITIES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Ack,
    Batch,
    Bye,
    Frame,
    Hello,
    ProcessName,
    Superseded,
    Welcome,
    agreed_version,
)
from overlay.links.send_buffer import InFlightBatch
from overlay.links.session import LinkSession, SessionState
from overlay.machine import Message, NodeId, Peer, ProtocolError

NO_ROOM = "too many sessions, and all are in use"
PENALISED = "too soon after a fault"
TAKEN_OVER = "another connection took over"
ANOTHER = "the certificate is another node's"


class EstablishedListener(Protocol):
    """Called when a handshake is complete and a connection carries a session."""

    def session_established(self, session: LinkSession, missing: Iterable[InFlightBatch]) -> None:
        """Handle that the session is connected: send these unacknowledged batches again, then the
        queued ones."""


@dataclass(eq=False)
class Handshake(LinkParts):
    """Leads each new connection to the session that it carries: Hello, Welcome, and the decision
    which of two connections or processes goes on. Refuses and closes what does not fit."""

    _dialler: Dialler
    _listener: EstablishedListener

    def __post_init__(self) -> None:
        node = self._node
        self._sender = (OLDEST_PROTOCOL, node.overlay, node.me, node.process.incarnation)
        self._newest = node.settings.protocol or PROTOCOL
        self._capabilities = CAPABILITIES if self._newest == PROTOCOL else ()

    # --- connections in the handshake ---

    def on_opened(self, id_: ConnectionId, principal: NodeId = "") -> None:
        """A dial succeeded: send Hello for the session that dialled, or for the node at the
        address."""
        connection = self._connections.find(id_)
        if connection is not None:
            assert connection.stage is HandshakeStage.DIALLING, "opened twice"
            connection.principal = principal
            self._greet(connection)

    def _greet(self, connection: LinkConnection) -> None:
        """Send a first Hello, to the connection's session or to the node that is there."""
        if connection.session is not None:
            connection.session.dials.greeted()
        settings = self._node.settings
        again, timeout = settings.retry_first, settings.connect_timeout
        if not connection.is_direct:  # other sessions carry it, which lose nothing
            again, timeout = NEVER, DETOUR_TIMEOUT
        connection.start_hello(self._node.clock(), again, timeout)
        self._say_hello(connection)
        self._deadlines.schedule(connection, connection.next_deadline())

    def on_deadline(self, connection: LinkConnection, now: float) -> None:
        """The handshake takes long: repeat the Hello, or give up."""
        if connection.stage is HandshakeStage.ESTABLISHED:
            return
        if now >= connection.give_up_at:
            reason = "no handshake in time"
            self._connections.close(connection, reason)
            self._dialler.connection_lost(connection, reason)
            return
        if now >= connection.take_over_at:
            if connection.may_take_over(now):
                self._take_over(connection)
        elif connection.has_sent_hello and now >= connection.hello_again_at:
            connection.repeat_hello(now)
            self._say_hello(connection)
        if connection not in self._connections:
            return
        self._deadlines.schedule(connection, connection.next_deadline())

    def on_frame(self, connection: LinkConnection, frame: Frame) -> None:
        """A frame on a connection that carries no session yet."""
        stage = connection.stage
        if is_of_another(connection, frame):
            self._node.count("identity_refused", 1)
            self._refuse(connection, ANOTHER, final=True)
            return
        try:
            if isinstance(frame, Hello) and stage is HandshakeStage.HELLO_AWAITED:
                self._on_hello(connection, frame)
            elif isinstance(frame, Welcome) and stage is HandshakeStage.HELLO_SENT:
                self._on_welcome(connection, frame)
            elif isinstance(frame, Bye):
                self._on_bye(connection, frame)
            elif isinstance(frame, Superseded):
                self.on_superseded(connection, frame)
            elif isinstance(frame, Batch | Ack) and stage is HandshakeStage.HELLO_SENT:
                self._node.count("link_early", 1)  # the Welcome before it was lost: both come again
            else:
                raise ProtocolError(f"{type(frame).__name__} before the handshake")
        except ProtocolError as error:
            self._refuse(connection, str(error))

    def on_late_greeting(
        self, connection: LinkConnection, session: LinkSession, greeting: Hello | Welcome
    ) -> None:
        """A greeting on an established connection: the repetition of one whose answer was lost.
        Raises ProtocolError if it is of another session."""
        if is_of_another(connection, greeting):
            raise ProtocolError(ANOTHER)
        if isinstance(greeting, Welcome) and greeting.session == 0:
            return  # a second answer to a repeated question for a name
        if not session.is_known_as(greeting.process, greeting.session):
            raise ProtocolError(f"{type(greeting).__name__} in the middle of a session")
        if isinstance(greeting, Hello):
            connection.received_hello()
            self._say_welcome(connection, session)

    def _refuse(self, connection: LinkConnection, reason: str, final: bool = False) -> None:
        self._node.count("link_errors", 1)
        if connection not in self._connections:
            return
        connection.write(Bye(reason, final=final))
        self._connections.close(connection, reason)
        self._dialler.connection_lost(connection, reason)

    def _on_bye(self, connection: LinkConnection, bye: Bye) -> None:
        self._connections.close(connection, bye.reason)
        if connection.session is not None and bye.final:
            self._dialler.close(connection.session, bye.reason)
        self._dialler.connection_lost(connection, bye.reason)

    def _why_never(self, greeting: Hello | Welcome) -> str:
        """Return why this node never links to the sender; empty if it may."""
        if not agreed_version(greeting, self._newest):
            theirs = spoken(greeting.protocol, max(greeting.protocol, greeting.newest))
            return f"{theirs} is not spoken here, but {spoken(OLDEST_PROTOCOL, self._newest)}"
        if greeting.overlay != self._node.overlay:
            return f"overlay {greeting.overlay!r} is not this one"
        return ""

    # --- the side that was dialled ---

    def _on_hello(self, connection: LinkConnection, hello: Hello) -> None:
        connection.received_hello()
        if reason := self._why_never(hello):
            self._refuse(connection, reason, final=True)
            return
        if hello.peer.id == self._node.me.id:
            self._on_own_id(hello)
        if hello.to != self._node.me.id or hello.peer.id == self._node.me.id:
            self._acknowledge_to(hello.peer.id)
            self._say_welcome(connection)
            return
        if hello.session < 1 or hello.dials < 1:
            raise ProtocolError("a Hello without a session")
        if self._penalties.until(hello.peer.id) > self._node.clock():
            self._node.count("link_refused", 1)
            connection.write(Bye(PENALISED))
            self._connections.close(connection, PENALISED)
            return
        session = self._session_for(connection, hello)
        if session is None:
            self._connections.close(connection, TAKEN_OVER)
            return
        start = 0
        if (hello.yours, hello.your_session) == (self._node.process.incarnation, session.number):
            start = hello.expected
        self._establish(connection, session, hello, start)

    def _acknowledge_to(self, peer_id: NodeId) -> None:
        """Acknowledge on the present session to a peer that asks who is here, perhaps because its
        link is silent. If the link is not broken, the acknowledgement arrives before the answer by
        way of another node."""
        session = self._sessions.find(peer_id)
        if session is not None and session.state is SessionState.CONNECTED:
            assert session.connection is not None, "CONNECTED without a connection"
            session.connection.write(session.make_ack(self._node.clock()))

    def _session_for(self, connection: LinkConnection, hello: Hello) -> LinkSession | None:
        """The session that a Hello means; None if another connection carries it, or will. Raises
        ProtocolError if there are too many sessions."""
        session = self._sessions.find(hello.peer.id)
        queued: list[tuple[bytes, Message]] = []
        name = (hello.process, hello.session)
        if session is not None and session.remote.number != 0:
            if session.supersedes(*name):
                if hello.process != session.remote.process:
                    connection.write(superseded(session.peer, session.remote.process))
                return None
            if not session.is_known_as(*name):
                restarted = hello.process != session.remote.process
                former = session.connection
                if restarted and former is not None and former.is_open:
                    former.write(superseded(hello.peer, hello.process))
                reason = "it restarted" if restarted else "it has begun a new session"
                if not restarted:
                    queued = session.outgoing.take_queued()
                self._dialler.close(session, reason, end=SessionEnd.RESET)
                session = None
            elif hello.dials <= session.remote.dials:
                return None
        if session is None:
            session = self._dialler.open(hello.peer)
            if session is None:
                raise ProtocolError(NO_ROOM)
        elif not self._dialler.make_room(session):
            raise ProtocolError(NO_ROOM)
        for encoded, message in queued:
            session.outgoing.enqueue(encoded, message)
        if self._node.me.id < hello.peer.id:
            for rival in (session.connection, session.candidate):
                if rival is not None and rival.has_sent_hello:
                    return None
        return session

    # --- the side that dialled ---

    def _on_welcome(self, connection: LinkConnection, welcome: Welcome) -> None:
        if reason := self._why_never(welcome):
            self._refuse(connection, reason, final=True)
            return
        if welcome.session == 0:
            self._on_name(connection, welcome)
            return
        session = connection.session
        if session is None or welcome.peer.id != session.peer.id:
            raise ProtocolError("a Welcome for another node")
        if (welcome.yours, welcome.your_session) != (
            self._node.process.incarnation,
            session.number,
        ):
            raise ProtocolError("a Welcome to another session")
        name = (welcome.process, welcome.session)
        if session.remote.number != 0 and not session.is_known_as(*name):
            if session.supersedes(*name):
                if welcome.process != session.remote.process:
                    connection.write(superseded(session.peer, session.remote.process))
                raise ProtocolError("a Welcome from the past")
            restarted = welcome.process != session.remote.process
            reason = "it restarted" if restarted else "it has forgotten the session"
            queued = [] if restarted else session.outgoing.take_queued()
            self._dialler.report_down(session, reason)
            session.reset(session.number)
            for encoded, message in queued:
                session.outgoing.enqueue(encoded, message)
        self._establish(connection, session, welcome, welcome.expected)

    def _on_name(self, connection: LinkConnection, welcome: Welcome) -> None:
        """Handle the name of the node at the address: a node other than the expected one, or a
        seed's node."""
        peer = welcome.peer
        expected = connection.session
        if connection.candidate_for is not None:
            self._on_candidate(connection, connection.candidate_for, peer)
            return
        if expected is not None and expected.peer.id == peer.id:
            return  # asked twice because the first answer took long; the Hello to it is out
        expected, seed = connection.release()
        if expected is not None:
            there = f"{peer.id} is at {expected.peer.address}"
            self._dialler.close(expected, there, end=SessionEnd.GONE)
        if seed is not None:
            seed.answered(peer.id)
        if peer.id == self._node.me.id and self._on_own_id(welcome):
            self._connections.close(connection, "another process of this node")
            if seed is not None:
                self._peer_list.failed(seed, "another process there has this node's id")
            return
        if peer.id == self._node.me.id:
            self._connections.close(connection, "this is myself")
            if seed is not None:
                self._peer_list.remove_own(seed)
            return
        self._greet_by_name(connection, peer, seed)

    def _on_candidate(self, connection: LinkConnection, wanted: LinkSession, peer: Peer) -> None:
        """Handle an answer on another connection for a session that has one. If the right node
        answers, and the session still needs the connection, the connection is to take over."""
        if connection.session is not None:
            return  # asked twice because the first answer took long; the Hello to it is out
        now = self._node.clock()
        if peer.id != wanted.peer.id:
            self._connections.close(connection, "another node is there")
        elif connection.is_direct or not wanted.wants(connection, now):
            self._take_over(connection)
        elif connection.take_over_at == NEVER:
            connection.answered(now)
            self._deadlines.schedule(connection, connection.next_deadline())

    def _take_over(self, connection: LinkConnection) -> None:
        """Greet the right node on its connection, if the session still needs another connection."""
        wanted = connection.candidate_for
        if wanted is not None and wanted.wants(connection, self._node.clock()):
            connection.become_candidate()
            self._greet(connection)
        else:
            self._connections.close(connection, "not needed")

    def _greet_by_name(self, connection: LinkConnection, peer: Peer, seed: Seed | None) -> None:
        """Use a connection to an address for a session with the node that is there."""
        session = self._sessions.find(peer.id) or self._dialler.open(peer)
        if (
            session is None
            or not self._dialler.make_room(session)
            or self._penalties.until(peer.id) > self._node.clock()
        ):
            self._connections.close(connection, "not now")
            if seed is not None:
                self._peer_list.failed(seed, "not now")
        elif session.connection is not None:
            self._connections.close(connection, TAKEN_OVER)
            if session.state is SessionState.CONNECTED:
                self._peer_list.connected(session.peer)
        else:
            if session.state is not SessionState.CONNECTING:
                self._sessions.change_state(session, SessionState.CONNECTING)
            connection.attach_session(session)
            self._greet(connection)
            self._dialler.reschedule(session)

    # --- other processes of this node ---

    def _on_own_id(self, greeting: Hello | Welcome) -> bool:
        """A greeting of a node with this node's id. Whether it is of another process."""
        if greeting.process == self._node.process:
            return False
        must_stop = greeting.process > self._node.process
        self._node.emit(IdentityConflict(greeting.peer, greeting.incarnation, must_stop))
        return True

    def on_superseded(self, connection: LinkConnection, frame: Superseded) -> None:
        """A peer knows a later process with this node's id. Where nodes are authenticated only that
        process itself is believed, when it greets."""
        # The frame proves nothing, so any member could stop any node by it. Without it the earlier
        # process does no harm: whoever knows the later one refuses its greetings, and so its votes.
        # The counter tells its operator (`canopy doctor`).
        if connection.principal:
            self._node.count("identity_refused", 1)
            return
        if frame.peer.id != self._node.me.id:
            raise ProtocolError("Superseded with another node's id")
        if ProcessName(frame.incarnation, frame.boot) > self._node.process:
            self._node.emit(IdentityConflict(frame.peer, frame.incarnation, True))

    # --- both sides ---

    def _establish(
        self,
        connection: LinkConnection,
        session: LinkSession,
        greeting: Hello | Welcome,
        start: int,
    ) -> None:
        """Let `connection` carry `session` from now on; the peer expects the batch `start` next.
        Raises ProtocolError if that cannot be, and closes the session."""
        now = self._node.clock()
        is_fresh = session.remote.number == 0
        try:
            unacknowledged = session.outgoing.resume(start, greeting.credit)
        except ProtocolError as error:
            self._penalties.protocol_violated(session.peer.id, now)
            self._dialler.close(session, str(error))
            raise
        self._connections.established(connection, session)
        session.established(greeting, self._newest, now)
        self._node.hybrid.observe(greeting.clock)
        if isinstance(greeting, Hello):
            self._say_welcome(connection, session)
        was_up = session.state is SessionState.CONNECTED
        if session.is_detoured:
            self._node.count("links_detoured", 1)
            self._node.trace("link", peer=session.peer.id, reason="by way of another node")
        if was_up and session.suspicion.is_suspected:
            self._node.emit(LinkRecovered(session.peer))
        if is_fresh or not was_up:  # on a detour a session may begin again that was up until now
            self._sessions.change_state(session, SessionState.CONNECTED)
            self._node.trace("link", peer=session.peer.id, reason="up" if is_fresh else "resumed")
            incarnation = session.remote.process.incarnation
            self._node.emit(LinkUp(session.peer, is_fresh, incarnation))
            if not is_fresh:
                self._node.count("link_resumed", 1)
        session.restart_retransmission(now)
        self._listener.session_established(session, unacknowledged)
        self._dialler.reschedule(session)
        self._peer_list.connected(session.peer)

    def _say_hello(self, connection: LinkConnection) -> None:
        window, session = self._node.settings.window, connection.session
        boot = self._node.process.boot
        if session is None:
            connection.write(
                Hello(
                    *self._sender,
                    0,
                    0,
                    window,
                    boot=boot,
                    clock=self._node.hybrid.read(),
                    newest=self._newest,
                    capabilities=self._capabilities,
                )
            )
            return
        session.wrote(self._node.clock())
        numbers = (session.number, session.remote.number, session.dials.count)
        expected, yours = session.incoming.expected, session.remote.process.incarnation
        connection.write(
            Hello(
                *self._sender,
                expected,
                yours,
                window,
                session.peer.id,
                *numbers,
                boot,
                self._node.hybrid.read(),
                self._newest,
                self._capabilities,
            )
        )

    def _say_welcome(self, connection: LinkConnection, session: LinkSession | None = None) -> None:
        """Answer a Hello. Without a session this only names the node."""
        window, boot = self._node.settings.window, self._node.process.boot
        offer = (self._newest, self._capabilities)
        if session is None:
            clock = self._node.hybrid.read()
            connection.write(Welcome(*self._sender, 0, 0, window, 0, 0, 0, boot, clock, *offer))
            return
        session.wrote(self._node.clock())
        numbers = (session.number, session.remote.number, session.dials.count)
        expected, yours = session.incoming.expected, session.remote.process.incarnation
        clock = self._node.hybrid.read()
        connection.write(
            Welcome(*self._sender, expected, yours, window, *numbers, boot, clock, *offer)
        )


def spoken(oldest: int, newest: int) -> str:
    """A range of versions, for a person."""
    return f"protocol {oldest}" if oldest == newest else f"protocol {oldest} to {newest}"


def is_of_another(connection: LinkConnection, frame: Frame) -> bool:
    """Whether a greeting names another node than the transport has authenticated."""
    if not connection.principal or not isinstance(frame, Hello | Welcome):
        return False
    return frame.peer.id != connection.principal


def superseded(later: Peer, process: ProcessName) -> Superseded:
    """Return the answer to a process of a node of which a later process is known."""
    return Superseded(later, process.incarnation, process.boot)

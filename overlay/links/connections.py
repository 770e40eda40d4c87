"""Transport connections: one object for each that is dialling, in the handshake or carrying a
session, and the table of them. A connection that ends costs its session nothing but time."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from overlay.links.constants import (
    DETOUR_GRACE,
    LATE_LEAST,
    MAX_AWAITING_HELLO,
    MAX_HELLOS,
)
from overlay.links.deadlines import NEVER, DeadlineQueue, HasDeadline
from overlay.links.events import ConnectionId, Detours, LinkContext, Transport
from overlay.links.messages import Frame
from overlay.links.session import Carrier, LinkSession
from overlay.machine import NodeId, Peer, ProtocolError

# --- a seed: an address of the peer list, and what became of the attempts to reach it (C1) ---


class Seed(HasDeadline):
    """An address of the peer list. Its deadline is the next attempt to reach it."""

    __slots__ = ("_attempts", "address", "is_dialled", "is_reached", "peer")

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.is_dialled = False  # a connection asks who is there
        self.peer: NodeId | None = None  # that answered there last
        self.is_reached = False
        self._attempts = 0  # that failed since it was reached last

    @property
    def is_sought(self) -> bool:
        """Whether it is to be dialled."""
        return not (self.is_reached or self.is_dialled)

    def leads_to(self, peer: Peer) -> bool:
        """Whether `peer` answered there, or has this address."""
        return self.peer == peer.id or self.address == peer.address

    def attached(self) -> None:
        """Note that a connection to this address asks which node is there."""
        self.is_dialled = True

    def detached(self) -> None:
        """Note that the connection has ended, or has found a node."""
        self.is_dialled = False

    def answered(self, peer: NodeId) -> None:
        """Note that `peer` has answered at this address, and is not connected yet."""
        self.peer = peer

    def reached(self, peer: NodeId) -> None:
        """Note that `peer` is reached at this address and connected."""
        self.peer = peer
        self.is_reached = True
        self._attempts = 0

    def lost(self) -> None:
        """Note that no node to which this address leads is connected any more."""
        self.is_reached = False

    def failed(self) -> int:
        """An attempt failed, or its session ended. Returns how many failed before."""
        self.is_reached = False
        self._attempts += 1
        return self._attempts - 1


class HandshakeStage(Enum):
    """The stages of a connection's handshake."""

    DIALLING = auto()  # the transport has not answered
    HELLO_SENT = auto()  # this node dialled; the Welcome is awaited
    HELLO_AWAITED = auto()  # the peer dialled; its Hello is awaited
    ESTABLISHED = auto()  # it carries its session


class LinkConnection(HasDeadline):
    """One transport connection. Its deadline is the end of the time for the handshake, or the next
    repetition of the Hello. It is dialled either for a session or for a seed, never for both."""

    __slots__ = (
        *("id", "write", "shut", "is_direct", "stage", "give_up_at", "session", "seed"),
        *("candidate_for", "hello_again_at", "principal", "_hello_interval", "_hellos_received"),
        *("take_over_at", "_is_excused"),
    )

    def __init__(
        self,
        id_: ConnectionId,
        stage: HandshakeStage,
        give_up_at: float,
        transport: Transport | Detours,
        is_direct: bool,
    ) -> None:
        super().__init__()
        self.id = id_
        self.write: Callable[[Frame], None] = partial(transport.write, id_)
        """Send one frame on this connection, after those before it."""
        self.shut: Callable[[str], None] = partial(transport.close, id_)
        """Close it below; its argument is the reason. Called by `ConnectionTable` only."""
        self.is_direct = is_direct
        self.stage = stage
        self.give_up_at = give_up_at
        self.session: LinkSession | None = None
        self.seed: Seed | None = None
        self.candidate_for: LinkSession | None = None  # which has, or had, another connection
        self.principal: NodeId = ""  # whom the transport has authenticated; "": nobody
        self.hello_again_at = NEVER  # for transports that lose frames
        self._hello_interval = 0.0
        self._hellos_received = 0
        self.take_over_at = NEVER  # when it takes over from a link that is silent until then
        self._is_excused = False

    @property
    def is_open(self) -> bool:
        """Whether the transport has connected, so that frames can be sent."""
        return self.stage is not HandshakeStage.DIALLING

    @property
    def has_sent_hello(self) -> bool:
        """Whether the transport has connected and the Welcome is awaited."""
        return self.stage is HandshakeStage.HELLO_SENT

    def attach_session(self, session: LinkSession) -> None:
        """Note that this connection is for `session`."""
        self.session = session
        session.attach(self)

    def ask_for(self, session: LinkSession) -> None:
        """Note that this connection asks which node is at the other end, to carry `session` if it
        is the right one."""
        self.candidate_for = session

    def answered(self, now: float) -> None:
        """Note that the right node answers by way of another one. Its own link has a moment more to
        answer before this connection takes over."""
        self.take_over_at = now + DETOUR_GRACE

    def may_take_over(self, now: float) -> bool:
        """Return whether the grace period of the direct link is over. Returns False once if this
        node itself is late, because it may not have read yet the frames that came on the link."""
        late, self.take_over_at = now - self.take_over_at, NEVER
        if late < LATE_LEAST or self._is_excused:
            return True
        self._is_excused = True
        self.answered(now)
        return False

    def become_candidate(self) -> None:
        """Let this connection, on which the right node answers, take over its session."""
        assert self.candidate_for is not None, "no candidate"
        self.session = self.candidate_for
        self.session.propose(self)

    def attach_seed(self, seed: Seed) -> None:
        """Note that this connection asks which node is at the address of `seed`."""
        self.seed = seed
        seed.attached()

    def detach(self) -> None:
        """Whom this connection was for has none now. (`session` and `seed` still name them.)"""
        if self.session is not None:
            self.session.detach(self)
        if self.seed is not None:
            self.seed.detached()

    def release(self) -> tuple[LinkSession | None, Seed | None]:
        """Take session and seed off this connection, which stays open, and return them."""
        self.detach()
        session, seed = self.session, self.seed
        self.session = self.seed = None
        return session, seed

    def start_hello(self, now: float, interval: float, timeout: float) -> None:
        """Note a first Hello: it is repeated after `interval`, and given up after `timeout`."""
        self.stage = HandshakeStage.HELLO_SENT
        self._hello_interval = interval
        self.hello_again_at = now + interval
        self.give_up_at = now + timeout

    def repeat_hello(self, now: float) -> None:
        """Note a repeated Hello: the next one follows after twice the interval."""
        self._hello_interval *= 2.0
        self.hello_again_at = now + self._hello_interval

    def next_deadline(self) -> float:
        """The time at which the Hello is repeated, the other connection is replaced, or this one is
        given up."""
        return min(self.hello_again_at, self.give_up_at, self.take_over_at)

    def received_hello(self) -> None:
        """Raises ProtocolError if there were too many on this connection."""
        self._hellos_received += 1
        if self._hellos_received > MAX_HELLOS:
            raise ProtocolError("too many greetings")

    def established(self, session: LinkSession) -> None:
        """Attach the session after the handshake. Called by `ConnectionTable` only."""
        self.stage = HandshakeStage.ESTABLISHED
        self.candidate_for = None
        self.attach_session(session)

    def postpone(self, seconds: float) -> None:
        """Extend the time for the handshake by `seconds`, for which this node stalled."""
        self.give_up_at += seconds


class ConnectionTable:
    """All connections of one node, by the driver's numbers, or those of `Detours`."""

    def __init__(
        self, context: LinkContext, transport: Transport, deadlines: DeadlineQueue
    ) -> None:
        self._clock = context.clock
        self._timeout = context.settings.connect_timeout
        self._transport = transport
        self.detours: Detours | None = None
        self._deadlines = deadlines
        self._connections: dict[ConnectionId, LinkConnection] = {}
        self.awaiting_hello = 0  # how many are at HELLO_AWAITED
        self._is_shut = False
        self.find = self._connections.get
        """The connection of a number, or None if this side has closed it."""

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, connection: LinkConnection) -> bool:
        return connection.id in self._connections

    def ids(self) -> tuple[ConnectionId, ...]:
        """The driver's numbers of all direct connections, oldest first."""
        return tuple(id_ for id_, each in self._connections.items() if each.is_direct)

    def accept(self, id_: ConnectionId, is_direct: bool = True, principal: NodeId = "") -> None:
        """Add a connection that a peer dialled. The peer has `links.connect_timeout` to send its
        Hello; the connection is closed at once if `MAX_AWAITING_HELLO` others wait for theirs."""
        connection = self._add(id_, HandshakeStage.HELLO_AWAITED, is_direct)
        connection.principal = principal
        self.awaiting_hello += 1
        if self._is_shut or self.awaiting_hello > MAX_AWAITING_HELLO:
            self.close(connection, "too many connections")

    def dial(self, address: str) -> LinkConnection:
        """Begin to connect to "host:port". The caller attaches a session or a seed."""
        return self._add(self._transport.dial(address), HandshakeStage.DIALLING)

    def open_detours(self, peer: Peer) -> list[LinkConnection]:
        """Connections to `peer` by way of other nodes, open for the first Hello; empty if there
        are no such nodes."""
        ids = () if self.detours is None or self._is_shut else self.detours.open(peer)
        return [self._add(id_, HandshakeStage.DIALLING, is_direct=False) for id_ in ids]

    def _add(
        self, id_: ConnectionId, stage: HandshakeStage, is_direct: bool = True
    ) -> LinkConnection:
        transport = self._transport if is_direct else self.detours
        assert transport is not None, "a detour without detours"
        give_up_at = self._clock() + self._timeout
        connection = LinkConnection(id_, stage, give_up_at, transport, is_direct)
        self._connections[id_] = connection
        self._deadlines.schedule(connection, connection.give_up_at)
        return connection

    def established(self, connection: LinkConnection, session: LinkSession) -> None:
        """Let `connection` carry `session` after the handshake, and close another connection of the
        session."""
        for other in (session.connection, session.candidate):
            if other is not None and other is not connection:
                self.close(other, "another connection took over")
        if connection.stage is HandshakeStage.HELLO_AWAITED:
            self.awaiting_hello -= 1
        connection.established(session)
        self._deadlines.cancel(connection)

    def close(self, connection: Carrier, reason: str) -> None:
        """Close and forget. What that means for its session or seed is the caller's to decide."""
        found = self._connections.get(connection.id)
        if found is not None:
            self.forget(found)
            found.shut(reason)

    def forget(self, connection: Carrier) -> None:
        """Remove a connection that has ended, with its deadline, and detach it from its session."""
        found = self._connections.pop(connection.id, None)
        if found is None:
            return
        self._deadlines.cancel(found)
        if found.stage is HandshakeStage.HELLO_AWAITED:
            self.awaiting_hello -= 1
        found.detach()

    def postpone_deadlines(self, seconds: float) -> None:
        """Postpone all deadlines by the seconds for which this node stalled."""
        for connection in self._connections.values():
            connection.postpone(seconds)

    def shut(self, reason: str) -> None:
        """Close all connections, and accept no further ones."""
        self._is_shut = True
        for connection in list(self._connections.values()):
            self.close(connection, reason)

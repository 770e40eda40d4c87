"""All links of one node, as node.py and a driver see them (M3, M5).

From above: `send`, `flush` at the end of each turn, `pin`, `add_seed`, `leave`. From the driver:
`on_opened`, `on_accepted`, `on_frame`, `on_closed`, `on_garbage`, and `on_tick` when `deadline` has
come. `Links` puts the parts together (session table, connection table, peer list, dialler,
handshake) and does itself what concerns established sessions: batches, acknowledgements,
retransmission, probes. How links work is explained in the package's docstring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from overlay.links.connections import ConnectionTable, HandshakeStage, LinkConnection, Seed
from overlay.links.constants import ACK_SHARE, CORRUPTION_SHARE, STALL_ANSWER
from overlay.links.deadlines import DeadlineQueue
from overlay.links.dialler import Dialler, LinkParts, Penalties
from overlay.links.events import (
    TOO_LARGE,
    Codec,
    ConnectionId,
    Detours,
    LinkCongested,
    LinkContext,
    LinkRecovered,
    LinkRelieved,
    LocalStall,
    MessageDropped,
    Transport,
)
from overlay.links.handshake import Handshake
from overlay.links.messages import (
    MAX_BODY,
    Ack,
    Batch,
    Bye,
    Frame,
    Hello,
    Superseded,
    Welcome,
)
from overlay.links.peer_list import PeerList
from overlay.links.receive_buffer import Arrival, DigestMismatchError, unpack
from overlay.links.send_buffer import InFlightBatch
from overlay.links.session import Carrier, LinkSession, SessionState, SessionStatus
from overlay.links.session_table import SessionTable
from overlay.machine import Message, NodeId, Peer, ProtocolError

# Finds another way to a peer whose link is silent, and the way back (P3; Phoenix section 2).
#
# Before a silent peer counts as dead, other nodes are asked whether it answers them: the indirect
# probes of SWIM (Das et al. 2002, section 3.1). Each probe is a connection by way of another node
# (`Detours`), on which the ordinary handshake asks who is there. On the first of them that the peer
# answers while its own link is still silent, the session resumes: from then on everything goes that
# way, in order and once, as after any lost connection. A peer that answers on none counts as dead
# after ``links.dead_after``, as before.
#
# As long as a session takes a detour its peer is dialled directly, with back-off. That connection,
# too, first asks who is there, so that the session moves only to one that carries both directions.


@dataclass(eq=False)
class Detouring(LinkParts):
    """Opens connections that may take over from the one that a session has."""

    _handshake: Handshake

    def on_deadline(self, session: LinkSession, now: float) -> None:
        """Look for another way, or for the way back, if that is due."""
        if now >= session.look_due():
            session.search.looks(now)
            for connection in self._connections.open_detours(session.peer):
                self._node.count("indirect_probes", 1)
                connection.ask_for(session)
                self._handshake.on_opened(connection.id)
        if now >= session.look_back_due():
            session.search.looks_back(self._node.settings, now, self._node.rng)
            self._connections.dial(session.peer.address).ask_for(session)


IDLE = "the session was idle"


class Links:
    """Every session of one node. No IO: the transport carries the frames, the clock is injected."""

    def __init__(
        self,
        context: LinkContext,
        codec: Codec,
        transport: Transport,
        dispatch: Callable[[Peer, Message], None],
        seed_retry_most: float = 30.0,  # ViewSettings.seed_retry_most
    ) -> None:
        """`dispatch` is called with each message that arrives, in order; a ProtocolError that it
        raises closes the session with the sender, any other exception propagates."""
        self._node = context
        self._codec = codec
        self._dispatch = dispatch
        settings = context.settings
        self._deadlines = DeadlineQueue()
        self._penalties = Penalties(
            settings.retry_first, settings.retry_most, settings.dead_after / CORRUPTION_SHARE
        )
        self._sessions = SessionTable(context, codec)
        self._connections = ConnectionTable(context, transport, self._deadlines)
        self._peer_list = PeerList(
            context, seed_retry_most, self._deadlines, self._connections, self._sessions
        )
        parts = (
            context,
            self._deadlines,
            self._sessions,
            self._connections,
            self._peer_list,
            self._penalties,
        )
        self._dialler = Dialler(*parts, self)
        self._handshake = Handshake(*parts, self._dialler, self)
        self._detouring = Detouring(*parts, self._handshake)
        self._to_flush: dict[NodeId, LinkSession] = {}  # may have something to write
        self._acks: deque[tuple[float, LinkSession]] = deque()  # the delay is one: in order of time
        self._last: Message | None = None
        self._last_encoded = b""

    def use_detours(self, detours: Detours) -> None:
        """Go around links that are silent by these; without them nothing goes around."""
        self._connections.detours = detours

    # --- from above ---

    def send(self, peer: Peer, message: Message) -> None:
        """Queue `message`; dial if need be. It arrives once and in order, or LinkDown names it. One
        that the peer does not know (`Message.capability`) is not sent, and counted
        (`messages_not_known`). A message that is too large or for which the queue has no room is
        dropped, counted (`link_dropped`), traced, and named by MessageDropped."""
        session = self._sessions.find(peer.id)
        if session is None or session.state is not SessionState.CONNECTED:
            session = self._dialler.want(peer, session)
            if session is None:
                self._drop(peer, message, 0, "no session")
                return
        if message.capability and not session.understands(message):
            self._node.count("messages_not_known", 1)
            return
        if message is not self._last:  # one message to many peers is encoded once
            self._last_encoded = self._codec.encode_one(message)
            self._last = message
        encoded = self._last_encoded
        if not session.expects_answer():
            session.begin_silence(self._node.clock())
        if len(encoded) > MAX_BODY:
            self._drop(peer, message, len(encoded), TOO_LARGE)
        elif session.outgoing.enqueue(encoded, message) or (
            session.queue_limit.extend(len(encoded), self._node.clock())
            and session.outgoing.enqueue(encoded, message)
        ):
            self._to_flush[peer.id] = session
        else:
            self._drop(peer, message, len(encoded), "queue full")

    def flush(self) -> None:
        """End a turn: write one batch per peer (more if it is over ``links.frame``), with the
        acknowledgement on it."""
        while self._to_flush:  # what a session on a detour writes is for another one to carry
            sessions, self._to_flush = self._to_flush, {}
            for session in sessions.values():
                if session.state is SessionState.CONNECTED:
                    self._flush_session(session)
                limit = session.queue_limit
                if (session.outgoing.queued or limit.is_congested) and limit.congestion_changed():
                    kind = LinkCongested if limit.is_congested else LinkRelieved
                    self._node.emit(kind(session.peer))

    def pin(self, peer_id: NodeId) -> None:
        """Watch the link to this peer, so that its death is noticed. As many unpins end it."""
        session = self._sessions.pin(peer_id)
        if session is not None:
            self._dialler.reschedule(session)

    def unpin(self, peer_id: NodeId) -> None:
        """Undo one `pin`: the link is watched as long as there are others."""
        session = self._sessions.unpin(peer_id)
        if session is not None:
            self._dialler.reschedule(session)

    def add_seed(self, address: str) -> None:
        """Add an address of the peer list ("host:port"): it is dialled until a node there is
        connected, and again whenever none is. Emits SeedReached and SeedFailed."""
        self._peer_list.add(address)

    def remove_seed(self, address: str) -> None:
        """Dial an address of the peer list no more. A session with the node there stays."""
        self._peer_list.remove(address)

    def leave(self, reason: str) -> None:
        """Say good-bye to all and close. Nothing is emitted; nothing can be sent from now on."""
        self.flush()
        for session in self._sessions:
            if session.connection is not None and session.state is SessionState.CONNECTED:
                session.connection.write(Bye(reason, final=True))
        self._dialler.stop()
        self._connections.shut(reason)
        self._peer_list.stop()
        self._to_flush.clear()
        self._acks.clear()

    def connected(self, peer_id: NodeId) -> bool:
        """Whether a connection carries the session with this peer now."""
        session = self._sessions.find(peer_id)
        return session is not None and session.state is SessionState.CONNECTED

    def is_direct(self, peer_id: NodeId) -> bool:
        """Whether this peer answers, on a connection that does not go by way of another node."""
        session = self._sessions.find(peer_id)
        return (
            session is not None
            and session.state is SessionState.CONNECTED
            and not (session.is_detoured or session.is_silent(self._node.clock()))
        )

    def may_reach(self, peer_id: NodeId) -> bool:
        """Whether nothing speaks against reaching this peer without another node: its link is not
        silent, or there is none yet."""
        session = self._sessions.find(peer_id)
        return session is None or not (session.is_detoured or session.is_silent(self._node.clock()))

    def sessions(self) -> tuple[SessionStatus, ...]:
        """The state of all sessions, dormant ones too, oldest first."""
        return tuple(session.status() for session in self._sessions)

    def understands(self, peer_id: NodeId, capability: str) -> bool:
        """Whether this peer is connected and has named this capability."""
        session = self._sessions.find(peer_id)
        return session is not None and capability in session.remote.capabilities

    def session_counts(self) -> tuple[int, int]:
        """Return the numbers of active (connected or dialling) and of dormant sessions."""
        return self._sessions.active, self._sessions.dormant

    def connections(self) -> tuple[ConnectionId, ...]:
        """The driver's numbers of all connections that are dialling or open, oldest first."""
        return self._connections.ids()

    def queues(self) -> Iterator[tuple[NodeId, int, int]]:
        """(peer, bytes queued, bytes in flight) of all sessions, oldest first."""
        for session in self._sessions:
            yield session.queue()

    def unacknowledged(self) -> int:
        """With how many peers data-plane messages are queued or unacknowledged.

        Other messages do not count: machines gossip for ever, so that in a large overlay, or one
        that loses frames, hardly a moment would be idle.
        """
        return sum(session.outgoing.has_data() for session in self._sessions)

    # --- from the driver ---

    def on_accepted(self, connection: ConnectionId, principal: NodeId = "") -> None:
        """A peer dialled this node; it has ``links.connect_timeout`` to say Hello. `principal`: the
        only node that it may be, where the transport authenticates."""
        self._connections.accept(connection, principal=principal)

    def on_detour_accepted(self, connection: ConnectionId) -> None:
        """Accept a peer's connection by way of another node. From now on `on_frame` takes its
        frames."""
        self._connections.accept(connection, is_direct=False)

    def on_opened(self, connection: ConnectionId, principal: NodeId = "") -> None:
        """The driver's dial succeeded: the handshake begins with this node's Hello. `principal` as
        in `on_accepted`."""
        self._handshake.on_opened(connection, principal)

    def on_closed(self, connection: ConnectionId, reason: str) -> None:
        """A connection has ended, or a dial failed."""
        found = self._connections.find(connection)
        if found is not None:
            self._connections.forget(found)
            self._dialler.connection_lost(found, reason)

    def on_frame(self, connection: ConnectionId, frame: Frame) -> None:
        """A frame arrived. Frames of connections that this side has closed are ignored."""
        found = self._connections.find(connection)
        if found is None:
            return
        session = found.session
        if found.stage is not HandshakeStage.ESTABLISHED or session is None:
            self._handshake.on_frame(found, frame)
            return
        session.begin_silence(self._node.clock())
        try:
            if type(frame) is Batch:
                self._on_batch(found, session, frame)
            elif type(frame) is Ack:
                self._on_ack(found, session, frame)
            elif isinstance(frame, Hello | Welcome):
                self._handshake.on_late_greeting(found, session, frame)
            elif isinstance(frame, Bye):
                self._on_bye(found, session, frame)
            elif isinstance(frame, Superseded):
                self._handshake.on_superseded(found, frame)
            else:
                raise ProtocolError("a frame of no known kind")
        except ProtocolError as error:
            self._break_off(session, str(error), error.is_fault)
        except DigestMismatchError as error:
            self.on_garbage(connection, str(error))

    def on_garbage(self, connection: ConnectionId, reason: str) -> None:
        """Bytes arrived that are no frame: the connection is closed; the session may resume on
        another one, after a penalty."""
        found = self._connections.find(connection)
        if found is None:
            return
        self._node.count("link_errors", 1)
        if found.session is not None:
            self._penalties.bytes_corrupted(found.session.peer.id, self._node.clock())
        self._connections.close(found, reason)
        self._dialler.connection_lost(found, reason)

    def deadline(self) -> float | None:
        """Return when `on_tick` is to be called (monotonic seconds); None if nothing is pending."""
        due = self._deadlines.next_due()
        if not self._acks:
            return due
        ack = self._acks[0][0]
        return ack if due is None else min(due, ack)

    def on_tick(self, late: float = 0.0) -> None:
        """Do all work that is due. Calling too early or twice does no harm. `late`: seconds by
        which the node's other timers are late."""
        now = self._node.clock()
        due = self._deadlines.next_due()
        if due is not None:
            late = max(late, now - due)
        if late >= self._node.settings.heartbeat:
            self._on_local_stall(late, now)
        while self._acks and self._acks[0][0] <= now:
            session = self._acks.popleft()[1]
            if session.ack_delay_over() and session.connection is not None:
                session.connection.write(session.make_ack(now))
        if due is None or due > now:
            return
        # Each owner may need a second look at most: what is due compares as its deadline was
        # computed.
        for _ in range(2 * (len(self._sessions) + len(self._connections) + len(self._peer_list))):
            owner = self._deadlines.pop_due(now)
            if owner is None:
                break
            if isinstance(owner, LinkSession):
                self._on_session_deadline(owner, now)
            elif isinstance(owner, LinkConnection):
                self._handshake.on_deadline(owner, now)
            elif isinstance(owner, Seed):
                self._peer_list.on_deadline(owner)

    # --- from the handshake and the dialler ---

    def session_established(self, session: LinkSession, missing: Iterable[InFlightBatch]) -> None:
        """Send again what the peer has not received, then the rest: a connection carries the
        session now."""
        self._retransmit(session, missing)
        self._to_flush[session.peer.id] = session

    def session_closed(self, session: LinkSession) -> None:
        """Write nothing more for this session, which has ended."""
        self._to_flush.pop(session.peer.id, None)

    # --- batches ---

    def _flush_session(self, session: LinkSession) -> None:
        """Write what the credit allows; see that what arrived gets acknowledged."""
        connection = session.connection
        assert connection is not None, "CONNECTED without a connection"
        while session.outgoing.queued and (batch := session.outgoing.next_batch()) is not None:
            self._write_batch(session, connection, batch)
        if session.outgoing.queued:
            self._dialler.reschedule(session)  # no credit: the peer has to be asked for it
        if session.ack_due and (delay := session.ack_within(ACK_SHARE)) is not None:
            now = self._node.clock()
            if delay:
                self._acks.append((now + delay, session))
            else:
                connection.write(session.make_ack(now))

    def _write_batch(self, session: LinkSession, connection: Carrier, batch: InFlightBatch) -> None:
        frame = session.make_batch(batch, self._node.clock(), self._node.hybrid.read())
        self._node.count("link_bytes", len(batch.body))
        connection.write(frame)
        if session.retransmission.ask_at < session.wake_at:
            self._deadlines.schedule(session, session.retransmission.ask_at)

    def _retransmit(self, session: LinkSession, batches: Iterable[InFlightBatch]) -> None:
        connection = session.connection
        if connection is None:
            return
        for batch in batches:
            self._node.count("link_resent", 1)
            self._write_batch(session, connection, batch)

    def _on_batch(self, connection: LinkConnection, session: LinkSession, batch: Batch) -> None:
        self._node.hybrid.observe(batch.clock)
        self._on_acknowledged(session, batch.acknowledged, batch.credit)
        arrival = session.incoming.receive(batch)
        if arrival is Arrival.IN_ORDER:
            self._consume(session, batch)
            return
        if arrival is Arrival.FILLS_GAP:
            self._consume(session, batch)
            while (buffered := session.incoming.next_buffered()) is not None:
                self._consume(session, buffered)
        gap = session.incoming.new_gap()
        if gap or arrival is Arrival.DUPLICATE:
            connection.write(session.make_ack(session.last_heard, gap))

    def _consume(self, session: LinkSession, batch: Batch) -> None:
        session.received_batch(len(batch.body))
        peer = session.peer
        self._to_flush[peer.id] = session
        body = unpack(batch.body) if batch.compressed else batch.body
        for message in self._codec.decode(body):
            self._dispatch(peer, message)

    def _on_ack(self, connection: LinkConnection, session: LinkSession, ack: Ack) -> None:
        self._on_acknowledged(session, ack.acknowledged, ack.credit)
        if ack.answers:
            was_suspected = session.suspicion.is_suspected
            missing = session.answered(ack.answers, ack.acknowledged, ack.gap)
            if was_suspected and not session.suspicion.is_suspected:
                self._node.emit(LinkRecovered(session.peer))
            self._retransmit(session, missing)
        elif ack.gap:
            self._retransmit(session, session.fill_gap(ack.acknowledged, ack.gap))
        if ack.asks:
            connection.write(session.make_answer(session.last_heard, ack.asks))

    def _on_acknowledged(self, session: LinkSession, acknowledged: int, credit: int) -> None:
        was_suspected = session.suspicion.is_suspected
        if session.acknowledge(acknowledged, credit) and was_suspected:
            self._node.emit(LinkRecovered(session.peer))
        if session.outgoing.queued:
            self._to_flush[session.peer.id] = session

    def _drop(self, peer: Peer, message: Message, size: int, reason: str) -> None:
        self._node.count("link_dropped", 1)
        self._node.trace(
            "drop", peer=peer.id, reason=f"{type(message).__name__}: {reason}", size=size
        )
        self._node.emit(MessageDropped(peer, message, reason))

    # --- ends ---

    def _on_bye(self, connection: LinkConnection, session: LinkSession, bye: Bye) -> None:
        if not bye.rest:
            self._dialler.close(session, bye.reason, left=bye.final)
            return
        self._connections.close(connection, bye.reason)
        if session.expects_answer():
            self._dialler.connection_lost(connection, bye.reason)
        else:
            self._dialler.suspended(session)

    def _break_off(self, session: LinkSession, reason: str, is_fault: bool) -> None:
        """End the session of a peer that broke the protocol: it would send the same again."""
        self._node.count("link_errors", 1)
        if is_fault:
            self._penalties.protocol_violated(session.peer.id, session.last_heard)
        if session.connection is not None:
            session.connection.write(Bye(reason))
        self._dialler.close(session, reason)

    # --- what falls due ---

    def _on_local_stall(self, late: float, now: float) -> None:
        """Handle a stall of this node. Peers may have sent frames that it has not read, so the
        stall does not count against them. After a stall longer than `dead_after`, peers may have
        closed their sessions, and their goodbyes may be lost, so they have to answer a probe
        soon."""
        self._node.count("local_stalls", 1)
        self._node.emit(LocalStall(late))
        settings = self._node.settings
        patience = settings.dead_after if late < settings.dead_after else STALL_ANSWER
        for session in self._sessions:
            session.postpone_deadlines(late, now, patience)
        self._connections.postpone_deadlines(late)

    def _on_session_deadline(self, session: LinkSession, now: float) -> None:
        if session.state is SessionState.CONNECTING:
            self._dialler.on_deadline(session, now)
        elif session.state is SessionState.CONNECTED:
            self._on_connected_deadline(session, now)
        self._detouring.on_deadline(session, now)
        self._dialler.reschedule(session)

    def _on_connected_deadline(self, session: LinkSession, now: float) -> None:
        settings = self._node.settings
        connection = session.connection
        assert connection is not None, "CONNECTED without a connection"
        if not session.expects_answer():
            if now >= session.last_used + settings.idle_close:
                self._dialler.suspend(session, IDLE)
            return
        if now >= session.last_heard + settings.dead_after:
            self._dialler.close(session, f"silent for {settings.dead_after:g} s")
            return
        is_overdue = session.is_overdue(now)
        self._dialler.report_suspicion(session, now)
        if is_overdue or now >= session.last_written + settings.heartbeat:
            connection.write(session.make_question(now))

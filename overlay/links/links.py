"""All links of one node, as node.py and a driver see them (M3, M5).

From above: `send`, `flush` at the end of each turn, `pin`, `add_seed`, `leave`. From the driver:
`on_opened`, `on_accepted`, `on_frame`, `on_closed`, `on_garbage`, and `on_tick` when `deadline` has
come. The handshake is in ``handshake``; here batches go out and come in, and what falls due is
done. The theory of operation is the folder's docstring.
"""

from __future__ import annotations

from collections.abc import Iterator

from overlay.links.events import ConnectionId, LinkRecovered, LinkSuspected, LocalStall
from overlay.links.handshake import Handshake
from overlay.links.messages import MAX_BODY, Ack, Batch, Bye, Frame, Hello, Welcome
from overlay.links.receive_buffer import Arrival, DigestMismatchError, unpack
from overlay.links.session import Seed, Session, SessionStatus, Stage, State, Wire
from overlay.machine import Message, NodeId, Peer, ProtocolError

ACK_DELAY = 0.1
"""Seconds that an acknowledgement waits for a batch to ride on. A frame of its own costs both nodes
a turn: with the 25 ms of RFC 9000 (QUIC), section 18.2, one turn in three was for that. Nobody
waits for it while the window is not used up, and it is early beside `session.MIN_RTO`."""

ACK_SHARE = 4
"""An acknowledgement goes at once when a quarter of the window is unacknowledged, so that the
sender never runs dry. Wild guess."""

IDLE = "nobody used the link"
TOO_LARGE = "message too large"


class Links(Handshake):
    """Every session of one node. No IO: the transport carries, the clock is handed in.

    `dispatch` is called with each message that arrives, in order; a ProtocolError that it raises
    closes the link to the sender, everything else propagates. `emit` gets LinkUp, LinkDown,
    SeedReached and SeedFailed. `clock` is monotonic seconds.
    """

    # From above

    def send(self, peer: Peer, message: Message) -> None:
        """Queue `message`; dial if need be. What is beyond the queue's bound is dropped, counted
        and traced. Arrives once and in order, or is named by LinkDown."""
        session = self._sessions.get(peer.id)
        if session is None or session.state is not State.CONNECTED:
            session = self._wanted(peer, session)
            if session is None:
                self._drop(peer, message, 0, "no session")
                return
        if message is not self._last:  # one message to many peers is encoded once
            self._last_encoded = self._codec.encode_one(message)
            self._last = message
        encoded = self._last_encoded
        if not session.is_missed(peer.id in self._pins):
            session.miss(self._clock())
        if len(encoded) > MAX_BODY:
            self._drop(peer, message, len(encoded), TOO_LARGE)
        elif session.send_buffer.enqueue(encoded, message):
            self._dirty[peer.id] = session
        else:
            self._drop(peer, message, len(encoded), "queue full")

    def flush(self) -> None:
        """The end of a turn: one batch per peer (more if it is over settings.frame), with the
        acknowledgement on it."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for session in dirty.values():
            if session.state is State.CONNECTED:
                self._pump(session)

    def pin(self, peer_id: NodeId) -> None:
        """Watch the link to this peer, so that its death is noticed. As many unpins end it."""
        session = self._sessions.get(peer_id)
        pins = self._pins.get(peer_id, 0)
        if session is not None and not session.is_missed(pins > 0):
            session.miss(self._clock())
        self._pins[peer_id] = pins + 1
        if session is not None and pins == 0:
            self._arm(session)

    def unpin(self, peer_id: NodeId) -> None:
        """Take one pin back."""
        pins = self._pins.pop(peer_id, 0)
        assert pins > 0, f"{peer_id} was not pinned"
        if pins > 1:
            self._pins[peer_id] = pins - 1
        session = self._sessions.get(peer_id)
        if session is not None:
            self._arm(session)

    def leave(self, reason: str) -> None:
        """Say good-bye to all and close. Nothing is emitted; nothing can be sent from now on."""
        self.flush()
        self._has_left = True
        for session in list(self._sessions.values()):
            if session.wire is not None and session.state is State.CONNECTED:
                self._write(session.wire, Bye(reason, final=True))
            self._enter(session, State.CLOSED)
            self._alarms.cancel(session)
        for wire in list(self._wires.values()):
            self._close_wire(wire, reason)
        for seed in self._seeds.values():
            self._alarms.cancel(seed)
        self._sessions.clear()
        self._seeds.clear()
        self._dirty.clear()
        self._acks.clear()

    def connected(self, peer_id: NodeId) -> bool:
        """Whether a connection carries the session with this peer now."""
        session = self._sessions.get(peer_id)
        return session is not None and session.state is State.CONNECTED

    def sessions(self) -> tuple[SessionStatus, ...]:
        """All sessions, oldest first."""
        return tuple(
            SessionStatus(
                peer=session.peer,
                state=session.state.name,
                since=session.since,
                queued_bytes=session.send_buffer.queued_bytes,
                in_flight_bytes=session.send_buffer.in_flight_bytes,
                sent=session.send_buffer.number,
                received=session.receive_buffer.expected,
                reason="" if session.state is State.CONNECTED else session.reason,
            )
            for session in self._sessions.values()
        )

    def queues(self) -> Iterator[tuple[NodeId, int, int]]:
        """(peer, bytes that wait, bytes under way) of all sessions, oldest first."""
        for session in self._sessions.values():
            yield (
                session.peer.id,
                session.send_buffer.queued_bytes,
                session.send_buffer.in_flight_bytes,
            )

    def idle(self) -> bool:
        """Whether no data-plane message is queued or unacknowledged, with any peer.

        The rest does not count: machines gossip for ever, so that in a large overlay, or one that
        loses frames, hardly a moment would be idle.
        """
        return not any(session.send_buffer.has_data() for session in self._sessions.values())

    # From the driver

    def on_frame(self, connection: ConnectionId, frame: Frame) -> None:
        """A frame arrived. Frames of connections that this side has closed are ignored."""
        wire = self._wires.get(connection)
        if wire is None:
            return
        session = wire.session
        if wire.stage is not Stage.LIVE or session is None:
            self._on_early_frame(wire, frame)
            return
        session.heard = self._clock()
        try:
            if type(frame) is Batch:
                self._on_batch(wire, session, frame)
            elif type(frame) is Ack:
                self._on_ack(session, frame)
            elif isinstance(frame, Hello | Welcome):
                self._on_late_greeting(wire, session, frame)
            elif isinstance(frame, Bye):
                self._on_bye(wire, session, frame)
            else:
                raise ProtocolError("a frame of no known kind")
        except ProtocolError as error:
            self._break(session, str(error))
        except DigestMismatchError as error:
            self.on_garbage(connection, str(error))

    def on_garbage(self, connection: ConnectionId, reason: str) -> None:
        """Bytes arrived that are no frame: the connection is closed, the session may resume on
        another one, but not hotly."""
        wire = self._wires.get(connection)
        if wire is None:
            return
        self._count("link_errors", 1)
        if wire.session is not None:
            self._faults.note_damage(wire.session.peer.id, self._clock())
        self._close_wire(wire, reason)
        self._ended(wire, reason)

    def deadline(self) -> float | None:
        """When `on_tick` wants to be called (monotonic seconds), None if nothing is pending."""
        alarm = self._alarms.deadline()
        if not self._acks:
            return alarm
        ack = self._acks[0][0]
        return ack if alarm is None else min(alarm, ack)

    def on_tick(self, late: float = 0.0) -> None:
        """Do what has fallen due. Calling too early or twice does no harm. `late`: seconds since
        something else of this node should have been done."""
        now = self._clock()
        due = self._alarms.deadline()
        if due is not None:
            late = max(late, now - due)
        if late >= self._settings.heartbeat:
            self._doubt_itself(late, now)
        while self._acks and self._acks[0][0] <= now:
            session = self._acks.popleft()[1]
            session.ack_timed = False
            if session.ack_due and session.wire is not None and session.state is State.CONNECTED:
                self._acknowledge(session, session.wire)
        # Each owner may need a second look at most: what is due compares as its alarm was computed.
        for _ in range(2 * (len(self._sessions) + len(self._wires) + len(self._seeds))):
            owner = self._alarms.take(now)
            if owner is None:
                break
            if isinstance(owner, Session):
                self._on_session_alarm(owner, now)
            elif isinstance(owner, Wire):
                self._on_wire_alarm(owner, now)
            elif isinstance(owner, Seed):
                self._on_seed_alarm(owner, now)

    # Batches

    def _pump(self, session: Session) -> None:
        """Write what the credit allows; see that what arrived gets acknowledged."""
        wire = session.wire
        assert wire is not None, "CONNECTED without a connection"
        while (sent := session.send_buffer.next_batch()) is not None:
            self._write_batch(session, wire, sent)
        if session.send_buffer.queued:
            self._arm(session)  # no credit: it has to be asked for
        if not session.ack_due:
            return
        if session.ack_bytes * ACK_SHARE >= self._settings.window:
            self._acknowledge(session, wire)
        elif not session.ack_timed:
            session.ack_timed = True
            self._acks.append((self._clock() + ACK_DELAY, session))

    def _on_batch(self, wire: Wire, session: Session, batch: Batch) -> None:
        self._learn_acknowledged(session, batch.acknowledged, batch.credit)
        receive_buffer = session.receive_buffer
        arrival = receive_buffer.receive(batch)
        if arrival is Arrival.IN_ORDER:
            self._take(session, batch)
            while (kept := receive_buffer.next_buffered()) is not None:
                self._take(session, kept)
        gap = receive_buffer.new_gap()
        if gap or arrival is Arrival.DUPLICATE:
            self._acknowledge(session, wire, gap)

    def _take(self, session: Session, batch: Batch) -> None:
        session.used = session.heard
        session.ack_due = True
        session.ack_bytes += len(batch.body)
        self._dirty[session.peer.id] = session
        peer = session.peer
        for message in self._codec.decode(unpack(batch)):
            self._dispatch(peer, message)

    def _on_ack(self, session: Session, ack: Ack) -> None:
        self._learn_acknowledged(session, ack.acknowledged, ack.credit)
        if ack.gap:
            self._write_again(session, session.send_buffer.fill_gap(ack.acknowledged, ack.gap))
        if ack.asks:
            session.used = session.heard  # somebody watches this link: it is no idle one
            session.ack_due = True
            self._dirty[session.peer.id] = session

    def _learn_acknowledged(self, session: Session, acknowledged: int, credit: int) -> None:
        send_buffer = session.send_buffer
        if send_buffer.acknowledge(acknowledged, credit):
            if session.is_silent:
                self._emit(LinkRecovered(session.peer))
            session.delivered(session.heard)
            self._write_again(session, send_buffer.recover())
        if send_buffer.queued:
            self._dirty[session.peer.id] = session

    # Ends

    def _on_bye(self, wire: Wire, session: Session, bye: Bye) -> None:
        if not bye.rest:
            self._close_session(session, bye.reason, left=bye.final)
            return
        self._close_wire(wire, bye.reason)
        if session.send_buffer.is_empty and session.peer.id not in self._pins:
            self._rest(session)
        else:
            self._ended(wire, bye.reason)

    def _break(self, session: Session, reason: str) -> None:
        """The peer broke the protocol: whatever it sent would come again, so the session ends."""
        self._count("link_errors", 1)
        self._faults.note(session.peer.id, session.heard)
        if session.wire is not None:
            self._write(session.wire, Bye(reason))
        self._close_session(session, reason, left=False)

    def _drop(self, peer: Peer, message: Message, size: int, reason: str) -> None:
        self._count("link_dropped", 1)
        self._trace("drop", peer=peer.id, reason=f"{type(message).__name__}: {reason}", size=size)

    # What falls due

    def _doubt_itself(self, late: float, now: float) -> None:
        """This node stood still (P3, Lifeguard): whom it did not hear meanwhile may have spoken."""
        self._count("local_stalls", 1)
        self._emit(LocalStall(late))
        for session in self._sessions.values():
            session.excuse(late, now)
        for wire in self._wires.values():
            wire.give_up += late

    def _on_session_alarm(self, session: Session, now: float) -> None:
        if session.state is State.CONNECTING:
            if now >= session.given_up_at():
                self._close_session(session, session.reason, left=False)
                return
            if session.wire is None and now >= session.dial_at:
                self._dial(session)
            self._tell_silence(session, now)
        elif session.state is State.CONNECTED:
            self._on_live_alarm(session, now)
        self._arm(session)

    def _tell_silence(self, session: Session, now: float) -> None:
        """What waits may go another way."""
        if now >= session.tell_at and (waiting := session.tell(now)):
            self._emit(LinkSuspected(session.peer, waiting))

    def _on_live_alarm(self, session: Session, now: float) -> None:
        settings = self._settings
        wire = session.wire
        assert wire is not None, "CONNECTED without a connection"
        is_pinned = session.peer.id in self._pins
        if not session.is_missed(is_pinned):
            if now >= session.used + settings.idle_close:
                self._put_to_rest(session, IDLE)
            return
        if now >= session.heard + settings.dead_after:
            self._close_session(session, f"silent for {settings.dead_after:g} s", left=False)
            return
        if now >= session.retransmit_at:
            session.timed_out(now)
            self._write_again(session, session.send_buffer.probe())
        self._tell_silence(session, now)
        if now >= session.spoken + settings.heartbeat:
            session.used = now
            self._acknowledge(session, wire, asks=True)

"""Connections and the lives of sessions and seeds: who is dialled when, and what an end means.

Three things may end. A *connection* that ends costs its session nothing but time: the session
goes on CONNECTING and dials with back-off. A *session* that ends is reported once (LinkDown) with
everything that may be lost. A *seed*, an address of the peer list, never ends: while nobody it
leads to is connected it is dialled again, for ever, so that a healed partition merges (C1). The
one exception is an address that turns out to be this node's own. A seed whose link was put to rest
in order was alive at that time, so there is no hurry (`SEED_RECHECK`), until any session ends: then
something happened, and it may be on the other side of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from overlay.links.deadlines import Alarms
from overlay.links.events import (
    REFUSED,
    Codec,
    ConnectionId,
    LinkDown,
    SeedFailed,
    SeedReached,
    SessionEnd,
    Transport,
)
from overlay.links.eviction import (
    EVICTABLE_AFTER,
    MAX_ACTIVE_SESSIONS,
    MAX_DORMANT_SESSIONS,
    least_recently_used,
)
from overlay.links.messages import Ack, Batch, Bye, Frame
from overlay.links.penalties import Faults
from overlay.links.send_buffer import InFlightBatch
from overlay.links.session import MAX_REFUSALS, Seed, Session, Stage, State, Wire, backoff
from overlay.machine import LocalEvent, Message, NodeId, Peer
from overlay.settings import LinkSettings

MAX_AWAITING_HELLO = 1_024
"""Accepted connections that have not said who they are. Wild guess."""

MAX_SEEDS = 1_024
"""Addresses in the peer list. Wild guess."""

CORRUPTION_SHARE = 3
"""A link that was damaged is shut for at most this part of the silence that counts as death: then
there is time for some dials. Wild guess."""

SEED_RECHECK = 600.0
"""Seconds after which a seed is dialled again whose link was put to rest in order. Ten thousand
nodes may have the same one, and it would hear from them all the time. Wild guess."""


class Connections:
    """The lowest layer of `Links`: state, dialling, ends."""

    def __init__(
        self,
        me: Peer,
        incarnation: int,
        overlay: str,
        settings: LinkSettings,
        rng: Random,
        codec: Codec,
        transport: Transport,
        clock: Callable[[], float],
        emit: Callable[[LocalEvent], None],
        dispatch: Callable[[Peer, Message], None],
        count: Callable[[str, int], None],
        trace: Callable[..., None],
        seed_retry_most: float = 30.0,  # ViewSettings.seed_retry_most
    ) -> None:
        self._me = me
        self._incarnation = incarnation
        self._overlay = overlay
        self._settings = settings
        self._rng = rng
        self._codec = codec
        self._transport = transport
        self._clock = clock
        self._emit = emit
        self._dispatch = dispatch
        self._count = count
        self._trace = trace
        self._seed_retry_most = seed_retry_most
        self._alarms = Alarms()
        self._faults = Faults(
            settings.retry_first, settings.retry_most, settings.dead_after / CORRUPTION_SHARE
        )
        self._sessions: dict[NodeId, Session] = {}
        self._resting: dict[NodeId, Session] = {}  # … of those NOT_CONNECTED, longest first
        self._session_number = 0
        self._wires: dict[ConnectionId, Wire] = {}
        self._awaiting = 0  # how many of the wires have not said Hello
        self._seeds: dict[str, Seed] = {}
        self._pins: dict[NodeId, int] = {}
        self._dirty: dict[NodeId, Session] = {}  # have something to flush
        self._acks: deque[tuple[float, Session]] = deque()  # one delay for all: sorted by time
        self._last: Message | None = None
        self._last_encoded = b""
        self._has_left = False

    # The driver's reports on connections

    def on_accepted(self, connection: ConnectionId) -> None:
        """Somebody dialled this node; it has `connect_timeout` to say Hello."""
        if self._has_left or self._awaiting >= MAX_AWAITING_HELLO:
            self._transport.close(connection, "too many connections")
            return
        self._awaiting += 1
        self._add_wire(connection, Stage.AWAITING)

    def on_closed(self, connection: ConnectionId, reason: str) -> None:
        """A connection is gone, or a dial failed."""
        wire = self._wires.get(connection)
        if wire is not None:
            self._unhook(wire)
            self._ended(wire, reason)

    def _add_wire(self, connection: ConnectionId, stage: Stage) -> Wire:
        wire = Wire(connection, stage, self._clock() + self._settings.connect_timeout)
        self._wires[connection] = wire
        self._alarms.set(wire, wire.give_up)
        return wire

    def _write(self, wire: Wire, frame: Frame) -> None:
        if wire.session is not None:
            wire.session.spoken = self._clock()
        self._transport.write(wire.connection, frame)

    def _write_batch(self, session: Session, wire: Wire, sent: InFlightBatch) -> None:
        session.ack_due = False
        session.ack_bytes = 0
        batch = Batch(
            sent.number,
            session.receive_buffer.expected,
            self._settings.window,
            sent.digest,
            sent.compressed,
            sent.body,
        )
        session.sent_batch(sent.number, self._clock())
        self._count("link_bytes", len(sent.body))
        self._write(wire, batch)
        if session.retransmit_at < session.alarm:
            self._alarms.set(session, session.retransmit_at)

    def _write_again(self, session: Session, batches: Iterable[InFlightBatch]) -> None:
        wire = session.wire
        if wire is None:
            return
        for sent in batches:
            self._count("link_resent", 1)
            self._write_batch(session, wire, sent)

    def _close_wire(self, wire: Wire, reason: str) -> None:
        """Close and forget a connection. What that means for its session is the caller's."""
        self._unhook(wire)
        self._transport.close(wire.connection, reason)

    def _unhook(self, wire: Wire) -> None:
        if self._wires.pop(wire.connection, None) is None:
            return
        self._alarms.cancel(wire)
        if wire.stage is Stage.AWAITING:
            self._awaiting -= 1
        if wire.session is not None and wire.session.wire is wire:
            wire.session.wire = None
        if wire.seed is not None:
            wire.seed.wire = None

    def _ended(self, wire: Wire, reason: str) -> None:
        """An unhooked connection failed or was lost: back off and dial again."""
        if self._has_left:
            return
        if wire.seed is not None:
            self._seed_failed(wire.seed, reason)
        session = wire.session
        if session is None or session.state in (State.CLOSED, State.NOT_CONNECTED):
            return
        now = self._clock()
        session.reason = reason
        if session.state is State.CONNECTED:
            if now - session.since >= self._settings.heartbeat:
                session.attempts = 0  # it lasted: no reason to be shy
            self._enter(session, State.CONNECTING)
            self._trace("link", peer=session.peer.id, reason=f"lost: {reason}")
        session.refusals = session.refusals + 1 if reason == REFUSED else 0
        if session.refusals >= MAX_REFUSALS:
            self._close_session(session, reason, left=False, end=SessionEnd.GONE)
            return
        session.back_off(now, self._rng, self._faults.until(session.peer.id))
        self._arm(session)

    # Sessions

    def _begin(self, peer: Peer) -> Session | None:
        """A new session, not dialled yet; None if there are too many."""
        if not self._has_room():
            return None
        now = self._clock()
        self._session_number += 1
        session = Session(peer, self._session_number, self._settings, self._codec, now)
        session.dial_at = max(now, self._faults.until(peer.id))
        self._sessions[peer.id] = session
        return session

    def _has_room(self, session: Session | None = None) -> bool:
        """Whether one more session may live, a new one or `session`, which may rest: after those
        that nobody uses have given way."""
        if session is not None:
            if self._resting.pop(session.peer.id, None) is None:
                return True
            self._resting[session.peer.id] = session  # not the one to be forgotten now
        if len(self._sessions) - len(self._resting) < MAX_ACTIVE_SESSIONS:
            return True
        before = self._clock() - EVICTABLE_AFTER * self._settings.heartbeat
        idle = least_recently_used(self._sessions.values(), self._pins, before)
        for session in idle:
            self._put_to_rest(session, "room for another link")
        self._count("links_evicted", len(idle))
        return bool(idle)

    def _enter(self, session: Session, state: State) -> None:
        """Change a session's state, and note who rests."""
        session.enter(state, self._clock())
        if state is State.NOT_CONNECTED:
            self._resting[session.peer.id] = session
            if len(self._resting) > MAX_DORMANT_SESSIONS:
                forgotten = next(iter(self._resting.values()))
                self._enter(forgotten, State.CLOSED)
                del self._sessions[forgotten.peer.id]
        else:
            self._resting.pop(session.peer.id, None)

    def _wanted(self, peer: Peer, session: Session | None) -> Session | None:
        """There is something to say to a peer that is not connected. None if that cannot be."""
        if self._has_left:
            return None
        now = self._clock()
        if session is None:
            session = self._begin(peer)
            if session is None:
                return None
        elif not self._has_room(session):
            return None
        elif session.state is State.NOT_CONNECTED:
            session.attempts = 0
            session.dial_at = max(now, self._faults.until(peer.id))
            self._enter(session, State.CONNECTING)
        if session.their_incarnation == 0 and session.peer.address != peer.address:
            session.peer = peer  # both are hearsay: the newer one may be better
        if session.wire is None and session.dial_at <= now:
            self._dial(session)
        self._arm(session)
        return session

    def _dial(self, session: Session) -> None:
        wire = self._add_wire(self._transport.dial(session.peer.address), Stage.OPENING)
        wire.session = session
        session.wire = wire

    def _put_to_rest(self, session: Session, reason: str) -> None:
        """Close the connection of a link that nobody uses, in order: the other side hears first
        what of its words arrived."""
        wire = session.wire
        assert wire is not None, "CONNECTED without a connection"
        if session.ack_due:
            self._acknowledge(session, wire)
        self._write(wire, Bye(reason, rest=True))
        self._close_wire(wire, reason)
        self._rest(session)

    def _acknowledge(self, session: Session, wire: Wire, gap: int = 0, asks: bool = False) -> None:
        session.ack_due = False
        session.ack_bytes = 0
        self._write(wire, Ack(session.receive_buffer.expected, self._settings.window, gap, asks))

    def _rest(self, session: Session) -> None:
        """Nobody used the link and its connection is closed: keep the numbers only."""
        self._enter(session, State.NOT_CONNECTED)
        session.reason = "at rest"
        self._alarms.cancel(session)
        self._trace("link", peer=session.peer.id, reason="at rest")
        for seed in self._seeds.values():
            if seed.peer == session.peer.id and seed.wire is None:
                seed.is_reached = False
                self._look_within(seed, SEED_RECHECK)

    def _close_session(
        self, session: Session, reason: str, left: bool, end: SessionEnd = SessionEnd.UNREACHABLE
    ) -> None:
        """M5's CLOSED: report what may be lost, forget."""
        if session.state is State.CLOSED:
            return
        if session.wire is not None:
            self._close_wire(session.wire, reason)
        self._enter(session, State.CLOSED)
        self._alarms.cancel(session)
        del self._sessions[session.peer.id]
        self._dirty.pop(session.peer.id, None)
        self._report_down(session, reason, left, end)
        self._seek_again(session.peer.id)

    def _report_down(
        self, session: Session, reason: str, left: bool, end: SessionEnd = SessionEnd.UNREACHABLE
    ) -> None:
        for seed in self._seeds.values():
            if not seed.is_reached and seed.wire is None:
                self._look_within(seed, self._seed_retry_most)
        what = "anew" if end is SessionEnd.RESET else "down"
        self._trace("link", peer=session.peer.id, reason=f"{what}: {reason}")
        self._emit(LinkDown(session.peer, reason, left, session.send_buffer.undelivered(), end))

    def _arm(self, session: Session) -> None:
        self._alarms.set(session, session.next_alarm(session.peer.id in self._pins))

    # Seeds

    def add_seed(self, address: str) -> None:
        """An address of the peer list ("host:port"): dialled until somebody there is connected,
        and again whenever nobody is. Emits SeedReached and SeedFailed."""
        if self._has_left or address in self._seeds or len(self._seeds) >= MAX_SEEDS:
            return
        if address == self._me.address:
            return
        seed = self._seeds[address] = Seed(address)
        self._on_seed_alarm(seed, self._clock())

    def _on_seed_alarm(self, seed: Seed, now: float) -> None:
        if seed.is_reached or seed.wire is not None:
            return
        for session in self._sessions.values():
            if session.peer.address == seed.address and session.state is State.CONNECTED:
                self._seed_reached(seed, session.peer)
                return
        seed.wire = self._add_wire(self._transport.dial(seed.address), Stage.OPENING)
        seed.wire.seed = seed

    def _seed_reached(self, seed: Seed, peer: Peer) -> None:
        seed.peer = peer.id
        seed.is_reached = True
        seed.attempts = 0
        self._alarms.cancel(seed)
        self._emit(SeedReached(seed.address, peer))

    def _seed_failed(self, seed: Seed, reason: str) -> None:
        self._emit(SeedFailed(seed.address, reason))
        self._seek(seed)

    def _seek(self, seed: Seed) -> None:
        seed.is_reached = False
        pause = backoff(seed.attempts, self._settings.retry_first, self._seed_retry_most, self._rng)
        seed.attempts += 1
        self._alarms.set(seed, self._clock() + pause)

    def _look_within(self, seed: Seed, most: float) -> None:
        """Dial a seed again in half of `most` seconds to all of them, or earlier if that is due."""
        self._alarms.set(seed, self._clock() + most * (0.5 + self._rng.random() / 2))

    def _seek_again(self, peer_id: NodeId) -> None:
        """A session ended: the seeds that led to it are dialled again."""
        for seed in self._seeds.values():
            if seed.peer == peer_id and seed.wire is None:
                self._seek(seed)

    def _found(self, peer: Peer) -> None:
        """`peer` is connected: so are the seeds that lead to it."""
        for seed in self._seeds.values():
            if not seed.is_reached and (seed.peer == peer.id or seed.address == peer.address):
                self._seed_reached(seed, peer)

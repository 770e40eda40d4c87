"""The producers of a node's programs.

A program appends as a producer that it has begun, with sessions and numbers of its own, or as the
node. The node has one producer, named by its id, whose session at a shard all programs share; its
numbers belong to this process, so that a program only waits for the answer.

The control socket bounds the commands of a program without an answer: it reads no more of them
(canopy/wire/control).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from msgspec import Struct

from matching import Value
from overlay.client import AppendEvents, Command, Draft, EventsAppended, Failed
from overlay.command_faults import NODE_PREFIX, fault_in_producer
from overlay.info import AppendReceipt
from overlay.machine import LocalEvent, Machine, Peer, Port, Timer
from overlay.stream_client import BeginProducer, ProducerReady
from overlay.upper_tree.publisher.admission import fits, refusal, row_refusal, uniform_batch
from streams.access import pacing
from streams.access.ask import HeldCommands
from streams.access.locator import StreamLocated, StreamLocator, StreamMissing
from streams.access.reasons import IN_DOUBT, MALFORMED, TOO_LARGE
from streams.directory.entry import StreamEntry
from streams.log.batches import Row, encode_rows, lacks_key
from streams.log.names import TRACES, fork_shard
from streams.programs.producer.append_session import AppendSession, LogSession, session_of
from streams.programs.producer.messages import (
    BATCH_MOST,
    AppendRefused,
    ForkIsOpen,
    ForkRefused,
    Opener,
    ProducerIsOpen,
    RowsAppended,
    Run,
    token_of,
)

IDLE_MOST: Final = 1_024
"""The limit of streams at which the node's own producer is kept while it is idle."""

LEAVING: Final = "leaving"


class SendAppends(LocalEvent, frozen=True):
    """An event that sends the batches of all commands of a turn."""


class LookAtProducers(Timer, frozen=True):
    """The timer of sessions with batches under way."""


class _Append(Struct):
    """An AppendEvents with batches under way at some shards."""

    client: int
    request: int
    stream: str
    is_traced: bool
    open: int = 1
    """The number of batches without an answer."""
    next: dict[int, int] = {}
    """By shard: the number that follows, of a program's producer."""
    appended: list[int] = []
    """The shards that have their events."""
    receipts: list[AppendReceipt] = []
    failed: tuple[str, str] | None = None


class _Session:
    """One producer at one stream: an `AppendSession` for each shard. `client` 0: the node
    itself."""

    def __init__(self, client: int, entry: StreamEntry) -> None:
        self.client = client
        self.entry = entry
        self.shards: dict[int, AppendSession] = {}
        self.next: dict[int, int] = {}


class Producers(Machine):
    """The producers of this node's programs, and its own."""

    def __init__(self, port: Port, incarnation: int, locator: StreamLocator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port)
        self._incarnation = incarnation
        self._locator = locator
        self._own: dict[str, _Session] = {}  # by stream: the node's
        self._named: dict[tuple[int, str, str], _Session] = {}  # by client, stream, producer
        self._held = HeldCommands(locator)
        self._gathered: dict[str, list[tuple[int, AppendEvents]]] = {}  # of this turn, by stream
        self._sessions: dict[int, AppendSession] = {}  # by identity
        self._identity = self._tokens = 0
        self._busy: dict[AppendSession, str] = {}  # that are to be looked at, with their stream
        self._awake: dict[AppendSession, None] = {}  # those of them that have something new to send
        self._is_sending = self._is_looking = self._leaving = False
        locator.tell_losses(self.link_down)

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each command."""
        return {BeginProducer: self.begin, AppendEvents: self.append}

    @property
    def unanswered(self) -> int:
        """The number of sessions with batches under way."""
        return sum(not sending.is_idle for sending in self._busy)

    # -- programs --------------------------------------------------------------------------------

    def begin(self, client: int, command: BeginProducer) -> None:
        """Begin a producer's session in all shards of a stream."""
        refused = fault_in_producer(command) or ((LEAVING, "") if self._leaving else None)
        if refused:
            self._fail(client, command, *refused)
            return
        known = self._locator.known.get(command.stream)
        if known is None:
            self._held.hold(client, command.stream, command)
            return
        entry = known.entry
        if fault := closed(entry):
            self._fail(client, command, "usage", fault)
            return
        if command.first > 0 and len(entry.places) > 1:
            reason = "the events of several shards have numbers of their own: give one for each"
            self._fail(client, command, "usage", reason)
            return
        firsts = command.firsts or (command.first,) * len(entry.places)
        if len(firsts) != len(entry.places) or min(firsts) < -1:
            reason = f"the stream has {len(entry.places)} shards, of which each has its numbers"
            self._fail(client, command, "usage", reason)
            return
        key = (client, command.stream, command.producer)
        self._drop(self._named.pop(key, None))
        session = self._named[key] = _Session(client, entry)
        self._tokens += 1
        attempt = f"{self.port.me.id}.{self._incarnation}.{self._tokens}"
        token = token_of(Opener(command.token, command.resumed), attempt)

        def opened(shard: int, following: int) -> None:
            session.next[shard] = following
            if len(session.next) == len(entry.places) and self._named.get(key) is session:
                numbers = tuple(session.next[shard] for shard in range(len(entry.places)))
                begins = tuple(s.following for _, s in sorted(session.shards.items()))
                self.port.reply(client, ProducerReady(command.request, numbers, begins))

        def failed(code: str, reason: str) -> None:
            if self._named.get(key) is session and len(session.next) < len(entry.places):
                self._drop(self._named.pop(key))
                self._fail(client, command, code, reason)

        for shard in range(len(entry.places)):
            log = LogSession(token, firsts[shard], command.step)
            self._open(session, shard, command.producer, log, partial(opened, shard), failed)

    def append(self, client: int, command: AppendEvents) -> None:
        """Append events as one batch in each shard."""
        if self._leaving:
            self._fail(client, command, LEAVING, "the node is leaving: it carries out nothing new")
            return
        if not command.events:
            self.port.reply(client, EventsAppended(command.request, "", ()))
            return
        located = self._locator.known.get(command.stream)
        if not command.producer and located is not None and len(located.entry.places) == 1:
            self._gathered.setdefault(command.stream, []).append((client, command))
            self._send_soon()
            return
        if fault := fault_of(self.port, command.events):
            self._refuse(client, command, "event", fault)
            return
        if command.producer:
            session = self._named.get((client, command.stream, command.producer))
            if session is None or len(session.next) < len(session.entry.places):
                reason = f"this connection has not begun the producer {command.producer}"
                self._fail(client, command, "usage", reason)
                return
        else:
            if located is None:
                self._held.hold(client, command.stream, command)
                return
            if fault := closed(located.entry):
                self._fail(client, command, "usage", fault)
                return
            session = self._own_session(located.entry)
        if fault := unfit(command.events, session.entry):
            self._refuse(client, command, MALFORMED, fault)
            return
        self._append(client, command, session)

    def _append_gathered(self, stream: str, commands: Sequence[tuple[int, AppendEvents]]) -> None:
        """Append the commands of this turn to a stream of one shard, as the node's own producer.
        The events are checked together; each command is a batch."""
        located = self._locator.known.get(stream)
        if located is None:
            for client, command in commands:
                self._held.hold(client, stream, command)
            return
        entry, fault = located.entry, closed(located.entry)
        if fault:
            for client, command in commands:
                self._fail(client, command, "usage", fault)
            return
        session = self._own_session(entry)
        sending = self._own_sending(session, 0)
        drafts = [draft for _, c in commands for draft in c.events]
        # The events of a single command are looked at once.
        is_fit = len(commands) > 1 and uniform_batch(drafts) is not None and fits(self.port, drafts)
        for client, command in commands:
            events = command.events
            if not is_fit and (fault := fault_of(self.port, events)):
                self._refuse(client, command, "event", fault)
                continue
            if fault := unfit(events, entry):
                self._refuse(client, command, MALFORMED, fault)
                continue
            rows = encode_rows([Row(d.attributes, d.payload, d.payload_type) for d in events])
            if len(rows) > BATCH_MOST:
                self._fail(client, command, TOO_LARGE, too_large(len(rows)))
                continue
            is_traced = events[0].payload_type != TRACES
            append = _Append(client, command.request, entry.id, is_traced)
            sending.add(rows, len(events), partial(self._answered, append, 0, ()))
        self._wake(sending, stream)

    def _refuse(self, client: int, command: Command, code: str, reason: str) -> None:
        self.port.count("refused")
        self._fail(client, command, code, reason)

    def _append(self, client: int, command: AppendEvents, session: _Session) -> None:
        entry = session.entry
        places = by_shard(command.events, entry)
        sizes = {}
        encoded = {}
        behind = {}
        for shard, mine in places.items():
            drafts = command.events if len(places) == 1 else [command.events[n] for n in mine]
            sending = self._own_sending(session, shard)
            following = sending.following
            behind[shard] = following + len(drafts)
            passed = max(0, sending.rows.appended - following) if command.producer else 0
            if 0 < passed < len(drafts):  # what a session before has appended in another batch
                sending.pass_over(passed)
                drafts = drafts[passed:]
                places[shard] = (mine or range(len(command.events)))[passed:]
            rows = encode_rows([Row(d.attributes, d.payload, d.payload_type) for d in drafts])
            if len(rows) > BATCH_MOST:
                self._fail(client, command, TOO_LARGE, too_large(len(rows)))
                return
            encoded[shard], sizes[shard] = rows, len(drafts)
        is_traced = command.events[0].payload_type != TRACES
        append = _Append(client, command.request, entry.id, is_traced, len(encoded))
        append.next = behind if command.producer else {}
        for shard, rows in encoded.items():
            sending, mine = session.shards[shard], tuple(places[shard])
            sending.add(rows, sizes[shard], partial(self._answered, append, shard, mine))
            self._wake(sending, entry.name)

    def _answered(
        self,
        append: _Append,
        shard: int,
        places: tuple[int, ...],
        run: Run | None,
        code: str,
        reason: str,
    ) -> None:
        """Answer a command when its last batch is appended or refused."""
        append.open -= 1
        if code:
            append.failed = (code, reason)
        else:
            append.appended.append(shard)
        if not code and run is not None and run.hash:
            epoch, offset, count = run.epoch, run.offset, run.count
            if append.is_traced:
                name = f"{append.stream}/{shard}"
                name = fork_shard(name, run.fork) if run.fork else name
                self.port.trace("append", shard=name, offset=offset, size=count, epoch=epoch)
            digest, holders = run.hash.hex(), run.replicas
            place = (shard, epoch, offset, count, run.chunk, digest)
            append.receipts.append(AppendReceipt(*place, holders, places, run.fork))
        if append.open:
            return
        if append.failed is None:
            receipts = tuple(sorted(append.receipts, key=attrgetter("shard")))
            behind = tuple(sorted(append.next.items()))
            reply = EventsAppended(append.request, append.stream, receipts, behind)
            self.port.reply(append.client, reply)
        else:
            self.port.count("appends_refused")
            if append.appended:
                code, reason = append.failed
                those = ", ".join(map(str, sorted(append.appended)))
                said = f"{reason} ({code}); the events of shards {those} are appended"
                append.failed = (IN_DOUBT, said)
            self.port.reply(append.client, Failed(append.request, *append.failed))

    def _fail(self, client: int, command: Command, code: str, reason: str) -> None:
        self.port.reply(client, Failed(command.request, code, reason))

    def client_gone(self, client: int) -> None:
        """Drop the producers and commands of a program that has gone."""
        for key in [key for key in self._named if key[0] == client]:
            self._drop(self._named.pop(key))
        self._held.client_gone(client)

    def leave(self) -> None:
        """Refuse new commands, since the node leaves."""
        self._leaving = True

    # -- sessions --------------------------------------------------------------------------------

    def _own_session(self, entry: StreamEntry) -> _Session:
        known = self._own.pop(entry.name, None)
        if known is None or known.entry.id != entry.id:
            self._drop(known)
            known = _Session(0, entry)
            self._forget_idle()
        self._own[entry.name] = known
        return known

    def _forget_idle(self) -> None:
        while len(self._own) >= IDLE_MOST:
            idle = (n for n, s in self._own.items() if all(x.is_idle for x in s.shards.values()))
            name = next(idle, None)
            if name is None:
                return
            self._drop(self._own.pop(name))

    def _own_sending(self, session: _Session, shard: int) -> AppendSession:
        """Return a producer's session at a shard. The node's own begins again after it has ended,
        since the refused rows were those of other programs, or may be permitted by now."""
        known = session.shards.get(shard)
        if known is not None and (session.client or not known.ended):
            return known
        token = f"{self.port.me.id}.{self._incarnation}.{self._tokens}"
        self._tokens += 1
        name, log = NODE_PREFIX + self.port.me.id, LogSession(token, renews=True)
        return self._open(session, shard, name, log, lambda following: None)

    def _open(
        self,
        session: _Session,
        shard: int,
        producer: str,
        log: LogSession,
        opened: Callable[[int], None],
        failed: Callable[[str, str], None] | None = None,
    ) -> AppendSession:
        entry = session.entry
        if (former := session.shards.get(shard)) is not None:
            self._forget(former)
        self._identity += 1
        sending = session.shards[shard] = AppendSession(
            self.port,
            self._locator,
            entry.name,
            shard,
            entry.shard(shard),
            producer,
            log,
            self._identity,
            opened,
            failed,
        )
        self._sessions[self._identity] = sending
        self._wake(sending, entry.name)
        return sending

    def _drop(self, session: _Session | None) -> None:
        """Forget the sessions of a producer."""
        for sending in session.shards.values() if session is not None else ():
            self._forget(sending)

    def _forget(self, sending: AppendSession) -> None:
        self._busy.pop(sending, None)
        self._awake.pop(sending, None)
        self._sessions.pop(sending.identity, None)

    # -- sending ---------------------------------------------------------------------------------

    def _wake(self, sending: AppendSession, stream: str) -> None:
        self._busy[sending] = stream
        self._awake[sending] = None
        self._send_soon()
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(pacing.PAUSE, LookAtProducers())

    def _send_soon(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self.port.emit(SendAppends())

    def on_send(self, event: SendAppends) -> None:
        """Send the batches of this turn."""
        gathered, self._gathered = self._gathered, {}
        for stream, commands in gathered.items():
            self._append_gathered(stream, commands)
        self._is_sending = False
        awake, self._awake = self._awake, {}
        for sending in awake:
            sending.pump()

    def on_look(self, timer: LookAtProducers) -> None:
        """Repeat requests without an answer."""
        for sending in list(self._busy):
            if sending.is_idle:
                del self._busy[sending]
            else:
                sending.look()
        self._is_looking = bool(self._busy)
        if self._busy:
            self.port.set_timer(pacing.PAUSE, timer)

    # -- answers ---------------------------------------------------------------------------------

    def on_producer_is_open(self, sender: Peer, message: ProducerIsOpen) -> None:
        """Pass on the answer that a session is open."""
        if sending := self._sessions.get(session_of(message.request)):
            sending.on_open(sender, message)

    def on_rows_appended(self, sender: Peer, message: RowsAppended) -> None:
        """Pass on the answer that a request is committed."""
        if sending := self._sessions.get(session_of(message.request)):
            sending.on_appended(sender, message)

    def on_append_refused(self, sender: Peer, message: AppendRefused) -> None:
        """Pass on the refusal of a request."""
        if sending := self._sessions.get(session_of(message.request)):
            sending.on_refused(sender, message)

    def on_fork_is_open(self, sender: Peer, message: ForkIsOpen) -> None:
        """Pass on the answer of a replica that has a fork."""
        if sending := self._sessions.get(session_of(message.request)):
            sending.on_fork(sender, message)

    def on_fork_refused(self, sender: Peer, message: ForkRefused) -> None:
        """Count a replica that opens no fork. The session asks the others in turn."""
        self.port.count("forks_refused")

    def link_down(self, peer: Peer) -> None:
        """Tell all sessions that a node is unreachable."""
        for session in (*self._own.values(), *self._named.values()):
            for sending in session.shards.values():
                sending.link_down(peer)

    def on_located(self, event: StreamLocated) -> None:
        """Go on with the commands and sessions of a stream, or end those of a removed one."""
        if any(s.entry.id != event.entry.id for s in self._sessions_at(event.name)):
            self._end_stream(event.name, "the stream was removed, and there is another one")
        for sending, stream in list(self._busy.items()):
            if stream == event.name:
                sending.located()
        for client, command in self._held.pop(event.name):
            self.commands()[type(command)](client, command)

    def on_missing(self, event: StreamMissing) -> None:
        """Refuse the commands that wait for a stream, and end its sessions if it was removed."""
        for client, command in self._held.pop(event.name):
            self._fail(client, command, event.code, event.reason)
        if event.code == "unknown":
            self._end_stream(event.name, event.reason)

    def _sessions_at(self, name: str) -> list[_Session]:
        own = self._own.get(name)
        return [*([own] if own else []), *(s for k, s in self._named.items() if k[1] == name)]

    def _end_stream(self, name: str, reason: str) -> None:
        sessions = self._sessions_at(name)
        self._own.pop(name, None)
        self._named = {key: s for key, s in self._named.items() if key[1] != name}
        for session in sessions:
            for sending in session.shards.values():
                sending.end("unknown", reason)
            self._drop(session)


def fault_of(port: Port, events: Sequence[Draft]) -> str:
    """Return the reason why events cannot be appended; "": they can."""
    if uniform_batch(events) is None or not fits(port, events):
        for place, draft in enumerate(events):
            if reason := refusal(draft) or row_refusal(port, draft):
                return f"event {place}: {reason}"
    return ""


def unfit(events: Sequence[Draft], entry: StreamEntry) -> str:
    """Return the reason why the stream refuses events; "": it takes them. Leaders check it, too."""
    key = entry.options.key
    return lacks_key(key, [draft.attributes for draft in events]) if key else ""


def too_large(size: int) -> str:
    """Return the reason why a batch of `size` bytes is refused."""
    return f"a batch of {size:,} bytes; at most {BATCH_MOST:,} are allowed"


def closed(entry: StreamEntry) -> str:
    """Return the reason why programs may not append to a stream; "": they may."""
    origin = entry.options.mirror
    return f"{entry.name} is a mirror of {origin}: append to that" if origin else ""


def by_shard(events: Sequence[Draft], entry: StreamEntry) -> dict[int, Sequence[int]]:
    """Return the indices of the events of each shard; of a single shard none, for all."""
    count = len(entry.places)
    if count == 1:
        return {0: ()}
    found: dict[int, list[int]] = {}
    by = entry.options.by
    for place, draft in enumerate(events):
        found.setdefault(shard_of(draft.attributes.get(by), count), []).append(place)
    return dict(found)


def shard_of(value: Value | None, shards: int) -> int:
    """Return the number of the shard, of `shards`, that has the events with this value of the
    stream's attribute. All nodes agree, and equal values (3 and 3.0) have the same shard."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    kind = "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"
    return zlib.crc32(f"{kind}{value}".encode()) % shards

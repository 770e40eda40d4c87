"""The synchronous face of the client library: `canopy.connect`. Threads may share its objects."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar, Unpack

from canopy.client.blocking import ControlClient, carry_out
from canopy.client.calls import Call, answering
from canopy.client.consumer import Consumer, ManySelectors, OneSelector
from canopy.client.contexts import node_of
from canopy.client.errors import CommandFailed, ControlError, UnreachableError
from canopy.client.frames import OpaqueEvent
from canopy.client.notices import Gap, Notice
from canopy.client.publishing import Attributes, Drafting, Publishing, PublishResult, check_one
from canopy.client.resubscription import SUBACK_TIMEOUT, Backoff, KeptSelector
from canopy.client.seals import open_seals
from canopy.client.session import expected
from canopy.client.streams.appending import Appending, AppendResult, ProducerStart, batches_of
from canopy.client.streams.management import (
    StreamChanges,
    StreamFounding,
    change,
    founding,
    whole,
)
from canopy.client.streams.membership import (
    GroupArguments,
    GroupChanges,
    MembershipCore,
    group_edit,
    wanted_membership,
)
from canopy.client.streams.reading import Begin, ReadingCore, patient, wanted_reading
from canopy.client.streams.transacting import (
    UNKNOWN_TRANSACTION,
    Decided,
    Transacting,
    TransactionCore,
)
from matching import Value
from overlay.client import (
    CREDIT,
    Command,
    Delivery,
    Done,
    Draft,
    Event,
    GetStreams,
    PackedEvents,
    RemoveStream,
    Reply,
    StreamEvent,
    Streams,
)
from overlay.info import StreamInfo, TransactionInfo
from overlay.stream_client import GroupRow

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
E = TypeVar("E")
F = TypeVar("F", bound="Subscription | Gathering")


def connect(
    where: str | Path | None = None,
    *,
    context: str | None = None,
    timeout: float = 5.0,
    reconnect: float = math.inf,
    seal: str | Path | None = None,
) -> Client:
    """Connect to the node of the data folder `where` (None: the default one) or of a control
    socket; or to that of a named `context` of the user (`canopy context`), "": the current one.

    `reconnect`: seconds for which a node that goes away is looked for; 0: not at all. `seal`: a
    seal file (`canopy keys seal new`), by whose keys payloads are sealed before they leave, and
    opened when they come (`canopy.seal_of`).

    Raises UnreachableError where no node runs, DeniedError where it, or the seal file, belongs to
    another user, CommandTimeoutError after `timeout` seconds, AddressError for an address,
    and UnknownContextError.
    """
    node, sealer = node_of(where, context), open_seals(seal)
    client = Client(lambda credit: ControlClient.connect(node, timeout, credit, sealer), reconnect)
    client.open()
    return client


class Client:
    """A program's connection to its node. A context manager; closing it ends its subscriptions."""

    def __init__(self, link: Callable[[int], ControlClient], reconnect: float = math.inf) -> None:
        """`link` opens a connection, with its credit in bytes; `reconnect` as for `connect`."""
        self._open_link = link
        self._reconnect = reconnect
        self._link: ControlClient | None = None
        self._opening = threading.Lock()
        self._closed = threading.Event()
        self._consumers: dict[int, Subscription | Gathering] = {}
        self._drafting = Drafting()
        self._publishing: Publishing[ControlClient] = Publishing(
            self._begin, self._closed.wait, reconnect
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect now instead of with the first request. Raises as `connect`."""
        with self._opening:
            if self._link is None:
                self._link = self._open_link(CREDIT)

    def close(self) -> None:
        """End this connection and its subscriptions. May be called from any thread."""
        self._closed.set()
        for consumer in list(self._consumers.values()):
            consumer.close()
        if self._link is not None:
            self._link.close()

    def publish(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish one event: attributes by name, and opaque bytes of payload with their type.

        Returns when the node has admitted it, with `receipt` when every tree that it visits has
        accepted it. Raises EventRefusedError for an event that is none, and NodeLeavingError where
        the node was leaving and none came back within `timeout` seconds: then it is not published.
        When it raises CommandTimeoutError or UnreachableError, the event may have been published
        all the same, if the error's `in_doubt` is 1.
        """
        drafts = [self._drafting.draft(event, payload, payload_type)]
        return check_one(self.publish_many(drafts, receipt=receipt, timeout=timeout))

    def publish_many(
        self,
        events: Iterable[Attributes | Draft],
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish events in batches, which is much faster than one by one. Those that the node
        refuses are in the result's `refused`; the others are published. `timeout`: seconds for the
        answer to each batch, and for a node to take what a leaving one has refused as a whole.
        Raises as `publish`; the error's `answered` and `in_doubt` say which events are
        published."""
        batches = self._drafting.batches(events, receipt)
        return carry_out(self._publishing.steps(batches, receipt, timeout))

    def call(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        most: int = 1,
        timeout: float = 5.0,
    ) -> list[Event]:
        """Publish an event that asks for answers, and return them: when there are `most`, or those
        that came within `timeout` seconds of publishing, perhaps none.

        Whoever's selector the event matches may `answer`. Each call makes a subscription of its
        own, and ends it. Raises as `subscribe` and `publish`.
        """
        call = Call(self._drafting.draft(event, payload, payload_type), most, timeout)
        with self.subscribe(call.selector) as answers:
            call.begin()
            self.publish(call.draft)
            while left := call.left:
                call.take(answers.receive(left))
        return call.found

    def answer(
        self,
        event: Event,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        payload_type: str = "",
        *,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Answer an event of a `call`. Raises ValueError if it asks for none, and as `publish`."""
        return self.publish(answering(event, attributes), payload, payload_type, timeout=timeout)

    def streams(self, timeout: float = 30.0) -> tuple[StreamInfo, ...]:
        """All streams of the overlay in order of name, each with its options and the nodes of its
        replicas. Raises CommandTimeoutError where a part of the ring did not answer, and as
        `ask`."""
        return whole(self.ask(GetStreams(0), Streams, timeout))

    def stream(self, name: str, timeout: float = 30.0) -> StreamInfo:
        """A stream with what its replicas, consumers and groups say of themselves. Raises
        CommandFailed (unknown), and as `ask`."""
        return self.ask(GetStreams(0, name), Streams, timeout).streams[0]

    def add_stream(
        self, name: str, *, timeout: float = 30.0, **options: Unpack[StreamFounding]
    ) -> StreamInfo:
        """Found a stream: it is there for good when this returns. Options are those of `canopy
        stream add`; without any it has one shard of three replicas, and keeps everything.

        Raises CommandFailed (exists, usage, full, time-out: perhaps it is there), and as `ask`."""
        return self.ask(founding(name, options), Streams, timeout).streams[0]

    def edit_stream(
        self, name: str, *, timeout: float = 30.0, **changes: Unpack[StreamChanges]
    ) -> StreamInfo:
        """Change options of a stream; what is not given stays. Raises CommandFailed (unknown,
        usage), and as `ask`."""
        return self.ask(change(name, changes), Streams, timeout).streams[0]

    def remove_stream(self, name: str, timeout: float = 30.0) -> None:
        """Remove a stream and all that it has, for ever. Raises CommandFailed (unknown), and as
        `ask`."""
        self.ask(RemoveStream(0, name), Done, timeout)

    def append(
        self,
        stream: str,
        events: Iterable[Attributes | Draft],
        *,
        atomic: bool = False,
        timeout: float = 30.0,
    ) -> AppendResult:
        """Append events to a stream, in batches that are each appended as a whole, and return when
        they are committed: a majority of the stream's replicas has them on disk. `atomic`: all in
        one batch. `timeout`: seconds for the answer to each batch.

        Raises EventRefusedError for an event that is none, CommandFailed with the code too-large,
        quota or unknown, and as `publish_many`: of `in_doubt` events it is not known whether they
        are appended. A `producer` sends such events again without appending them twice."""
        batches = batches_of(self._drafting, events, atomic)
        return carry_out(self._appending(stream).steps(batches, timeout))

    def producer(
        self,
        stream: str,
        name: str,
        first: int | Sequence[int] = -1,
        *,
        step: int = 0,
        start: ProducerStart | None = None,
        timeout: float = 30.0,
    ) -> Producer:
        """Append to a stream as the producer `name`. This fences the program that did so before:
        it gets CommandFailed (code fenced).

        `first`: the program's own number, from 0 on, of the first event that it will append; events
        that are appended already are skipped. -1: the next number. A stream with several shards
        numbers the events of each: `first` is 0 then, or the `Producer.next` that an earlier run of
        the program has stored with its progress.

        `step`: the program's work has steps, numbered from 1 on, and it may repeat the newest step
        from its start, as a retried job does. Events of the step that are appended already are
        skipped, in each shard; earlier steps are refused (fenced). So the program stores no number;
        each run of a step has to append the same events in the same order.

        `start`: identifies the start of the program; with a start that has opened the producer
        before, its session continues unless another program has opened one since (fenced). None: a
        new start."""
        appending = self._appending(stream, name, first, step, start)
        carry_out(appending.opening(timeout))
        return Producer(appending, self._drafting)

    def read(
        self,
        stream: str,
        selector: str = "",
        *,
        start: Begin = "new",
        at: int = 0,
        positions: Mapping[int, int] | None = None,
        durable: str = "",
        expire_after: float = 0.0,
        shard: int = -1,
        timeout: float = 30.0,
    ) -> Reading:
        """Read the events of a stream that `selector` matches (all, if there is none).

        `start`: "first", "new", "keys", an offset, a time (a datetime, or a text such as
        2026-11-23T08:00, local unless it says otherwise), or "time" with nanoseconds since 1970 in
        `at`; shards that are in `positions` begin at the offset there, as `Reading.positions` had
        it. A `durable` reading begins at its own position where the stream knows it and `positions`
        does not have the shard, and the stream keeps what it has not read; it is forgotten
        after `expire_after` seconds without a program, 0: never. `shard`: only this one, -1: all.

        Raises CommandFailed (unknown, selector, fenced, offset-out-of-range: the text says which
        offsets are there), ValueError for another `start`, and as `ask`."""
        places = (start, at, positions or {})
        wanted = wanted_reading(stream, selector, *places, durable, expire_after, shard)
        reading = Reading(self._begin, self._closed.wait, self._reconnect, wanted, timeout)
        reading.open()
        return reading

    def read_packed(
        self,
        stream: str,
        selector: str = "",
        *,
        start: Begin = "new",
        at: int = 0,
        positions: Mapping[int, int] | None = None,
        shard: int = -1,
        timeout: float = 30.0,
    ) -> PackedReading:
        """As `read`, for programs that decode many rows their own way: these come as the stream's
        log has them."""
        places = (start, at, positions or {})
        wanted = wanted_reading(stream, selector, *places, "", 0.0, shard, packed=True)
        reading = PackedReading(self._begin, self._closed.wait, self._reconnect, wanted, timeout)
        reading.open()
        return reading

    def transaction(self, stream: str, producer: str, transaction: str = "") -> Transaction:
        """A transaction of `producer`, whose events nobody sees until it is committed; with an id
        of its own, or that of a `transaction` which was begun before."""
        core = self._transacting(stream)
        return Transaction(core, self._drafting, producer, transaction)

    def transactions(
        self, stream: str, producer: str = "", *, timeout: float = 30.0
    ) -> tuple[TransactionInfo, ...]:
        """The transactions of a stream that are not decided, of one producer or of all. Raises
        CommandFailed (unknown), and as `ask`."""
        return carry_out(self._transacting(stream).listing(producer, timeout))

    def reviews(self, stream: str, producer: str) -> Reviews:
        """Answer for `producer` what became of its transactions (as an outbox of `canopy.sinks`
        does)."""
        return Reviews(self._transacting(stream), producer)

    def _transacting(self, stream: str) -> Transacting[ControlClient]:
        return Transacting(self._begin, self._closed.wait, self._reconnect, stream)

    def group(
        self,
        stream: str,
        group: str,
        selector: str | None = None,
        *,
        timeout: float = 30.0,
        **options: Unpack[GroupArguments],
    ) -> Member:
        """Become a member of a consumer group, whose members share the rows of a stream that
        `selector` matches ("": all).

        A group that is not known is founded with these options, and begins at `start` (as in
        `read`): `lease` seconds (30) for a row, `max_deliver` deliveries (5) before it is a dead
        letter, order `by` the value of an attribute, a `priority` attribute (0 to 9), a `delay`
        attribute or seconds. Later None is whatever the group has. `name`: another member of this
        name is fenced; `credit`: rows of each shard that this one may have at once.

        Raises CommandFailed (unknown, selector, options: the group has others, fenced,
        offset-out-of-range), and as `ask`."""
        wanted = wanted_membership(stream, group, selector, options)
        member = Member(self._begin, self._closed.wait, self._reconnect, wanted, timeout)
        member.open()
        return member

    def edit_group(
        self, stream: str, group: str, *, timeout: float = 30.0, **changes: Unpack[GroupChanges]
    ) -> None:
        """Change the options of a consumer group while it has members; what is not given, or None,
        stays. They hold in all shards when this returns: what was acknowledged stays so, and leases
        that are under way end when they would have.

        `selector` is for rows that are appended from now on; those before it go by the former one.
        `lease`, `max_deliver`, `priority` ("": none) and `delay` (0: none) are for all rows that
        are given to members from now on. `by` is for good.

        Raises CommandFailed (unknown, unknown-group, selector, options: this cannot be changed;
        full: rows wait that go by eight former selectors), and as `ask`; after a time-out some
        shards may be changed, and the same call may be repeated."""
        self.ask(group_edit(stream, group, changes), Done, timeout)

    def _appending(
        self,
        stream: str,
        producer: str = "",
        first: int | Sequence[int] = -1,
        step: int = 0,
        start: ProducerStart | None = None,
    ) -> Appending[ControlClient]:
        place = (stream, producer, first, step, start)
        return Appending(self._begin, self._closed.wait, self._reconnect, *place)

    def subscribe(
        self,
        selector: str,
        *,
        name: str = "",
        latency_level: int = 0,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
        resume: str = "",
    ) -> Subscription:
        """Subscribe, and return when the overlay has acknowledged: every matching event that is
        published from then on is delivered.

        `name`: for traces and the terminal UI; `latency_level`: 1 (most urgent) to 5, 0 for none
        (docs/design/timeliness.md); `credit`: bytes of deliveries that the node may send before the
        program takes them; `resume`: the `token` of the same subscription of a process that has
        ended, to go on behind what it was handed, as far as the node has kept that (a `Gap` says
        if not). Raises SelectorRefusedError, whose text shows the place in the selector,
        CommandTimeoutError without an acknowledgement within `timeout` seconds, and
        UnreachableError while the node is away.
        """
        wanted = [KeptSelector(selector, name, latency_level)]
        link = self._opener(credit)
        made = Subscription(link, wanted, self._reconnect, timeout, self._forget)
        if resume:
            made.succeed(resume)
        return self._opened(made)

    def gather(
        self,
        selectors: Iterable[str] = (),
        *,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> Gathering:
        """Subscribe to many selectors together: an event comes once, however many it matches, and
        the fastest way. More can be added. Raises as `subscribe`."""
        wanted = [KeptSelector(selector) for selector in selectors]
        link = self._opener(credit)
        return self._opened(Gathering(link, wanted, self._reconnect, timeout, self._forget))

    def request(self, command: Command, timeout: float = 30.0) -> Reply:
        """Send any command of `overlay.client` and return its reply; a node that is away is waited
        for, within `timeout` seconds. Raises a ControlError."""
        link, number = self._begin(command, timeout)
        return link.finish(number, timeout)

    def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """`request` for a reply of a known type; ControlError if another one comes."""
        return expected(self.request(command, timeout), kind)

    def _opener(self, credit: int) -> Callable[[], ControlClient]:
        return lambda: self._open_link(credit)

    def _opened(self, consumer: F) -> F:
        consumer.open()
        self._consumers[id(consumer)] = consumer
        return consumer

    def _forget(self, consumer: object) -> None:
        self._consumers.pop(id(consumer), None)

    def _begin(self, command: Command, timeout: float) -> tuple[ControlClient, int]:
        """Send a command on the connection, which is opened if there is none or if it was lost. A
        command that was not sent whole was not carried out, so that it may be sent again."""
        until = time.monotonic() + min(timeout, self._reconnect)
        backoff = Backoff()
        while True:
            link = self._link
            try:
                if self._closed.is_set():
                    raise UnreachableError("this client is closed")
                if link is None:
                    self.open()
                    continue
                return link, link.begin(command, timeout)
            except UnreachableError:
                with self._opening:
                    if link is not None and self._link is link:
                        link.close()
                        self._link = None if self._reconnect > 0 else link
                delay = backoff.next() if link is None else 0.0
                if time.monotonic() + delay >= until or self._closed.is_set():
                    raise
                self._closed.wait(delay)


class Producer:
    """A named producer of one stream: each of its events is appended once, through lost connections
    and nodes that come back. One thread appends."""

    def __init__(self, appending: Appending[ControlClient], drafting: Drafting) -> None:
        self._appending = appending
        self._drafting = drafting

    @property
    def next(self) -> tuple[int, ...]:
        """By shard, the number of its next event, which is the count of its appended events."""
        return self._appending.next

    @property
    def pending(self) -> int:
        """How many batches are under way, after an `append` with `ahead`."""
        return self._appending.pending

    def append(
        self,
        events: Iterable[Attributes | Draft],
        *,
        atomic: bool = False,
        timeout: float = 30.0,
        ahead: int = 0,
    ) -> AppendResult:
        """As `Client.append`. If the node is lost, the producer reconnects and repeats the batches
        without an answer.

        `ahead`: the call returns while up to this many of the last batches (0 to 3) have no answer.
        A later call waits for them (one without events and with `ahead` 0 for all) and raises their
        errors."""
        batches = batches_of(self._drafting, events, atomic)
        return carry_out(self._appending.steps(batches, timeout, ahead))


class Transaction(TransactionCore[ControlClient]):
    """Events that are durable before they are committed: `prepare` them, do something else that can
    fail, and `commit` or `roll_back`.

    A context manager, which rolls back an undecided transaction. A program that was killed before
    its decision is asked for it later (`Client.reviews`, `canopy.outbox`).
    """

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self.decided is None:
            try:
                self.roll_back()
            except ControlError:  # it stays undecided, and is asked about
                if kind is None:
                    raise

    def prepare(self, events: Iterable[Attributes | Draft], timeout: float = 30.0) -> Decided:
        """Have the events kept by a majority of the stream's replicas. Once for a transaction.
        Raises CommandFailed (unknown, event, conflict, full, too-large), and as `Client.ask`: what
        was not answered may be prepared, and is to be decided all the same."""
        return carry_out(self._preparing(events, timeout))

    def commit(self, timeout: float = 30.0) -> Decided:
        """Append the events. The answer is the first decision, which may be another one. Raises
        CommandFailed (unknown-transaction: it was never prepared, or decided long ago)."""
        return carry_out(self._deciding(True, timeout))

    def roll_back(self, timeout: float = 30.0) -> Decided | None:
        """Drop the events. None if they were never prepared."""
        try:
            return carry_out(self._deciding(False, timeout))
        except CommandFailed as error:
            if error.code != UNKNOWN_TRANSACTION:
                raise
            return None


class Reviews:
    """What became of a producer's transactions, asked by the stream. One thread answers."""

    def __init__(self, transacting: Transacting[ControlClient], producer: str) -> None:
        self._transacting = transacting
        self._producer = producer

    def take(self, timeout: float = 60.0) -> tuple[str, ...]:
        """The ids of transactions in review; () if none came in time. Raises CommandFailed (fenced:
        another program answers now). The answer is a decision, or `not_known`."""
        return carry_out(self._transacting.taking_reviews(self._producer, timeout))

    def not_known(self, transaction: str, timeout: float = 30.0) -> None:
        """Answer that this program does not know the transaction's outcome. It stays undecided, is
        reviewed again, and in the end an operator decides."""
        carry_out(self._transacting.leaving_unknown(transaction, timeout))


class Reading(ReadingCore[ControlClient]):
    """The events of a stream that a selector matches, in the order of each shard's offsets.

    A context manager, and an iterator of `StreamEvent` that waits for more. One thread reads. While
    the node is away it is looked for, and the reading goes on where it was: no event is passed
    over, and none comes twice. A *durable* reading has a name, and its position is kept by the
    stream: `commit` says that everything handed out so far is done with, and whoever reads under
    that name next begins behind it. `canopy.sinks` keeps the position in a database instead.
    """

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        while (event := carry_out(self._following())) is not None:
            yield event

    def open(self) -> None:
        """Begin now. Raises as `Client.read`."""
        carry_out(self._opening())

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """The next events; none when none came within `timeout` seconds, or where others were
        passed over. Raises CommandFailed when the reading was ended (fenced: another program reads
        under this name), UnreachableError when the node does not come back in time."""
        return carry_out(self._taking(patient(timeout)))

    def commit(self) -> None:
        """Acknowledge all rows returned so far; returns when the stream has stored the position."""
        carry_out(self._committing())

    def close(self) -> None:
        """End the reading: the node sends no more rows."""
        carry_out(self._ending())


class PackedReading(ReadingCore[ControlClient]):
    """As `Reading`, whose rows are not decoded. It is never durable."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> None:
        """Begin now. Raises as `Client.read`."""
        carry_out(self._opening())

    def take(self, timeout: float | None = None) -> list[PackedEvents]:
        """The next rows; [] if none came within `timeout` seconds, or if only rows without a match
        were scanned. Raises as `Reading.take`, and ControlError if the node is too old for it."""
        return carry_out(self._taking_packed(patient(timeout)))

    def close(self) -> None:
        """End the reading: the node sends no more rows."""
        carry_out(self._ending())


class Member(MembershipCore[ControlClient]):
    """A member of a consumer group; each row that it takes is leased to it for `lease` seconds.

    A context manager, and an iterator of `GroupRow` that waits for more. One thread takes rows and
    answers them. If the node is lost the member reconnects; the rows that it had are delivered to
    other members."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[GroupRow]:
        while (row := carry_out(self._following())) is not None:
            yield row

    def open(self) -> None:
        """Become a member now. Raises as `Client.group`."""
        carry_out(self._attaching())

    def take(self, timeout: float | None = None, most: int = 64) -> list[GroupRow]:
        """The next rows; [] if none came within `timeout` seconds. Raises CommandFailed when the
        membership has ended (fenced, unknown-group), UnreachableError when the node does not come
        back in time."""
        return carry_out(self._taking(patient(timeout), most))

    def ack(self, *rows: GroupRow) -> None:
        """Acknowledge these rows. Returns before the acknowledgement is committed, as the other
        answers do: `flush` waits for the commit, and `lost` has the rows whose leases had ended."""
        carry_out(self._saying("ack", rows))

    def nack(self, *rows: GroupRow, delay: float = 0.0, reason: str = "") -> None:
        """Have these rows delivered again, not before `delay` seconds from now; after the group's
        limit of deliveries they become dead letters."""
        carry_out(self._saying("nack", rows, delay, reason))

    def reject(self, *rows: GroupRow, reason: str = "") -> None:
        """These rows become dead letters."""
        carry_out(self._saying("reject", rows, 0.0, reason))

    def extend(self, *rows: GroupRow) -> None:
        """Restart the leases of these rows."""
        carry_out(self._saying("extend", rows))

    def flush(self) -> None:
        """Wait until all answers to rows are committed. Raises UnreachableError when the node was
        lost: the program does not know then, and rows may come again."""
        carry_out(self._flushing())

    def close(self) -> None:
        """Be a member no more: what it has, and has said nothing of, goes to others."""
        carry_out(self._ending())


class _BlockingConsumer(Consumer[ControlClient, T, E]):
    """A consumer on a blocking connection. One thread takes events; any may call `close`."""

    def __init__(
        self,
        link: Callable[[], ControlClient],
        wanted: Iterable[KeptSelector],
        reconnect: float = math.inf,
        timeout: float = SUBACK_TIMEOUT,
        on_closed: Callable[[object], object] = lambda consumer: None,
    ) -> None:
        """The parameters are those of `Consumer`."""
        super().__init__(link, wanted, reconnect, timeout, on_closed)
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.unsubscribe()

    def __iter__(self) -> Iterator[E]:
        """The events, until this is closed. Gaps are passed over; they are in `gaps`."""
        return (event for one in self._items() if (event := self._event(one)) is not None)

    def with_gaps(self) -> Iterator[E | Gap]:
        """The events, and each gap in its place, until this is closed."""
        return (found for one in self._items() if (found := self._event_or_gap(one)) is not None)

    def open(self) -> None:
        """Connect and subscribe now, instead of with the first `receive`; raises a ControlError."""
        if self._link is None:
            carry_out(self._opening_first())

    def unsubscribe(self) -> None:
        """End the subscription at the node, and this object."""
        carry_out(self._unsubscribing())

    def close(self) -> None:
        """End the connection, and with it the subscriptions; a thread that waits here wakes."""
        self._closed.set()
        super().close()

    def receive(self, timeout: float | None = None) -> list[T | Notice]:
        """What has come, in order: deliveries, and notices in their places.

        Waits for the first, at most `timeout` seconds (None: for ever); [] when none came, or this
        object was closed. Raises UnreachableError when the node went away and is not (any longer)
        looked for, and SubscriptionEndedError when another program has ended all subscriptions of
        this object. A call that finds the node back also waits for its acknowledgement.
        """
        return carry_out(self._receiving(math.inf if timeout is None else timeout))

    def _items(self) -> Iterator[T | Notice]:
        """What comes, one by one, until this is closed."""
        rest = self._rest
        while rest or not self._is_closed:
            while rest:
                yield rest.popleft()
            rest.extend(self.receive())

    def _pause(self, seconds: float) -> bool:
        return self._closed.wait(seconds)


class Subscription(OneSelector[ControlClient], _BlockingConsumer[Delivery, Event]):
    """One selector's events. A context manager that unsubscribes, and an iterable of events."""


class Gathering(ManySelectors[ControlClient], _BlockingConsumer[OpaqueEvent, OpaqueEvent]):
    """Many selectors' events, each once. A context manager that unsubscribes all, and an iterable
    of events whose attributes are decoded when they are asked for."""

    def add(self, selector: str, *, name: str = "", latency_level: int = 0) -> KeptSelector:
        """Subscribe to one more; what to `remove` it with. Raises as `Client.subscribe`."""
        return carry_out(self._adding(KeptSelector(selector, name, latency_level)))

    def remove(self, wanted: KeptSelector) -> None:
        """Unsubscribe what `add` has returned. Raises a ControlError."""
        carry_out(self._removing(wanted))

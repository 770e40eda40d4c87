"""The asynchronous face of the client library, for trio and asyncio alike.

`canopy.trio` and `canopy.aio` hand in a `Runtime` (canopy/client/async_link.py), which has the few
operations that differ.
"""

from __future__ import annotations

import math
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Generic, Self, TypeVar, Unpack

from canopy.client.async_link import AsyncLink, Runtime, carry_out
from canopy.client.calls import Call, answering
from canopy.client.consumer import Consumer, ManySelectors, OneSelector
from canopy.client.errors import CommandFailed, ControlError, UnreachableError
from canopy.client.frames import OpaqueEvent
from canopy.client.notices import Gap, Notice
from canopy.client.publishing import (
    Attributes,
    Drafting,
    Publishing,
    PublishResult,
    check_one,
)
from canopy.client.resubscription import (
    SUBACK_TIMEOUT,
    Backoff,
    KeptSelector,
)
from canopy.client.seals import Sealer, open_seals
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
    Publish,
    RemoveStream,
    Reply,
    StreamEvent,
    Streams,
)
from overlay.info import StreamInfo, TransactionInfo
from overlay.stream_client import GroupRow

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
V = TypeVar("V")
C = TypeVar(
    "C", bound="AsyncClient | AsyncSubscription | AsyncGathering | AsyncReading | AsyncMember"
)
E = TypeVar("E")
F = TypeVar("F", bound="AsyncSubscription | AsyncGathering")


class Opening(Generic[C]):
    """Something that is opened by ``await``, or by ``async with``, which closes it, too."""

    def __init__(self, opened: Callable[[], Awaitable[C]]) -> None:
        self._open = opened
        self._made: C | None = None

    def __await__(self) -> Generator[object, object, C]:
        return self._open().__await__()

    async def __aenter__(self) -> C:
        self._made = await self._open()
        return self._made

    async def __aexit__(self, *exc: object) -> None:
        assert self._made is not None
        await self._made.__aexit__(*exc)


class AsyncClient:
    """A program's connection to its node; tasks may share it. Closing it ends its subscriptions."""

    def __init__(
        self,
        runtime: Runtime,
        where: str | Path | None,
        timeout: float,
        reconnect: float,
        sealer: Sealer | None = None,
    ) -> None:
        self._runtime = runtime
        self._sealer = sealer
        self._where = where
        self._timeout = timeout
        self._reconnect = reconnect
        self._link: AsyncLink | None = None
        self._opening = runtime.lock()
        self._is_closed = False
        self._consumers: dict[int, AsyncSubscription | AsyncGathering] = {}
        self._drafting = Drafting()
        self._publishing: Publishing[AsyncLink] = Publishing(self._begin, self._pause, reconnect)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def open(self) -> AsyncClient:
        """Connect now instead of with the first request. Raises as `connect`."""
        async with self._opening:
            if self._link is None:
                self._link = await self._open_link(CREDIT)
        return self

    def close(self) -> None:
        """End this connection and its subscriptions."""
        self._is_closed = True
        for consumer in list(self._consumers.values()):
            consumer.close()
        if self._link is not None:
            self._link.close()

    async def publish(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish one event, as `canopy.Client.publish`."""
        drafts = [self._drafting.draft(event, payload, payload_type)]
        return check_one(await self.publish_many(drafts, receipt=receipt, timeout=timeout))

    async def publish_many(
        self,
        events: Iterable[Attributes | Draft],
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish events in batches, as `canopy.Client.publish_many`."""
        batches = self._drafting.batches(events, receipt)
        return await carry_out(self._publishing.steps(batches, receipt, timeout))

    async def call(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        most: int = 1,
        timeout: float = 5.0,
    ) -> list[Event]:
        """Publish an event that asks for answers, as `canopy.Client.call`."""
        call = Call(self._drafting.draft(event, payload, payload_type), most, timeout)
        async with self.subscribe(call.selector) as answers:
            call.begin()
            await self.publish(call.draft)
            while left := call.left:
                call.take(await answers.receive(left))
        return call.found

    async def answer(
        self,
        event: Event,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        payload_type: str = "",
        *,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Answer an event of a `call`, as `canopy.Client.answer`."""
        given = answering(event, attributes)
        return await self.publish(given, payload, payload_type, timeout=timeout)

    async def streams(self, timeout: float = 30.0) -> tuple[StreamInfo, ...]:
        """All streams, as `canopy.Client.streams`."""
        return whole(await self.ask(GetStreams(0), Streams, timeout))

    async def stream(self, name: str, timeout: float = 30.0) -> StreamInfo:
        """A stream, as `canopy.Client.stream`."""
        return (await self.ask(GetStreams(0, name), Streams, timeout)).streams[0]

    async def add_stream(
        self, name: str, *, timeout: float = 30.0, **options: Unpack[StreamFounding]
    ) -> StreamInfo:
        """Found a stream, as `canopy.Client.add_stream`."""
        return (await self.ask(founding(name, options), Streams, timeout)).streams[0]

    async def edit_stream(
        self, name: str, *, timeout: float = 30.0, **changes: Unpack[StreamChanges]
    ) -> StreamInfo:
        """Change options of a stream, as `canopy.Client.edit_stream`."""
        return (await self.ask(change(name, changes), Streams, timeout)).streams[0]

    async def remove_stream(self, name: str, timeout: float = 30.0) -> None:
        """Remove a stream for ever, as `canopy.Client.remove_stream`."""
        await self.ask(RemoveStream(0, name), Done, timeout)

    async def append(
        self,
        stream: str,
        events: Iterable[Attributes | Draft],
        *,
        atomic: bool = False,
        timeout: float = 30.0,
    ) -> AppendResult:
        """Append events to a stream, as `canopy.Client.append`."""
        batches = batches_of(self._drafting, events, atomic)
        return await carry_out(self._appending(stream).steps(batches, timeout))

    async def producer(
        self,
        stream: str,
        name: str,
        first: int | Sequence[int] = -1,
        *,
        step: int = 0,
        start: ProducerStart | None = None,
        timeout: float = 30.0,
    ) -> AsyncProducer:
        """Append to a stream as the producer `name`, as `canopy.Client.producer`."""
        appending = self._appending(stream, name, first, step, start)
        await carry_out(appending.opening(timeout))
        return AsyncProducer(appending, self._drafting)

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
    ) -> Opening[AsyncReading]:
        """Read a stream, as `canopy.Client.read`: ``await`` it, or enter it with ``async with``,
        which ends the reading."""
        places = (start, at, positions or {})
        wanted = wanted_reading(stream, selector, *places, durable, expire_after, shard)

        async def opened() -> AsyncReading:
            reading = AsyncReading(self._begin, self._pause, self._reconnect, wanted, timeout)
            await reading.open()
            return reading

        return Opening(opened)

    def transaction(self, stream: str, producer: str, transaction: str = "") -> AsyncTransaction:
        """A transaction, as `canopy.Client.transaction`."""
        core = self._transacting(stream)
        return AsyncTransaction(core, self._drafting, producer, transaction)

    async def transactions(
        self, stream: str, producer: str = "", *, timeout: float = 30.0
    ) -> tuple[TransactionInfo, ...]:
        """The transactions that are not decided, as `canopy.Client.transactions`."""
        return await carry_out(self._transacting(stream).listing(producer, timeout))

    def reviews(self, stream: str, producer: str) -> AsyncReviews:
        """Answer what became of transactions, as `canopy.Client.reviews`."""
        return AsyncReviews(self._transacting(stream), producer)

    def _transacting(self, stream: str) -> Transacting[AsyncLink]:
        return Transacting(self._begin, self._pause, self._reconnect, stream)

    def group(
        self,
        stream: str,
        group: str,
        selector: str | None = None,
        *,
        timeout: float = 30.0,
        **options: Unpack[GroupArguments],
    ) -> Opening[AsyncMember]:
        """Become a member of a consumer group, as `canopy.Client.group`: ``await`` it, or enter it
        with ``async with``, which ends the membership."""
        wanted = wanted_membership(stream, group, selector, options)

        async def opened() -> AsyncMember:
            member = AsyncMember(self._begin, self._pause, self._reconnect, wanted, timeout)
            await member.open()
            return member

        return Opening(opened)

    async def edit_group(
        self, stream: str, group: str, *, timeout: float = 30.0, **changes: Unpack[GroupChanges]
    ) -> None:
        """Change the options of a consumer group, as `canopy.Client.edit_group`."""
        await self.ask(group_edit(stream, group, changes), Done, timeout)

    def _appending(
        self,
        stream: str,
        producer: str = "",
        first: int | Sequence[int] = -1,
        step: int = 0,
        start: ProducerStart | None = None,
    ) -> Appending[AsyncLink]:
        place = (stream, producer, first, step, start)
        return Appending(self._begin, self._pause, self._reconnect, *place)

    def subscribe(
        self,
        selector: str,
        *,
        name: str = "",
        latency_level: int = 0,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
        resume: str = "",
    ) -> Opening[AsyncSubscription]:
        """Subscribe, as `canopy.Client.subscribe`: ``await`` it, or enter it with ``async with``,
        which unsubscribes in the end."""
        wanted = [KeptSelector(selector, name, latency_level)]
        return self._opening_of(AsyncSubscription, wanted, credit, timeout, resume)

    def gather(
        self,
        selectors: Iterable[str] = (),
        *,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> Opening[AsyncGathering]:
        """Subscribe to many selectors together, as `canopy.Client.gather`."""
        wanted = [KeptSelector(selector) for selector in selectors]
        return self._opening_of(AsyncGathering, wanted, credit, timeout)

    async def request(self, command: Command, timeout: float = 30.0) -> Reply:
        """Send any command of `overlay.client`, as `canopy.Client.request`."""
        link, number = await self._begin(command, timeout)
        return await link.finish(number, timeout)

    async def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """`request` for a reply of a known type; ControlError if another one comes."""
        return expected(await self.request(command, timeout), kind)

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Carry out something that blocks, as a statement of a database, in a thread. It goes on to
        its end: a task that is cancelled meanwhile waits for that."""
        return await self._runtime.in_thread(job)

    def _opening_of(
        self,
        kind: type[F],
        wanted: list[KeptSelector],
        credit: int,
        timeout: float,
        resume: str = "",
    ) -> Opening[F]:
        async def opened() -> F:
            consumer = kind(
                self._runtime,
                lambda: self._open_link(credit),
                wanted,
                self._reconnect,
                timeout,
                lambda consumer: self._consumers.pop(id(consumer), None),
            )
            if resume:
                consumer.succeed(resume)
            await consumer.open()
            self._consumers[id(consumer)] = consumer
            return consumer

        return Opening(opened)

    async def _pause(self, seconds: float) -> bool:
        """Sleep, unless this is closed; whether it is."""
        if not self._is_closed:
            await self._runtime.sleep(seconds)
        return self._is_closed

    async def _open_link(self, credit: int) -> AsyncLink:
        opening = (self._runtime, self._where, self._timeout, credit, self._sealer)
        return await AsyncLink.connect(*opening)

    async def _begin(self, command: Command | Publish, timeout: float) -> tuple[AsyncLink, int]:
        """Send a command on the connection, which is opened if there is none or if it was lost. A
        command that was not sent whole was not carried out, so that it may be sent again."""
        until = time.monotonic() + min(timeout, self._reconnect)
        backoff = Backoff()
        while True:
            link = self._link
            try:
                if self._is_closed:
                    raise UnreachableError("this client is closed")
                if link is None:
                    await self.open()
                    continue
                return link, await link.begin(command)
            except UnreachableError:
                if link is not None and self._link is link and self._reconnect > 0:
                    self._link = None
                    link.close()
                delay = backoff.next() if link is None else 0.0
                if time.monotonic() + delay >= until or self._is_closed:
                    raise
                await self._runtime.sleep(delay)


class AsyncProducer:
    """A named producer of one stream, as `canopy.Producer`. One task appends."""

    def __init__(self, appending: Appending[AsyncLink], drafting: Drafting) -> None:
        self._appending = appending
        self._drafting = drafting

    @property
    def next(self) -> tuple[int, ...]:
        """By shard, the number of its next event."""
        return self._appending.next

    @property
    def pending(self) -> int:
        """How many batches are under way."""
        return self._appending.pending

    async def append(
        self,
        events: Iterable[Attributes | Draft],
        *,
        atomic: bool = False,
        timeout: float = 30.0,
        ahead: int = 0,
    ) -> AppendResult:
        """As `canopy.Producer.append`."""
        batches = batches_of(self._drafting, events, atomic)
        return await carry_out(self._appending.steps(batches, timeout, ahead))


class AsyncTransaction(TransactionCore[AsyncLink]):
    """A transaction, as `canopy.Transaction`; enter it with ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        if self.decided is None:
            try:
                await self.roll_back()
            except ControlError:  # it stays undecided, and is asked about
                if kind is None:
                    raise

    async def prepare(self, events: Iterable[Attributes | Draft], timeout: float = 30.0) -> Decided:
        """Have the events kept, as `canopy.Transaction.prepare`."""
        return await carry_out(self._preparing(events, timeout))

    async def commit(self, timeout: float = 30.0) -> Decided:
        """Append the events, as `canopy.Transaction.commit`."""
        return await carry_out(self._deciding(True, timeout))

    async def roll_back(self, timeout: float = 30.0) -> Decided | None:
        """Drop the events, as `canopy.Transaction.roll_back`."""
        try:
            return await carry_out(self._deciding(False, timeout))
        except CommandFailed as error:
            if error.code != UNKNOWN_TRANSACTION:
                raise
            return None


class AsyncReviews:
    """What became of a producer's transactions, asked by the stream. One task answers."""

    def __init__(self, transacting: Transacting[AsyncLink], producer: str) -> None:
        self._transacting = transacting
        self._producer = producer

    async def take(self, timeout: float = 60.0) -> tuple[str, ...]:
        """The ids of transactions in review, as `canopy.Client.reviews`."""
        return await carry_out(self._transacting.taking_reviews(self._producer, timeout))

    async def not_known(self, transaction: str, timeout: float = 30.0) -> None:
        """Answer that this program does not know the transaction's outcome."""
        await carry_out(self._transacting.leaving_unknown(transaction, timeout))


class AsyncReading(ReadingCore[AsyncLink]):
    """The events of a stream, as `canopy.Reading`: an asynchronous iterable, and context manager
    that ends the reading. One task reads; a call that is cancelled loses no event."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return Items(self._next, lambda event: event)

    async def open(self) -> None:
        """Begin now. Raises as `canopy.Client.read`."""
        await carry_out(self._opening())

    async def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """The next events, as `canopy.Reading.take`."""
        return await carry_out(self._taking(patient(timeout)))

    async def commit(self) -> None:
        """Everything handed out so far is done with."""
        await carry_out(self._committing())

    async def close(self) -> None:
        """End the reading: the node sends no more rows."""
        await carry_out(self._ending())

    async def _next(self) -> StreamEvent:
        event = await carry_out(self._following())
        if event is None:
            raise StopAsyncIteration
        return event


class AsyncMember(MembershipCore[AsyncLink]):
    """A member of a consumer group, as `canopy.Member`: an asynchronous iterable, and context
    manager that ends the membership. One task takes rows."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[GroupRow]:
        return Items(self._next, lambda row: row)

    async def open(self) -> None:
        """Become a member now. Raises as `canopy.Client.group`."""
        await carry_out(self._attaching())

    async def take(self, timeout: float | None = None, most: int = 64) -> list[GroupRow]:
        """The next rows, as `canopy.Member.take`."""
        return await carry_out(self._taking(patient(timeout), most))

    async def ack(self, *rows: GroupRow) -> None:
        """These rows are done with."""
        await carry_out(self._saying("ack", rows))

    async def nack(self, *rows: GroupRow, delay: float = 0.0, reason: str = "") -> None:
        """These rows are to be delivered again."""
        await carry_out(self._saying("nack", rows, delay, reason))

    async def reject(self, *rows: GroupRow, reason: str = "") -> None:
        """These rows become dead letters."""
        await carry_out(self._saying("reject", rows, 0.0, reason))

    async def extend(self, *rows: GroupRow) -> None:
        """Restart the leases of these rows."""
        await carry_out(self._saying("extend", rows))

    async def flush(self) -> None:
        """Wait until what was said of rows is committed, as `canopy.Member.flush`."""
        await carry_out(self._flushing())

    async def close(self) -> None:
        """Be a member no more."""
        await carry_out(self._ending())

    async def _next(self) -> GroupRow:
        row = await carry_out(self._following())
        if row is None:
            raise StopAsyncIteration
        return row


class _AsyncConsumer(Consumer[AsyncLink, T, E]):
    """A consumer whose connection is awaited. One task takes events."""

    def __init__(
        self,
        runtime: Runtime,
        link: Callable[[], Awaitable[AsyncLink]],
        wanted: Iterable[KeptSelector],
        reconnect: float,
        timeout: float,
        on_closed: Callable[[object], object],
    ) -> None:
        """The parameters are those of `Consumer`."""
        super().__init__(link, wanted, reconnect, timeout, on_closed)
        self._runtime = runtime

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.unsubscribe()

    def __aiter__(self) -> AsyncIterator[E]:
        """The events, until this is closed. Gaps are passed over; they are in `gaps`."""
        return Items(self.next_item, self._event)

    def with_gaps(self) -> AsyncIterator[E | Gap]:
        """The events, and each gap in its place, until this is closed."""
        return Items(self.next_item, self._event_or_gap)

    async def open(self) -> None:
        """Connect and subscribe now; raises a ControlError."""
        if self._link is None:
            await carry_out(self._opening_first())

    async def unsubscribe(self) -> None:
        """End the subscription at the node, and this object."""
        await carry_out(self._unsubscribing())

    async def receive(self, timeout: float = math.inf) -> list[T | Notice]:
        """What has come, in order, as `canopy.Subscription.receive`."""
        return await carry_out(self._receiving(timeout))

    async def next_item(self) -> T | Notice:
        """What comes next; StopAsyncIteration when this is closed."""
        while not self._rest:
            if self._is_closed:
                raise StopAsyncIteration
            self._rest.extend(await self.receive())
        return self._rest.popleft()

    async def _pause(self, seconds: float) -> bool:
        await self._runtime.sleep(seconds)
        return self._is_closed


class Items(Generic[T, V]):
    """An asynchronous iterator (a generator would have to be closed) over what `chosen` returns."""

    def __init__(
        self, next_item: Callable[[], Awaitable[T]], chosen: Callable[[T], V | None]
    ) -> None:
        self._next_item = next_item
        self._chosen = chosen

    def __aiter__(self) -> Items[T, V]:
        return self

    async def __anext__(self) -> V:
        while (found := self._chosen(await self._next_item())) is None:
            pass
        return found


class AsyncSubscription(OneSelector[AsyncLink], _AsyncConsumer[Delivery, Event]):
    """One selector's events: an asynchronous iterable, and context manager that unsubscribes."""


class AsyncGathering(ManySelectors[AsyncLink], _AsyncConsumer[OpaqueEvent, OpaqueEvent]):
    """Many selectors' events, each once: an asynchronous iterable, and context manager that
    unsubscribes all. An event's attributes are decoded when they are asked for."""

    async def add(self, selector: str, *, name: str = "", latency_level: int = 0) -> KeptSelector:
        """Subscribe to one more; what to `remove` it with. Raises as `Client.subscribe`."""
        return await carry_out(self._adding(KeptSelector(selector, name, latency_level)))

    async def remove(self, wanted: KeptSelector) -> None:
        """Unsubscribe what `add` has returned. Raises a ControlError."""
        await carry_out(self._removing(wanted))


def connecting(
    runtime: Runtime,
    where: str | Path | None,
    timeout: float,
    reconnect: float,
    seal: str | Path | None,
) -> Opening[AsyncClient]:
    """The awaitable and context manager that `canopy.trio.connect` and `canopy.aio.connect`
    return."""
    client = AsyncClient(runtime, where, timeout, reconnect, open_seals(seal))
    return Opening(client.open)

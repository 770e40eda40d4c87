"""A program's connection to its node: `canopy.connect`, and those of canopy.trio and canopy.aio."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar, Unpack

from msgspec.structs import replace

from canopy.client.async_link import AsyncLink, AsyncRuntime
from canopy.client.blocking import ControlClient, blocking_node
from canopy.client.consumer import (
    AsyncGathering,
    AsyncSubscription,
    Gathering,
    OneSelector,
    Subscription,
)
from canopy.client.contexts import node_of
from canopy.client.faces import (
    Arguments,
    AsynchronousContext,
    BlockingContext,
    Context,
    Opening,
    awaits,
    makes,
    opens,
    operation,
    run,
)
from canopy.client.node import ClientNode
from canopy.client.notices import Notice
from canopy.client.publication import Attributes, Drafting, PublishResult, check_one, publish_all
from canopy.client.resubscription import SUBACK_TIMEOUT, KeptSelector
from canopy.client.seals import open_seals
from canopy.client.streams.management import (
    StreamChanges,
    StreamFounding,
    change,
    founding,
    whole,
)
from canopy.client.streams.membership import (
    AsyncMember,
    GroupArguments,
    GroupChanges,
    Member,
    group_edit,
    wanted_membership,
)
from canopy.client.streams.producer import (
    AppendResult,
    AsyncProducer,
    Producer,
    ProducerCore,
    ProducerStart,
)
from canopy.client.streams.reading import (
    AsyncReading,
    Begin,
    Reading,
    wanted_reading,
)
from canopy.client.streams.transaction import (
    AsyncReviews,
    AsyncTransaction,
    Reviews,
    Transaction,
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
    RemoveStream,
    Reply,
    Streams,
)
from overlay.info import StreamInfo, TransactionInfo
from overlay.stream_client import GetTransactions, Transactions

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

ASKING: Final = "answer_to"
ANSWERING: Final = "answers"


class Call:
    """One call: the event to publish, the selector of its answers, and the answers received.

    Each call has a random text as its address. The published event carries it as the attribute
    `answer_to`, and answers carry it as `answers`. The caller subscribes to this attribute first,
    so answers are routed by content like all events, and only the caller receives them.
    """

    def __init__(self, asking: Draft, most: int, timeout: float) -> None:
        """`most`: the number of answers to wait for; `timeout`: seconds to wait, from `begin`
        on."""
        self.address = secrets.token_hex(8)
        self.draft = replace(asking, attributes={**asking.attributes, ASKING: self.address})
        self.selector = f"{ANSWERING} = '{self.address}'"
        self.found: list[Event] = []
        self._most = most
        self._timeout = timeout
        self._deadline = 0.0

    def begin(self) -> None:
        """Start the time-out, when the event is published. The time that the subscription to the
        answers took is not part of it: on a busy machine it could use up the whole time-out."""
        self._deadline = time.monotonic() + self._timeout

    @property
    def left(self) -> float:
        """Return for how many seconds to wait for further answers; 0 if the call is over."""
        if len(self.found) >= self._most:
            return 0.0
        return max(0.0, self._deadline - time.monotonic())

    def take(self, items: Iterable[Delivery | Notice]) -> None:
        """Take the events that have arrived for the subscription."""
        self.found += [item.event for item in items if isinstance(item, Delivery)]
        del self.found[self._most :]


def answering(event: Event, attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Return the attributes of an answer to `event`. ValueError if the event asks for no answer."""
    address = event.attributes.get(ASKING)
    if not isinstance(address, str):
        raise ValueError(f"the event asks for no answer: it has no attribute {ASKING}")
    return {**attributes, ANSWERING: address}


class ClientCore(Context):
    """The requests of a program to its node, for the blocking and the awaited client. Times are
    seconds."""

    def __init__(self, node: ClientNode) -> None:
        self._node = node
        self._drafting = Drafting()

    def close(self) -> None:
        """End this connection and its subscriptions. May be called from any thread of a program
        that blocks."""
        self._node.close()

    async def _open(self) -> None:
        await self._node.open()

    async def _leave(self, failed: bool) -> None:
        self.close()

    async def _publish(
        self, events: Iterable[Attributes | Draft], receipt: bool, timeout: float
    ) -> PublishResult:
        batches = self._drafting.batches(events, receipt)
        return await publish_all(self._node, batches, receipt, timeout)

    @operation
    async def publish(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish one event: attributes by name, and opaque bytes of payload with their type.

        Returns when the node has admitted it; with `receipt`, when every tree that it visits has
        accepted it. Raises EventRefusedError for an invalid event, and NodeLeavingError if the node
        was leaving and none came back within `timeout` seconds: then the event is not published.
        After CommandTimeoutError or UnreachableError the event may have been published if the
        error's `in_doubt` is 1.
        """
        drafts = [self._drafting.draft(event, payload, payload_type)]
        return check_one(await self._publish(drafts, receipt, timeout))

    @operation
    async def publish_many(
        self,
        events: Iterable[Attributes | Draft],
        *,
        receipt: bool = False,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Publish events in batches, which is much faster than one by one. Events that the node
        refuses are in the result's `refused`; the others are published. `timeout`: seconds for the
        answer to each batch, and for a node to accept a batch that a leaving node has refused as a
        whole. Raises as `publish`; the error's `answered` and `in_doubt` say which events are
        published."""
        return await self._publish(events, receipt, timeout)

    @operation
    async def call(
        self,
        event: Attributes | Draft,
        payload: bytes = b"",
        payload_type: str = "",
        *,
        most: int = 1,
        timeout: float = 5.0,
    ) -> list[Event]:
        """Publish an event that asks for answers, and return them: as soon as there are `most`,
        else those that arrived within `timeout` seconds after publishing, perhaps none.

        Any program with a matching subscription may `answer`. Each call makes a subscription of its
        own, and ends it. Raises as `subscribe` and `publish`.
        """
        call = Call(self._drafting.draft(event, payload, payload_type), most, timeout)
        answers = OneSelector(self._node, [KeptSelector(call.selector)])
        await answers._open()
        try:
            call.begin()
            check_one(await self._publish([call.draft], False, 30.0))
            while left := call.left:
                call.take(await answers._receive(left))
        finally:
            await answers._leave(False)
        return call.found

    @operation
    async def answer(
        self,
        event: Event,
        attributes: Mapping[str, Value],
        payload: bytes = b"",
        payload_type: str = "",
        *,
        timeout: float = 30.0,
    ) -> PublishResult:
        """Answer an event of a `call` by another event. Raises ValueError if the event asks for no
        answer; other errors as `publish`."""
        draft = self._drafting.draft(answering(event, attributes), payload, payload_type)
        return check_one(await self._publish([draft], False, timeout))

    @operation
    async def streams(self, timeout: float = 30.0) -> tuple[StreamInfo, ...]:
        """Return all streams of the overlay in order of name, each with its options and the nodes
        of its replicas. Raises CommandTimeoutError if a part of the ring did not answer, and as
        `ask`."""
        return whole(await self._node.ask(GetStreams(0), Streams, timeout))

    @operation
    async def stream(self, name: str, timeout: float = 30.0) -> StreamInfo:
        """Return a stream with the state of its replicas, consumers and groups. Raises
        CommandFailed (unknown), and as `ask`."""
        return (await self._node.ask(GetStreams(0, name), Streams, timeout)).streams[0]

    @operation
    async def add_stream(
        self, name: str, *, timeout: float = 30.0, **options: Unpack[StreamFounding]
    ) -> StreamInfo:
        """Found a stream, and return when it is stored durably. Options are those of `canopy stream
        add`; without any the stream has one shard of three replicas, and keeps everything.

        Raises CommandFailed (exists, usage, full, time-out: the stream may have been founded), and
        as `ask`.
        """
        return (await self._node.ask(founding(name, options), Streams, timeout)).streams[0]

    @operation
    async def edit_stream(
        self, name: str, *, timeout: float = 30.0, **changes: Unpack[StreamChanges]
    ) -> StreamInfo:
        """Change options of a stream. Options that are not given keep their values. Raises
        CommandFailed (unknown, usage), and as `ask`."""
        return (await self._node.ask(change(name, changes), Streams, timeout)).streams[0]

    @operation
    async def remove_stream(self, name: str, timeout: float = 30.0) -> None:
        """Remove a stream with all its rows, for ever. Raises CommandFailed (unknown), and as
        `ask`."""
        await self._node.ask(RemoveStream(0, name), Done, timeout)

    @operation
    async def append(
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

        Raises EventRefusedError for an invalid event, CommandFailed with the code too-large, quota
        or unknown, and as `publish_many`: it is unknown whether `in_doubt` events were appended. A
        `producer` sends such events again without appending them twice.
        """
        nameless = ProducerCore(self._node, self._drafting, stream)
        return await nameless._append(events, atomic, timeout)

    @awaits(Producer, AsyncProducer)
    def producer(
        self,
        stream: str,
        name: str,
        first: int | Sequence[int] = -1,
        *,
        step: int = 0,
        start: ProducerStart | None = None,
        timeout: float = 30.0,
    ) -> Arguments:
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
        return self._node, self._drafting, stream, name, first, step, start, timeout

    @opens(Reading, AsyncReading)
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
        packed: bool = False,
        timeout: float = 30.0,
    ) -> Arguments:
        """Read the events of a stream that `selector` matches, or all events if it is empty.

        `start`: "first", "new", "keys", an offset, a time (a datetime, or a text such as
        2026-11-23T08:00, in local time unless it names a zone), or "time" with nanoseconds since
        1970 in `at`. A shard in `positions` begins at the offset given there, as in
        `Reading.positions`.

        A `durable` reading begins at its own position in each shard that `positions` does not name,
        if the stream knows that position. The stream keeps the rows that a durable reading has not
        read. It forgets the reading after `expire_after` seconds without a program; 0: never.
        `shard`: read only this shard; -1: all shards. `packed`: `Reading.take_packed` returns the
        rows encoded as they are in the stream's log, for programs that decode many rows themselves;
        such a reading is not durable.

        Raises CommandFailed (unknown, selector, fenced, offset-out-of-range: the text names the
        available offsets), ValueError for another `start`, and as `ask`.
        """
        places = (start, at, positions or {})
        wanted = wanted_reading(stream, selector, *places, durable, expire_after, shard, packed)
        return self._node, wanted, timeout

    @makes(Transaction, AsyncTransaction)
    def transaction(self, stream: str, producer: str, transaction: str = "") -> Arguments:
        """Return a transaction of `producer`, whose events nobody sees until it is committed.
        `transaction`: the id of one that was begun before; without it the transaction is new."""
        return self._node, self._drafting, stream, producer, transaction

    @operation
    async def transactions(
        self, stream: str, producer: str = "", *, timeout: float = 30.0
    ) -> tuple[TransactionInfo, ...]:
        """Return the transactions of a stream that are not decided, of one producer or of all.
        Raises CommandFailed (unknown), and as `ask`."""
        command = GetTransactions(0, stream, producer)
        return (await self._node.ask_until(command, Transactions, timeout)).transactions

    @makes(Reviews, AsyncReviews)
    def reviews(self, stream: str, producer: str) -> Arguments:
        """Return an object that answers, as `producer`, the stream's questions about the outcome of
        its transactions. An outbox of `canopy.sinks` does this by itself."""
        return self._node, stream, producer

    @opens(Member, AsyncMember)
    def group(
        self,
        stream: str,
        group: str,
        selector: str | None = None,
        *,
        timeout: float = 30.0,
        **options: Unpack[GroupArguments],
    ) -> Arguments:
        """Become a member of a consumer group, whose members share the rows of a stream that
        `selector` matches ("": all).

        An unknown group is founded with these options, and begins at `start` (as in `read`):
        `lease` seconds (30) for a row, `max_deliver` deliveries (5) before it is a dead letter,
        order `by` the value of an attribute, a `priority` attribute (0 to 9), a `delay` attribute
        or seconds. For a known group, None accepts the group's option. `name`: fences another
        member of this name; `credit`: rows of each shard that this member may have at once.

        Raises CommandFailed (unknown, selector, options: the group has others, fenced,
        offset-out-of-range), and as `ask`.
        """
        return self._node, wanted_membership(stream, group, selector, options), timeout

    @operation
    async def edit_group(
        self, stream: str, group: str, *, timeout: float = 30.0, **changes: Unpack[GroupChanges]
    ) -> None:
        """Change the options of a consumer group while it has members. Options that are not given,
        or are None, keep their values. When this returns, the changes hold in all shards.
        Acknowledged rows stay acknowledged, and current leases end when they would have ended
        before.

        `selector` applies to rows appended from now on; earlier rows keep the former selector.
        `lease`, `max_deliver`, `priority` ("": none) and `delay` (0: none) apply to all rows given
        to members from now on. `by` cannot be changed.

        Raises CommandFailed (unknown, unknown-group, selector, options: this option cannot be
        changed; full: waiting rows already use eight former selectors), and as `ask`. After a
        time-out some shards may have been changed; the same call may be repeated.
        """
        await self._node.ask(group_edit(stream, group, changes), Done, timeout)

    @opens(Subscription, AsyncSubscription)
    def subscribe(
        self,
        selector: str,
        *,
        name: str = "",
        latency_level: int = 0,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
        resume: str = "",
    ) -> Arguments:
        """Subscribe, and return when the overlay has acknowledged it: every matching event
        published after that is delivered.

        `name`: shown in traces and the terminal UI. `latency_level`: 1 (most urgent) to 5, 0 for
        none (docs/design/timeliness.md). `credit`: bytes of deliveries that the node may send
        before the program takes them. `resume`: the `token` of the same subscription in a process
        that has ended. Deliveries continue after the last one handed to that process if the node
        has kept them; a `Gap` stands for missing ones.

        Raises SelectorRefusedError, whose text shows the place in the selector, CommandTimeoutError
        without an acknowledgement within `timeout` seconds, and UnreachableError while the node is
        away.
        """
        wanted = [KeptSelector(selector, name, latency_level)]
        return self._node, wanted, credit, timeout, resume

    @opens(Gathering, AsyncGathering)
    def gather(
        self,
        selectors: Iterable[str] = (),
        *,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> Arguments:
        """Subscribe to many selectors together. An event is handed out once, however many of them
        it matches, and its attributes are decoded only on access, so this is the fastest way.
        Selectors can be added later. Raises as `subscribe`."""
        return self._node, [KeptSelector(one) for one in selectors], credit, timeout

    @operation
    async def request(self, command: Command, timeout: float = 30.0) -> Reply:
        """Send any command of `overlay.client` and return its reply. Waits for a node that is away,
        within `timeout` seconds. Raises a ControlError."""
        return await self._node.request(command, timeout)


class Client(ClientCore, BlockingContext):
    """A program's connection to its node. A context manager; closing it ends its subscriptions.
    Threads may share it."""

    def open(self) -> None:
        """Connect now instead of with the first request. Raises as `connect`."""
        run(self._open())

    def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """Send a command as `request` does, and return its reply of the type `kind`. Raises
        ControlError for a reply of another type."""
        return run(self._node.ask(command, kind, timeout))


class AsyncClient(ClientCore, AsynchronousContext):
    """A program's connection to its node; tasks may share it. Closing it ends its subscriptions."""

    def __init__(self, node: ClientNode, runtime: AsyncRuntime) -> None:
        super().__init__(node)
        self._runtime = runtime

    async def open(self) -> AsyncClient:
        """Connect now instead of with the first request. Raises as `connect`."""
        await self._open()
        return self

    async def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """Send a command as `request` does, and return its reply of the type `kind`. Raises
        ControlError for a reply of another type."""
        return await self._node.ask(command, kind, timeout)

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Run a blocking job, such as a statement of a database, in a thread, and return its
        result. The job always runs to its end: a task that is cancelled meanwhile waits for it."""
        return await self._runtime.in_thread(job)


def connect(
    where: str | Path | None = None,
    *,
    context: str | None = None,
    timeout: float = 5.0,
    reconnect: float = math.inf,
    seal: str | Path | None = None,
) -> Client:
    """Connect to the node of the data folder `where` (None: the default one) or of a control
    socket; or to the node of the user's `context` (`canopy context`), "": the current one.

    `reconnect`: how long a lost node is looked for, in seconds; 0: not at all. `seal`: a seal file
    (`canopy keys seal new`); payloads are sealed with its keys when they leave, and opened when
    they arrive (`canopy.seal_of`).

    Raises UnreachableError if no node runs there, DeniedError if the node or the seal file belongs
    to another user, CommandTimeoutError after `timeout` seconds, AddressError for an address, and
    UnknownContextError.
    """
    node, sealer = node_of(where, context), open_seals(seal)
    links = blocking_node(
        lambda credit: ControlClient.connect(node, timeout, credit, sealer), reconnect
    )
    client = Client(links)
    client.open()
    return client


class Connector:
    """Makes connections for the programs of one asynchronous runtime."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime

    def connect(
        self,
        where: str | Path | None = None,
        *,
        context: str | None = None,
        timeout: float = 5.0,
        reconnect: float = math.inf,
        seal: str | Path | None = None,
    ) -> Opening[AsyncClient]:
        """Connect to a node, as `canopy.connect`: ``async with`` it, or ``await`` it and close the
        client with `close`."""
        runtime, node, sealer = self._runtime, node_of(where, context), open_seals(seal)

        async def link(credit: int) -> AsyncLink:
            return await AsyncLink.connect(runtime, node, timeout, credit, sealer)

        return Opening(AsyncClient(ClientNode(runtime, link, reconnect), runtime).open)

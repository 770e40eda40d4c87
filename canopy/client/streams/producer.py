"""Producers: from a program's events to appends to a stream, and from their replies to a result (no
IO)."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from canopy.client.errors import (
    CommandFailed,
    ControlError,
    EventRefusedError,
    NodeLeavingError,
    UnreachableError,
)
from canopy.client.faces import Asynchronous, Blocking, operation
from canopy.client.link import Link
from canopy.client.node import ClientNode
from canopy.client.publication import Attributes, Drafting, batched
from canopy.client.resubscription import Backoff
from canopy.client.session import expected
from overlay.client import (
    LEAVING,
    NO_MAJORITY,
    AppendEvents,
    Draft,
    EventsAppended,
)
from overlay.info import AppendReceipt
from overlay.stream_client import BeginProducer, ProducerReady

BATCH: Final = 256
"""The events of one batch: about as many as one chunk of a stream's log has."""

BATCH_BYTES: Final = 128 * 1024
"""The approximate size of one batch in bytes of payload and text, unless it has to be one whole."""

AHEAD: Final = 4
"""The number of unanswered batches: as many as a node has under way to a shard."""

NOT_APPENDED: Final = (
    "unknown",
    "usage",
    "event",
    "too-large",
    "quota",
    "malformed",
    LEAVING,
    NO_MAJORITY,
)
"""Codes of a `Failed` after which no event of the batch is or will be appended."""


class AppendResult(msgspec.Struct, frozen=True):
    """The result of appending events."""

    stream: str
    """The stream's id; "": there were no events."""
    count: int
    """The number of committed events: all that were given."""
    receipts: tuple[AppendReceipt, ...]
    """The events' places, batch by batch; without events that this producer had appended before."""


class ProducerStart:
    """One start of a program that appends as a producer. A program that opens its producer again
    with the same start continues its session. If another program has opened the producer in
    between, the open is refused (fenced)."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.begun = 0
        """Number of producers begun, or perhaps begun, with this start."""


class _Batch:
    def __init__(self, events: tuple[Draft, ...]) -> None:
        self.events = events
        self.sent: tuple[Link, int] | None = None  # connection and request


class ProducerCore:
    """Appends to one stream, as a named producer, or without a name as the node."""

    def __init__(
        self,
        node: ClientNode,
        drafting: Drafting,
        stream: str,
        producer: str = "",
        first: int | Sequence[int] = -1,
        step: int = 0,
        start: ProducerStart | None = None,
        timeout: float = 30.0,
    ) -> None:
        """The parameters are those of `Client.producer`."""
        self._node = node
        self._drafting = drafting
        self._stream = stream
        self._producer = producer
        self._start = start or ProducerStart()
        self._first = first if isinstance(first, int) else -1
        self._step = step
        self._timeout = timeout  # of its first beginning
        self._link: Link | None = None  # over which the producer was begun
        self.next: tuple[int, ...] = () if isinstance(first, int) else tuple(first)
        """By shard, the number of the producer's next event: the number of its appended events."""
        self._pending: deque[_Batch] = deque()

    @property
    def pending(self) -> int:
        """Return the number of batches that are under way after an `append` with `ahead`."""
        return len(self._pending)

    @operation
    async def append(
        self,
        events: Iterable[Attributes | Draft],
        *,
        atomic: bool = False,
        timeout: float = 30.0,
        ahead: int = 0,
    ) -> AppendResult:
        """Append events as `Client.append`. If the node is lost, the producer reconnects and
        repeats the batches without an answer.

        `ahead`: the call returns while up to this many of the last batches (0 to 3) have no answer.
        A later call waits for them (one without events and with `ahead` 0 for all) and raises their
        errors.
        """
        return await self._append(events, atomic, timeout, ahead)

    async def _append(
        self, events: Iterable[Attributes | Draft], atomic: bool, timeout: float, ahead: int = 0
    ) -> AppendResult:
        """Append events in batches, each within `timeout` seconds. Wait for all answers except the
        last `ahead` (below AHEAD), which later calls wait for. The result covers the answered
        batches. If a ControlError interrupts this, the error has the number of committed events
        (`answered`) and of those with an unknown outcome (`in_doubt`)."""
        replies: list[EventsAppended] = []
        count = 0
        until = 0.0
        left = 0
        rest = batches_of(self._drafting, events, atomic)
        backoff = Backoff()
        try:
            while True:
                try:
                    batch = None
                    if len(self._pending) < AHEAD:
                        batch = _next(rest, self._pending)
                    if self._producer and self._link is None:
                        await self._begin(timeout)
                    await self._send_all(timeout, count)
                    if batch is None and len(self._pending) <= ahead:
                        left = len(self._pending)
                        break
                    if batch is None or len(self._pending) >= AHEAD:
                        reply = await self._finish(timeout)
                        count += len(self._pending.popleft().events)
                        replies.append(reply)
                        until, backoff = 0.0, Backoff()
                except (UnreachableError, CommandFailed) as error:
                    until = until or time.monotonic() + min(timeout, self._node.patience)
                    await self._recover(error, until, backoff)
        except ControlError as error:
            if isinstance(error, CommandFailed) and error.code in NOT_APPENDED and self._pending:
                self._pending[0].sent = None
            error.answered = count
            error.in_doubt = sum(len(b.events) for b in self._pending if b.sent is not None)
            doubt = f", the next {error.in_doubt} may be" if error.in_doubt else ""
            error.add_note(f"the first {count} events are appended{doubt}, no others are")
            raise
        finally:
            while len(self._pending) > left:
                batch = self._pending.popleft()
                if batch.sent is not None:
                    batch.sent[0].abandon(batch.sent[1])
        receipts = tuple(receipt for reply in replies for receipt in reply.receipts)
        return AppendResult(replies[0].stream if replies else "", count, receipts)

    async def _open(self) -> None:
        await self._begin(self._timeout)

    async def _begin(self, timeout: float) -> None:
        """Begin the producer, or continue it over another connection. ValueError if it has no name;
        CommandFailed (fenced) if another program has begun it since."""
        if not self._producer:
            raise ValueError("a producer needs a name; without one, append as the node")
        place = (self._stream, self._producer, self._first, self.next, self._step)
        command = BeginProducer(0, *place, self._start.token, self._start.begun)
        if self._start.begun:
            self._start.begun += 1  # a beginning that is not answered may come behind a later one
        link, number = await self._node.begin(command, timeout)
        reply = expected(await link.finish(number, timeout), ProducerReady)
        self._link = link
        self._start.begun = self._start.begun or 1
        if not self.next:
            given = self._first >= 0
            self.next = (self._first,) * len(reply.next) if given else reply.begins or reply.next

    @property
    def _may_repeat(self) -> bool:
        """Whether the producer's numbers are known, so that a repeated append adds nothing
        twice."""
        return bool(self._producer and self.next)

    async def _send_all(self, timeout: float, count: int) -> None:
        before = count
        for batch in self._pending:
            if batch.sent is None:
                command = AppendEvents(0, self._stream, batch.events, self._producer)
                try:
                    batch.sent = await self._node.begin(command, timeout)
                except EventRefusedError as error:
                    raise error.behind(before) from None
            before += len(batch.events)

    async def _finish(self, timeout: float) -> EventsAppended:
        batch = self._pending[0]
        assert batch.sent is not None
        link, number = batch.sent
        reply = expected(await link.finish(number, timeout), EventsAppended)
        if reply.next:
            following = dict(reply.next)
            self.next = tuple(following.get(n, number) for n, number in enumerate(self.next))
        return reply

    async def _recover(
        self, error: UnreachableError | CommandFailed, until: float, backoff: Backoff
    ) -> None:
        """Send all unanswered batches again after the connection was lost, if this cannot append
        events twice; otherwise raise `error`."""
        first = self._pending[0] if self._pending else None
        lost = isinstance(error, UnreachableError) or (
            error.code == "usage"
            and first is not None
            and first.sent is not None
            and first.sent[0] is not self._link
        )
        if not isinstance(error, NodeLeavingError) and not (lost and self._may_repeat):
            raise error
        delay = backoff.next()
        if time.monotonic() + delay >= until or await self._node.pause(delay):
            raise error
        for batch in self._pending:
            if batch.sent is not None:
                batch.sent[0].abandon(batch.sent[1])
                batch.sent = None
        self._link = None


class Producer(ProducerCore, Blocking):
    """A named producer of one stream: each of its events is appended once, through lost connections
    and nodes that come back. One thread appends."""


class AsyncProducer(ProducerCore, Asynchronous):
    """A named producer of one stream, as `canopy.Producer`. One task appends."""


def _next(rest: Iterator[tuple[Draft, ...]], pending: deque[_Batch]) -> _Batch | None:
    events = next(rest, None)
    if events is None:
        return None
    pending.append(_Batch(events))
    return pending[-1]


def batches_of(
    drafting: Drafting, events: Iterable[Attributes | Draft], atomic: bool
) -> Iterator[tuple[Draft, ...]]:
    """Yield the batches of the events, in order; one batch if `atomic`."""
    drafts = map(drafting.draft, events)
    if not atomic:
        return batched(drafts, BATCH, BATCH_BYTES)
    return iter(filter(None, [tuple(drafts)]))

"""Subscriptions of a program, and their events (no IO).

A `Consumer` has the subscriptions, the connection that carries them, and the items that were
received and not yet handed out; it connects, receives, and finds its node again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

from canopy.client.errors import (
    CommandFailed,
    ControlError,
    SubscriptionEndedError,
    UnreachableError,
)
from canopy.client.faces import (
    AsynchronousContext,
    BlockingContext,
    Context,
    Items,
    operation,
)
from canopy.client.frames import OpaqueEvent
from canopy.client.link import Link
from canopy.client.node import ClientNode
from canopy.client.notices import Gap, Notice
from canopy.client.resubscription import (
    OPENING,
    SUBACK_TIMEOUT,
    UNSUBSCRIBE_TIMEOUT,
    KeptSelector,
    Resubscription,
)
from canopy.client.session import expected
from overlay.client import (
    CREDIT,
    Delivery,
    Ended,
    Event,
    Failed,
    OpenSession,
    Reply,
    ResumeSession,
    SessionResumed,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

T = TypeVar("T")
E = TypeVar("E")
V = TypeVar("V")

GAPS: Final = 100
"""The number of gaps that are kept for a program that iterates over events. Not measured, see
NOTICES."""


class Consumer(Context, Generic[T, E]):
    """Events of some subscriptions on a connection of their own, which is reopened when it is lost.
    It carries items of type T, each with an event of type E."""

    _gathers = False

    def __init__(
        self,
        node: ClientNode,
        wanted: Iterable[KeptSelector],
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> None:
        """`credit`: the connection's credit in bytes; `timeout`: seconds for an acknowledgement."""
        self._node = node
        self._credit = credit
        self._timeout = timeout
        self._state = Resubscription(self._gathers, node.patience)
        for one in wanted:
            self._state.add(one)
        self._link: Link | None = None  # acknowledged
        self._opening: Link | None = None  # not acknowledged yet
        self._closed = node.runtime.signal()
        self._rest: deque[T | Notice] = deque()  # of an iteration
        self._over: SubscriptionEndedError | None = None  # other programs have ended all
        self.gaps: deque[Gap] = deque(maxlen=GAPS)
        """The last gaps that `receive` has handed out."""

    @property
    def is_live(self) -> bool:
        """Whether the connection to the node is there, with all subscriptions acknowledged, as of
        its last use."""
        return self._link is not None

    @operation
    async def open(self) -> None:
        """Connect and subscribe now, instead of with the first `receive`; raises a ControlError."""
        await self._open()

    @operation
    async def receive(self, timeout: float | None = None) -> list[T | Notice]:
        """Return the deliveries and notices that have arrived, in order.

        Waits for the first, at most `timeout` seconds (None: without a limit). The list is empty if
        none arrived in time, or if this object was closed. Raises UnreachableError when the node is
        away and no longer looked for, and SubscriptionEndedError when another program has ended all
        subscriptions of this object. A call that finds the node again also waits for its
        acknowledgement.
        """
        return await self._receive(math.inf if timeout is None else timeout)

    @operation
    async def unsubscribe(self) -> None:
        """End the subscription at the node, and close this object."""
        await self._leave(False)

    def close(self) -> None:
        """End the connection and its subscriptions. A waiting call of `receive` returns."""
        self._closed.set()
        for link in (self._link, self._opening):
            if link is not None:
                link.close()
        self._node.consumers.pop(id(self), None)

    def _event(self, item: T | Notice) -> E | None:
        """Return the event of an item; None for a notice."""
        raise NotImplementedError

    # --- connecting, receiving, and finding the node again ---

    async def _open(self) -> None:
        """Connect and subscribe, or continue the session of another process. The gap since then is
        handed out first."""
        if self._link is None:
            gap = await self._connect()
            self._rest.extend([gap] if gap is not None else [])
            self._node.consumers[id(self)] = self

    async def _leave(self, failed: bool) -> None:
        """End the subscriptions at the node, and close this object."""
        link = self._link
        ends = [Unsubscribe(0, id_) for id_ in self._state.ids]
        try:
            if link is not None and not self._closed.is_set():
                await link.ask_many(ends, Reply, UNSUBSCRIBE_TIMEOUT, OPENING)
        except ControlError:
            pass  # the end of the connection ends it at the node all the same
        finally:
            self.close()

    async def _connect(self) -> Gap | None:
        """Open a connection, and resume the session or make all subscriptions on it. Returns the
        gap since the last connection."""
        link = self._opening = await self._node.connect(self._credit)
        try:
            reply = await self._resume(link)
            if reply is None:
                gap = await self._subscribe(link)
            else:
                gap, commands = self._state.resumed(reply, time.time())
                await link.ask_many(commands, Reply, self._timeout, OPENING)
        except BaseException:
            link.close()
            raise
        finally:
            self._opening = None
        self._link = link
        self.gaps += [gap] if gap is not None else []
        if self._closed.is_set():
            link.close()
        return gap

    async def _resume(self, link: Link) -> SessionResumed | None:
        """Resume the session of the last connection. Returns None if the node has no such
        session."""
        position = self._state.position
        if position is None:
            return None
        link.go_on(position)
        command = ResumeSession(0, position.session, position.received)
        try:
            return expected(await link.request(command, self._timeout), SessionResumed)
        except CommandFailed as error:
            if error.code == "time-out":
                raise
            link.end_session()
            self._state.session_ended()
            return None

    async def _subscribe(self, link: Link) -> Gap | None:
        """Make all subscriptions, and have the node keep a session for them beyond the
        connection."""
        commands = self._state.opening()
        replies = await link.ask_many(commands, Reply, self._timeout, OPENING)
        if self._state.wants_session:
            with suppress(UnreachableError, CommandFailed):  # all is acknowledged: it goes without
                await link.request(OpenSession(0), self._timeout)
        return self._state.opened(replies, time.time())

    async def _reconnect(self, until: float) -> Notice | None:
        """Look for the node until the time `until`, until it is back, or until there is a
        notice."""
        pause = self._node.runtime.pause
        while True:
            delay = self._state.delay(time.monotonic())
            left = until - time.monotonic()
            is_closed = await pause(self._closed, max(0.0, min(delay, left)))
            if is_closed or (delay > 0 and delay > left):
                return None
            try:
                return await self._connect()
            except ControlError as error:
                if self._closed.is_set():
                    return None
                notice = self._lost(error)
                if notice is not None:
                    return notice

    async def _receive(self, timeout: float) -> list[T | Notice]:
        """Return the items that have arrived. Waits for the first, at most `timeout` seconds (inf:
        without a limit)."""
        if self._rest:
            return self._left_over()
        if self._over is not None:
            raise self._over
        until = time.monotonic() + timeout
        while not self._closed.is_set():
            link = self._link
            if link is None:
                notice = await self._reconnect(until)
                if notice is not None:
                    return [notice]
                if self._link is None:
                    return []
                continue
            try:
                found: list[T] = await link.take(until - time.monotonic())
                return self._with_notices(found, link.notices)
            except UnreachableError as error:
                self._link = None
                self._state.left_at(link.position, link.complete_until)
                link.close()
                if not self._closed.is_set():
                    notice = self._lost(error)
                    if notice is not None:
                        return [notice]
        return []

    # --- parts ---

    def _event_or_gap(self, item: T | Notice) -> E | Gap | None:
        return item if isinstance(item, Gap) else self._event(item)

    def _left_over(self) -> list[T | Notice]:
        """Return and remove the items that an ended iteration had received but not yielded."""
        found = list(self._rest)
        self._rest.clear()
        return found

    def _with_notices(self, items: list[T], failed: deque[Failed]) -> list[T | Notice]:
        """Return `items` and the notices after them, which are removed from `failed`."""
        now = time.time()
        notices = []
        while failed:
            one = failed.popleft()
            if isinstance(one, Ended) and self._state.ended(one.subscription):
                self._over = SubscriptionEndedError(one.code, one.reason)
            else:
                notices.append(self._state.notice(one, now))
        self.gaps += [notice for notice in notices if isinstance(notice, Gap)]
        return [*items, *notices]

    def _lost(self, error: Exception) -> Notice | None:
        """Note that the connection has ended or could not be opened. Returns the notice for it, if
        any, as `Resubscription.lost`."""
        self._link = None
        return self._state.lost(error, time.monotonic(), time.time())


class OneSelector(Consumer[Delivery, Event]):
    """A consumer of one selector's events."""

    def __init__(
        self,
        node: ClientNode,
        wanted: Iterable[KeptSelector],
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
        resume: str = "",
    ) -> None:
        """The parameters are those of `Consumer`, and `resume`: the `token` of another process, to
        continue its subscription."""
        super().__init__(node, wanted, credit, timeout)
        if resume:
            self._state.succeed(resume)

    @property
    def selector(self) -> str:
        """The text of the subscription's selector."""
        return self._state.wanted[0].selector

    @property
    def id(self) -> str:
        """The subscription's id at the node, as in traces; "" while the node is away."""
        return next(iter(self._state.ids), "")

    @property
    def token(self) -> str:
        """Return the token that `subscribe(resume=...)` of another process takes to continue after
        the last item handed out here. It is valid as long as the node keeps the session. "" if the
        node keeps none."""
        link = self._link
        return self._state.token(None if link is None else link.taken, len(self._rest))

    def _event(self, item: Delivery | Notice) -> Event | None:
        return item.event if isinstance(item, Delivery) else None


class ManySelectors(Consumer[OpaqueEvent, OpaqueEvent]):
    """A consumer of the events of many selectors, each event once."""

    _gathers = True

    @operation
    async def add(self, selector: str, *, name: str = "", latency_level: int = 0) -> KeptSelector:
        """Subscribe to one more selector. Returns an object to pass to `remove`. Raises as
        `Client.subscribe`."""
        if self._link is None:
            raise UnreachableError("the node is away; add the selector when it is back")
        wanted = KeptSelector(selector, name, latency_level)
        command = Subscribe(0, selector, name, latency_level, marks=True)
        reply = await self._link.request(command, self._timeout)
        self._state.add(wanted, expected(reply, Subscribed).subscription)
        return wanted

    @operation
    async def remove(self, wanted: KeptSelector) -> None:
        """End the subscription of an object that `add` has returned. Raises a ControlError."""
        link, id_ = self._link, self._state.remove(wanted)
        if link is not None and id_:
            await link.request(Unsubscribe(0, id_), self._timeout)

    def _event(self, item: OpaqueEvent | Notice) -> OpaqueEvent | None:
        return item if isinstance(item, OpaqueEvent) else None


class _BlockingConsumer(Consumer[T, E], BlockingContext):
    """A consumer for blocking programs. One thread takes events; any thread may call `close`."""

    def __iter__(self) -> Iterator[E]:
        """Iterate over the events until this is closed. Gaps are skipped; the last ones are in
        `gaps`."""
        return (event for one in self._items() if (event := self._event(one)) is not None)

    def with_gaps(self) -> Iterator[E | Gap]:
        """Iterate over the events, and each gap in its place, until this is closed."""
        return (found for one in self._items() if (found := self._event_or_gap(one)) is not None)

    def _items(self) -> Iterator[T | Notice]:
        """Yield deliveries and notices one by one until this is closed."""
        rest = self._rest
        while rest or not self._closed.is_set():
            while rest:
                yield rest.popleft()
            rest.extend(self.receive())


class _AsyncConsumer(Consumer[T, E], AsynchronousContext):
    """A consumer for trio and asyncio. One task takes events."""

    def __aiter__(self) -> AsyncIterator[E]:
        """Iterate over the events until this is closed. Gaps are skipped; the last ones are in
        `gaps`."""
        return Items(lambda: self._next(self._event))

    def with_gaps(self) -> AsyncIterator[E | Gap]:
        """Iterate over the events, and each gap in its place, until this is closed."""
        return Items(lambda: self._next(self._event_or_gap))

    async def _next(self, chosen: Callable[[T | Notice], V | None]) -> V | None:
        """Return the first result of `chosen` that is not None, calling it on each item in turn;
        None when this is closed."""
        while True:
            while not self._rest:
                if self._closed.is_set():
                    return None
                self._rest.extend(await self._receive(math.inf))
            if (found := chosen(self._rest.popleft())) is not None:
                return found


class Subscription(OneSelector, _BlockingConsumer[Delivery, Event]):
    """The events of one selector: an iterable of events, and a context manager that
    unsubscribes."""


class Gathering(ManySelectors, _BlockingConsumer[OpaqueEvent, OpaqueEvent]):
    """The events of many selectors, each once. A context manager that unsubscribes all, and an
    iterable of events whose attributes are decoded on access."""


class AsyncSubscription(OneSelector, _AsyncConsumer[Delivery, Event]):
    """The events of one selector: an asynchronous iterable of events, and a context manager that
    unsubscribes."""


class AsyncGathering(ManySelectors, _AsyncConsumer[OpaqueEvent, OpaqueEvent]):
    """The events of many selectors, each once: an asynchronous iterable, and context manager that
    unsubscribes all. An event's attributes are decoded on access."""

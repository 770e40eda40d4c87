"""The synchronous face of the client library: `canopy.connect`. Threads may share its objects."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from canopy.client.blocking import ControlClient, carry_out
from canopy.client.consumer import Consumer
from canopy.client.errors import ControlError, UnreachableError
from canopy.client.frames import OpaqueEvent
from canopy.client.notices import Gap, Notice
from canopy.client.publishing import (
    Attributes,
    Drafting,
    Publishing,
    Receipt,
    check_one,
)
from canopy.client.resubscription import (
    OPENING,
    SUBACK_TIMEOUT,
    UNSUBSCRIBE_TIMEOUT,
    Backoff,
    Wanted,
)
from canopy.client.session import expected
from overlay.client import (
    CREDIT,
    Command,
    Delivery,
    Draft,
    Event,
    Reply,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
E = TypeVar("E")
F = TypeVar("F", bound="Subscription | Gathering")


def connect(
    where: str | Path | None = None, *, timeout: float = 5.0, reconnect: float = math.inf
) -> Client:
    """Connect to the node of the data folder `where` (None: the default one) or of a control
    socket.

    `reconnect`: seconds for which a node that goes away is looked for; 0: not at all. Raises
    UnreachableError where no node runs, DeniedError where it belongs to another user, and
    CommandTimeoutError after `timeout` seconds.
    """
    client = Client(lambda credit: ControlClient.connect(where, timeout, credit), reconnect)
    client.open()
    return client


class Client:
    """A program's connection to its node. A context manager; closing it ends its subscriptions."""

    def __init__(self, link: Callable[[int], ControlClient], reconnect: float = math.inf) -> None:
        """`link` opens a connection with so many bytes of credit; `reconnect` as for `connect`."""
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
    ) -> Receipt:
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
    ) -> Receipt:
        """Publish events in batches, which is much faster than one by one. Those that the node
        refuses are in the receipt's `refused`; the others are published. `timeout`: seconds for the
        answer to each batch, and for a node to take what a leaving one has refused as a whole.
        Raises as `publish`; the error's `answered` and `in_doubt` say which events are
        published."""
        batches = self._drafting.batches(events, receipt)
        return carry_out(self._publishing.steps(batches, receipt, timeout))

    def subscribe(
        self,
        selector: str,
        *,
        name: str = "",
        latency_level: int = 0,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> Subscription:
        """Subscribe, and return when the overlay has acknowledged: every matching event that is
        published from then on is delivered.

        `name`: for traces and the terminal UI; `latency_level`: 1 (most urgent) to 5, 0 for none
        (docs/design/timeliness.md); `credit`: bytes of deliveries that the node may send before the
        program takes them. Raises SelectorRefusedError, whose text shows the place in the selector,
        CommandTimeoutError without an acknowledgement within `timeout` seconds, and
        UnreachableError while the node is away.
        """
        wanted = [Wanted(selector, name, latency_level)]
        link = self._opener(credit)
        return self._opened(Subscription(link, wanted, self._reconnect, timeout, self._forget))

    def gather(
        self,
        selectors: Iterable[str] = (),
        *,
        credit: int = CREDIT,
        timeout: float = SUBACK_TIMEOUT,
    ) -> Gathering:
        """Subscribe to many selectors together: an event comes once, however many it matches, and
        the fastest way. More can be added. Raises as `subscribe`."""
        wanted = [Wanted(selector) for selector in selectors]
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
        """Send a command on a connection that is opened where there is none, or none any more: what
        could not be sent whole was not carried out, so it may be sent again."""
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


class _BlockingConsumer(Consumer[ControlClient, T, E]):
    """A consumer on a blocking connection. One thread takes events; any may call `close`."""

    def __init__(
        self,
        link: Callable[[], ControlClient],
        wanted: Iterable[Wanted],
        reconnect: float = math.inf,
        timeout: float = SUBACK_TIMEOUT,
        on_closed: Callable[[object], None] = lambda consumer: None,
    ) -> None:
        """`link` opens a connection; the rest is as for `Consumer`."""
        super().__init__(wanted, reconnect, timeout, on_closed)
        self._open_link = link
        self._opening: ControlClient | None = None
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

    def unsubscribe(self) -> None:
        """End the subscription at the node, and this object."""
        link, ids = self._link, list(self._state.ids)
        if link is not None and not self._closed.is_set():
            try:
                for id_ in ids:
                    link.request(Unsubscribe(0, id_), UNSUBSCRIBE_TIMEOUT)
            except ControlError:
                pass  # the end of the connection ends it at the node all the same
        self.close()

    def close(self) -> None:
        """End the connection, and with it the subscriptions; a thread that waits here wakes."""
        self._closed.set()
        for link in (self._link, self._opening):
            if link is not None:
                link.close()
        self._on_closed(self)

    def receive(self, timeout: float | None = None) -> list[T | Notice]:
        """What has come, in order: deliveries, and notices in their places.

        Waits for the first, at most `timeout` seconds (None: for ever); [] when none came, or this
        object was closed. Raises UnreachableError when the node went away and is not (any longer)
        looked for, and SubscriptionEndedError when another program has ended all subscriptions of
        this object. A call that finds the node back also waits for its acknowledgement.
        """
        if self._rest:
            return self._left_over()
        self._check_over()
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            link = self._link
            if link is None:
                notice = self._reopen(until)
                if notice is not None:
                    return [notice]
                if self._link is None:
                    return []
                continue
            try:
                left = None if timeout is None else until - time.monotonic()
                return self._with_notices(self._take(link, left), link.notices)
            except UnreachableError as error:
                self._link = None
                link.close()
                if not self._closed.is_set():
                    notice = self._lost(error)
                    if notice is not None:
                        return [notice]
        return []

    def _items(self) -> Iterator[T | Notice]:
        """What comes, one by one, until this is closed."""
        rest = self._rest
        while rest or not self._closed.is_set():
            while rest:
                yield rest.popleft()
            rest.extend(self.receive())

    def _take(self, link: ControlClient, timeout: float | None) -> list[T]:
        raise NotImplementedError

    def open(self) -> None:
        """Connect and subscribe now, instead of with the first `receive`; raises a ControlError."""
        if self._link is None:
            self._connect()

    def _connect(self) -> Gap | None:
        """Open a connection and make all subscriptions on it."""
        link = self._opening = self._open_link()
        try:
            replies = link.ask_many(self._state.opening(), Reply, self._timeout, OPENING)
        except BaseException:
            link.close()
            raise
        finally:
            self._opening = None
        gap = self._opened(link, replies)
        if self._closed.is_set():
            link.close()
        return gap

    def _reopen(self, until: float) -> Notice | None:
        """Look for the node until it is back or there is a notice, at most until `until`."""
        while not self._closed.is_set():
            delay = self._state.delay(time.monotonic())
            if delay > 0 and time.monotonic() + delay > until:
                self._closed.wait(max(0.0, until - time.monotonic()))
                return None
            if self._closed.wait(delay):
                return None
            try:
                return self._connect()
            except ControlError as error:
                if self._closed.is_set():
                    return None
                notice = self._lost(error)
                if notice is not None:
                    return notice
        return None


class Subscription(_BlockingConsumer[Delivery, Event]):
    """One selector's events. A context manager that unsubscribes, and an iterable of events."""

    @property
    def selector(self) -> str:
        """The selector's text, as it was given."""
        return self._state.wanted[0].selector

    @property
    def id(self) -> str:
        """The node's name of it, as in traces; "" while the node is away."""
        return next(iter(self._state.ids), "")

    def _take(self, link: ControlClient, timeout: float | None) -> list[Delivery]:
        return link.deliveries(timeout)

    def _event(self, item: Delivery | Notice) -> Event | None:
        return item.event if isinstance(item, Delivery) else None


class Gathering(_BlockingConsumer[OpaqueEvent, OpaqueEvent]):
    """Many selectors' events, each once. A context manager that unsubscribes all, and an iterable
    of events whose attributes are decoded when they are asked for."""

    _gathers = True

    def add(self, selector: str, *, name: str = "", latency_level: int = 0) -> Wanted:
        """Subscribe to one more; what to `remove` it with. Raises as `Client.subscribe`."""
        wanted = Wanted(selector, name, latency_level)
        command = Subscribe(0, selector, name, latency_level)
        reply = expected(self._link_to_add().request(command, self._timeout), Subscribed)
        self._state.add(wanted, reply.subscription)
        return wanted

    def remove(self, wanted: Wanted) -> None:
        """Unsubscribe what `add` has returned. Raises a ControlError."""
        link, id_ = self._link, self._state.remove(wanted)
        if link is not None and id_:
            link.request(Unsubscribe(0, id_), self._timeout)

    def _take(self, link: ControlClient, timeout: float | None) -> list[OpaqueEvent]:
        return link.gathered(timeout)

    def _event(self, item: OpaqueEvent | Notice) -> OpaqueEvent | None:
        return item if isinstance(item, OpaqueEvent) else None

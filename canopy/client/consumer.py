"""What takes events for a program, in common to the faces (no IO).

A `Consumer` knows what is subscribed, the connection that carries it, and what was received and not
yet handed out. How it connects, receives and finds its node again are `Steps`, which the faces
carry out: they open connections, wait, and wake.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from canopy.client.errors import (
    CommandFailed,
    ControlError,
    SubscriptionEndedError,
    UnreachableError,
)
from canopy.client.frames import OpaqueEvent
from canopy.client.notices import Gap, Notice
from canopy.client.resubscription import (
    OPENING,
    SUBACK_TIMEOUT,
    UNSUBSCRIBE_TIMEOUT,
    KeptSelector,
    Resubscription,
)
from canopy.client.session import expected
from canopy.client.steps import Link, Steps
from overlay.client import (
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

L = TypeVar("L", bound=Link)
T = TypeVar("T")
E = TypeVar("E")

GAPS: Final = 100
"""Gaps that are kept for a program that iterates over events. Not measured, see NOTICES."""


class Consumer(Generic[L, T, E]):
    """Events of some subscriptions on a connection (of type L) of their own, which is opened again
    when it is lost: it carries items of type T, which have an event of type E."""

    _gathers = False

    def __init__(
        self,
        link: Callable[[], Any],
        wanted: Iterable[KeptSelector],
        reconnect: float = math.inf,
        timeout: float = SUBACK_TIMEOUT,
        on_closed: Callable[[object], object] = lambda consumer: None,
    ) -> None:
        """`link` opens a connection; `reconnect`: seconds for which a lost node is looked for;
        `timeout`: seconds for an acknowledgement; `on_closed` is called with this object when it is
        closed."""
        self._open_link = link
        self._timeout = timeout
        self._on_closed = on_closed
        self._state = Resubscription(self._gathers, reconnect)
        for one in wanted:
            self._state.add(one)
        self._link: L | None = None  # acknowledged
        self._opening: L | None = None  # not acknowledged yet
        self._is_closed = False
        self._rest: deque[T | Notice] = deque()  # of an iteration
        self._over: SubscriptionEndedError | None = None  # other programs have ended all
        self.gaps: deque[Gap] = deque(maxlen=GAPS)
        """The last gaps that `receive` has handed out."""

    @property
    def is_live(self) -> bool:
        """Whether all is acknowledged by a node that was there when last looked."""
        return self._link is not None

    def succeed(self, token: str) -> None:
        """Before it is opened: go on where another process was, as its `token` says."""
        self._state.succeed(token)

    def close(self) -> None:
        """End the connection, and with it the subscriptions; who waits here wakes."""
        self._is_closed = True
        for link in (self._link, self._opening):
            if link is not None:
                link.close()
        self._on_closed(self)

    # --- what the faces and the kinds of consumers have of their own ---

    def _pause(self, seconds: float) -> Any:
        """Wait so long, or until this is closed; whether it is."""
        raise NotImplementedError

    def _take(self, link: L, timeout: float) -> Any:
        """The items that have come on `link`, waiting for the first; inf: for ever."""
        raise NotImplementedError

    def _event(self, item: T | Notice) -> E | None:
        """The event of an item; None of a notice."""
        raise NotImplementedError

    # --- steps ---

    def _unsubscribing(self) -> Steps[None]:
        """End the subscriptions at the node, and this object."""
        link = self._link
        ends = [Unsubscribe(0, id_) for id_ in self._state.ids]
        try:
            if link is not None and not self._is_closed:
                yield partial(link.ask_many, ends, Reply, UNSUBSCRIBE_TIMEOUT, OPENING)
        except ControlError:
            pass  # the end of the connection ends it at the node all the same
        finally:
            self.close()

    def _opening_first(self) -> Steps[None]:
        """Connect and subscribe, or go on where another process was; the gap since then is the
        first that is handed out."""
        gap = yield from self._connecting()
        self._rest.extend([gap] if gap is not None else [])

    def _connecting(self) -> Steps[Gap | None]:
        """Open a connection, and go on with the session there or make all subscriptions on it: the
        gap since the connection before."""
        link = self._opening = yield self._open_link
        try:
            reply = yield from self._resuming(link)
            if reply is None:
                gap = yield from self._subscribing(link)
            else:
                gap, commands = self._state.resumed(reply, time.time())
                yield partial(link.ask_many, commands, Reply, self._timeout, OPENING)
        except BaseException:
            link.close()
            raise
        finally:
            self._opening = None
        self._link = link
        self.gaps += [gap] if gap is not None else []
        if self._is_closed:
            link.close()
        return gap

    def _resuming(self, link: L) -> Steps[SessionResumed | None]:
        """Go on with the session of the connection before; None if there is none (any more)."""
        position = self._state.position
        if position is None:
            return None
        link.go_on(position)
        command = ResumeSession(0, position.session, position.received)
        try:
            return expected((yield partial(link.request, command, self._timeout)), SessionResumed)
        except CommandFailed as error:
            if error.code == "time-out":
                raise
            link.end_session()
            self._state.session_ended()
            return None

    def _subscribing(self, link: L) -> Steps[Gap | None]:
        """Make all subscriptions, and have them outlive the connection."""
        commands = self._state.opening()
        replies = yield partial(link.ask_many, commands, Reply, self._timeout, OPENING)
        if self._state.wants_session:
            with suppress(UnreachableError, CommandFailed):  # all is acknowledged: it goes without
                yield partial(link.request, OpenSession(0), self._timeout)
        return self._state.opened(replies, time.time())

    def _reopening(self, until: float) -> Steps[Notice | None]:
        """Look for the node until it is back or there is a notice, at most until `until`."""
        while True:
            delay = self._state.delay(time.monotonic())
            left = until - time.monotonic()
            is_closed = yield partial(self._pause, max(0.0, min(delay, left)))
            if is_closed or (delay > 0 and delay > left):
                return None
            try:
                return (yield from self._connecting())
            except ControlError as error:
                if self._is_closed:
                    return None
                notice = self._lost(error)
                if notice is not None:
                    return notice

    def _receiving(self, timeout: float) -> Steps[list[T | Notice]]:
        """What has come, waiting for the first at most `timeout` seconds (inf: for ever)."""
        if self._rest:
            return self._left_over()
        if self._over is not None:
            raise self._over
        until = time.monotonic() + timeout
        while not self._is_closed:
            link = self._link
            if link is None:
                notice = yield from self._reopening(until)
                if notice is not None:
                    return [notice]
                if self._link is None:
                    return []
                continue
            try:
                found = yield partial(self._take, link, until - time.monotonic())
                return self._with_notices(found, link.notices)
            except UnreachableError as error:
                self._link = None
                self._state.left_at(link.position, link.complete_until)
                link.close()
                if not self._is_closed:
                    notice = self._lost(error)
                    if notice is not None:
                        return [notice]
        return []

    # --- parts ---

    def _event_or_gap(self, item: T | Notice) -> E | Gap | None:
        return item if isinstance(item, Gap) else self._event(item)

    def _left_over(self) -> list[T | Notice]:
        """What an iteration has received and not yielded before it was ended."""
        found = list(self._rest)
        self._rest.clear()
        return found

    def _with_notices(self, items: list[T], failed: deque[Failed]) -> list[T | Notice]:
        """`items` with the notices behind them, which leave the connection's."""
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
        """The connection has ended, or could not be opened: as `Resubscription.lost`."""
        self._link = None
        return self._state.lost(error, time.monotonic(), time.time())


class OneSelector(Consumer[L, Delivery, Event]):
    """A consumer of one selector's events."""

    @property
    def selector(self) -> str:
        """The selector's text, as it was given."""
        return self._state.wanted[0].selector

    @property
    def id(self) -> str:
        """Its id at the node, as in traces; "" while the node is away."""
        return next(iter(self._state.ids), "")

    @property
    def token(self) -> str:
        """What `subscribe(resume=...)` of another process goes on from, within the time for which
        the node keeps the session: behind what was handed out until now. "" where it keeps none."""
        link = self._link
        return self._state.token(None if link is None else link.taken, len(self._rest))

    def _take(self, link: L, timeout: float) -> Any:
        return link.deliveries(timeout)

    def _event(self, item: Delivery | Notice) -> Event | None:
        return item.event if isinstance(item, Delivery) else None


class ManySelectors(Consumer[L, OpaqueEvent, OpaqueEvent]):
    """A consumer of many selectors' events, each once."""

    _gathers = True

    def _adding(self, wanted: KeptSelector) -> Steps[KeptSelector]:
        """Subscribe to one more, on the present connection."""
        if self._link is None:
            raise UnreachableError("the node is away; add the selector when it is back")
        command = Subscribe(0, wanted.selector, wanted.name, wanted.latency_level, marks=True)
        reply = yield partial(self._link.request, command, self._timeout)
        self._state.add(wanted, expected(reply, Subscribed).subscription)
        return wanted

    def _removing(self, wanted: KeptSelector) -> Steps[None]:
        """Unsubscribe one, if it is subscribed at the node now."""
        link, id_ = self._link, self._state.remove(wanted)
        if link is not None and id_:
            yield partial(link.request, Unsubscribe(0, id_), self._timeout)

    def _take(self, link: L, timeout: float) -> Any:
        return link.gathered(timeout)

    def _event(self, item: OpaqueEvent | Notice) -> OpaqueEvent | None:
        return item if isinstance(item, OpaqueEvent) else None

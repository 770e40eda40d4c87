"""What takes events for a program, in common to the faces (no IO).

A `Consumer` knows what is subscribed, the connection that carries it, and what was received and not
yet handed out. The faces connect, wait, and wake.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from canopy.client.errors import SubscriptionEndedError, UnreachableError
from canopy.client.notices import Gap, Notice
from canopy.client.resubscription import SUBACK_TIMEOUT, Resubscription, Wanted
from overlay.client import Ended, Failed, Reply

L = TypeVar("L")
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
        wanted: Iterable[Wanted],
        reconnect: float = math.inf,
        timeout: float = SUBACK_TIMEOUT,
        on_closed: Callable[[object], object] = lambda consumer: None,
    ) -> None:
        """`reconnect`: seconds for which a lost node is looked for; `timeout`: seconds for an
        acknowledgement; `on_closed` is called with this object when it is closed."""
        self._timeout = timeout
        self._on_closed = on_closed
        self._state = Resubscription(self._gathers, reconnect)
        for one in wanted:
            self._state.add(one)
        self._link: L | None = None  # acknowledged
        self._rest: deque[T | Notice] = deque()  # of an iteration
        self._over: SubscriptionEndedError | None = None  # other programs have ended all
        self.gaps: deque[Gap] = deque(maxlen=GAPS)
        """The last gaps that `receive` has handed out."""

    @property
    def is_live(self) -> bool:
        """Whether all is acknowledged by a node that was there when last looked."""
        return self._link is not None

    def _event(self, item: T | Notice) -> E | None:
        """The event of an item; None of a notice."""
        raise NotImplementedError

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

    def _check_over(self) -> None:
        """Raises SubscriptionEndedError when everything that came before the end was taken."""
        if self._over is not None:
            raise self._over

    def _opened(self, link: L, replies: list[Reply]) -> Gap | None:
        """All is acknowledged on `link`: the gap since the connection before, if any."""
        self._link = link
        gap = self._state.opened(replies, time.time())
        self.gaps += [gap] if gap is not None else []
        return gap

    def _lost(self, error: Exception) -> Notice | None:
        """The connection has ended, or could not be opened: as `Resubscription.lost`."""
        self._link = None
        return self._state.lost(error, time.monotonic(), time.time())

    def _link_to_add(self) -> L:
        """The connection that can take one more selector now."""
        if self._link is None:
            raise UnreachableError("the node is away; add the selector when it is back")
        return self._link

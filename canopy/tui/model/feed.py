"""The thread behind one subscription, which passes deliveries on and tells of its state.

The client library's `Subscription` connects, subscribes, and does so again after a loss. A feed is
started once and stopped once; pausing a subscription stops its feed and resuming makes a new one,
so there is no state to bring back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from canopy.client.errors import CommandFailed
from canopy.client.notices import Disconnected, Gap
from canopy.client.resubscription import Wanted
from canopy.client.synchronous import Subscription
from canopy.tui.model.client import Connector
from canopy.tui.model.inbox import Inbox
from overlay.client import Delivery

LISTEN = 0.25
"""Seconds between two looks at the stop flag: a person does not notice a quarter of a second."""


class State(Enum):
    """Of a subscription, as the person sees it; the value is the word that is shown."""

    WAITING = "waiting"  # for the node, or for its SUBACK
    LIVE = "live"
    PAUSED = "paused"
    FAILED = "failed"


OnState: TypeAlias = Callable[[int, State, str, str], None]
"""Called in the app's thread: key, state, the node's id of the subscription, reason."""


class Feed:
    """One subscription on its own connection."""

    def __init__(
        self,
        key: int,
        selector: str,
        name: str,
        connect: Connector,
        inbox: Inbox,
        on_state: OnState,
        level: int = 0,
    ) -> None:
        self.key = key
        self._subscription = Subscription(connect, [Wanted(selector, name, level)])
        self._inbox = inbox
        self._on_state = on_state
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"canopy-sub-{key}", daemon=True)

    def start(self) -> None:
        """Begin to connect and subscribe."""
        self._thread.start()

    def stop(self) -> None:
        """End the subscription. The thread follows within a moment; nothing is told after this."""
        self._stop.set()

    def _run(self) -> None:
        self._tell(State.WAITING, "waiting for the node's acknowledgement")
        try:
            self._pass_on(self._subscription.receive(0.0))
            if self._subscription.is_live:
                self._tell(State.LIVE, "")
            while not self._stop.is_set():
                was_live = self._subscription.is_live
                self._pass_on(self._subscription.receive(LISTEN))
                if self._subscription.is_live and not was_live:
                    self._tell(State.LIVE, "")
        except CommandFailed as error:
            self._tell(State.FAILED, error.reason)
        finally:
            self._subscription.unsubscribe()

    def _pass_on(self, received: list[Delivery | Gap | Disconnected]) -> None:
        """Put deliveries into the inbox; say what may be missing, or that the node has gone."""
        deliveries = [one for one in received if isinstance(one, Delivery)]
        if deliveries and not self._stop.is_set():
            self._inbox.deliver(self.key, deliveries)
        for one in received:
            if isinstance(one, Disconnected):
                self._tell(State.WAITING, one.reason)
            elif isinstance(one, Gap):
                self._tell(State.LIVE, one.reason)

    def _tell(self, state: State, reason: str) -> None:
        subscription = self._subscription.id if state is State.LIVE else ""

        def news() -> None:
            if not self._stop.is_set():
                self._on_state(self.key, state, subscription, reason)

        self._inbox.tell(news)

"""The thread behind one subscription: connect, subscribe, pass deliveries on, again after a loss.

A feed is started once and stopped once; pausing a subscription stops its feed and resuming makes a
new one, so there is no state to bring back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeAlias

from canopy.tui.model.backoff import Backoff
from canopy.tui.model.client import (
    LOST,
    Client,
    CommandFailed,
    CommandTimeoutError,
    Connector,
    reason_of,
)
from canopy.tui.model.inbox import Inbox
from overlay.client import Subscribe, Subscribed, Unsubscribe

SUBACK_TIMEOUT = 60.0  # seconds; a SUBACK may wait for a *nobody there* to run out (C5: 10 s)
LISTEN = 0.25  # seconds between looks at the stop flag; nobody notices a quarter of a second


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
        self._command = Subscribe(1, selector, name, level)
        self._connect = connect
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
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                client = self._connect()
            except LOST as error:
                self._tell(State.WAITING, "", reason_of(error))
                self._stop.wait(backoff.next())
                continue
            try:
                self._serve(client, backoff)
                return
            except LOST as error:
                self._tell(State.WAITING, "", reason_of(error))
                self._stop.wait(backoff.next())
            finally:
                client.close()

    def _serve(self, client: Client, backoff: Backoff) -> None:
        """Until stopped or refused by the node; raises one of LOST when it must begin again."""
        self._tell(State.WAITING, "", "waiting for the node's acknowledgement")
        try:
            reply = client.request(self._command, SUBACK_TIMEOUT)
        except CommandFailed as error:
            if error.code == "time-out":
                raise CommandTimeoutError(error.reason) from error
            self._tell(State.FAILED, "", error.reason)
            return
        subscription = reply.subscription if isinstance(reply, Subscribed) else ""
        backoff.reset()
        self._tell(State.LIVE, subscription, "")
        while not self._stop.is_set():
            deliveries = client.deliveries(LISTEN)
            if deliveries and not self._stop.is_set():
                self._inbox.deliver(self.key, deliveries)
            if client.notices:  # the node had to drop some of ours, or has other bad news
                self._tell(State.LIVE, subscription, client.notices.popleft().reason)
        with suppress(*LOST):  # closing the connection ends it at the node all the same
            client.request(Unsubscribe(2, subscription), 1.0)

    def _tell(self, state: State, subscription: str, reason: str) -> None:
        def news() -> None:
            if not self._stop.is_set():
                self._on_state(self.key, state, subscription, reason)

        self._inbox.tell(news)

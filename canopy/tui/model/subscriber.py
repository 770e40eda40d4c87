"""The thread of one subscription, which passes on deliveries and reports the subscription's state.

The client library's `Subscription` connects, subscribes, and does both again after a loss. A
subscriber is started once and stopped once: pausing a subscription stops it, resuming makes a new
one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from canopy.client.blocking import blocking_node
from canopy.client.consumer import Subscription
from canopy.client.errors import CommandFailed
from canopy.client.notices import Disconnected, Gap
from canopy.client.resubscription import KeptSelector
from canopy.tui.constants import STOP_CHECK
from canopy.tui.model.inbox import Inbox, Worker
from canopy.tui.model.requester import Connector
from overlay.client import Delivery


class SubscriptionState(Enum):
    """The state of a subscription; the value is the word that is shown."""

    WAITING = "waiting"  # for the node, or for its SUBACK
    LIVE = "live"
    PAUSED = "paused"
    FAILED = "failed"


OnState: TypeAlias = Callable[[int, SubscriptionState, str, str], None]
"""Called in the app's thread: key, state, the node's id of the subscription, reason."""


class Subscriber(Worker):
    """One subscription on a connection of its own."""

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
        super().__init__(f"canopy-sub-{key}", inbox)
        self.key = key
        node = blocking_node(lambda credit: connect())
        self._subscription = Subscription(node, [KeptSelector(selector, name, level)])
        self._on_state = on_state

    def _run(self) -> None:
        self._report(SubscriptionState.WAITING, "waiting for the node's acknowledgement")
        try:
            self._pass_on(self._subscription.receive(0.0))
            if self._subscription.is_live:
                self._report(SubscriptionState.LIVE, "")
            while not self._stop.is_set():
                was_live = self._subscription.is_live
                self._pass_on(self._subscription.receive(STOP_CHECK))
                if self._subscription.is_live and not was_live:
                    self._report(SubscriptionState.LIVE, "")
        except CommandFailed as error:
            self._report(SubscriptionState.FAILED, error.reason)
        finally:
            self._subscription.unsubscribe()

    def _pass_on(self, received: list[Delivery | Gap | Disconnected]) -> None:
        """Put deliveries into the inbox; report gaps, and that the connection was lost."""
        deliveries = [one for one in received if isinstance(one, Delivery)]
        if deliveries and not self._stop.is_set():
            self._inbox.deliver(self.key, deliveries)
        for one in received:
            if isinstance(one, Disconnected):
                self._report(SubscriptionState.WAITING, one.reason)
            elif isinstance(one, Gap):
                self._report(SubscriptionState.LIVE, one.reason)

    def _report(self, state: SubscriptionState, reason: str) -> None:
        subscription = self._subscription.id if state is SubscriptionState.LIVE else ""
        self._tell(lambda: self._on_state(self.key, state, subscription, reason))

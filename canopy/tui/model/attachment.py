"""The TUI's connection to one node: subscriptions, the event log, and requests.

Everything here runs in the app's thread. The threads of `Requester` and `Subscriber` reach it
through the inbox only, which `pump` empties once per tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from canopy.tui.constants import REQUEST_TIMEOUT, SUBSCRIPTIONS
from canopy.tui.model.client import Connector
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.log import EventLog
from canopy.tui.model.rates import Rate
from canopy.tui.model.requester import OnReply, Requester
from canopy.tui.model.subscriber import Subscriber, SubscriptionState
from overlay.client import Command, GetStatus, Reply, Status


@dataclass(eq=False)
class SubscriptionEntry:
    """One subscription of the TUI."""

    key: int  # its number here
    selector: str
    name: str
    attributes: tuple[str, ...]
    level: int = 0  # latency level; 0: none
    state: SubscriptionState = SubscriptionState.WAITING
    id: str = ""  # the node's, "" until the SUBACK
    reason: str = ""
    pivots: tuple[str, ...] = ()
    rate: Rate = field(default_factory=Rate)


class Changes(NamedTuple):
    """What changed since the last tick."""

    events: bool
    subscriptions: bool
    connection: bool


class Attachment:
    """What the screens show, and what they ask of the node. `clock` is monotonic seconds."""

    def __init__(self, connect: Connector, clock: Callable[[], float]) -> None:
        self.log = EventLog()
        self.rate = Rate()
        self.subscriptions: dict[int, SubscriptionEntry] = {}
        self.status: Status | None = None  # the last reply
        self.up = False
        self.ever_up = False
        self.reason = ""
        self.retry_at = 0.0  # by the clock, while not up
        self._connect = connect
        self._clock = clock
        self._inbox = Inbox()
        self._requester = Requester(connect, self._inbox, self._on_connection)
        self._subscribers: dict[int, Subscriber] = {}
        self._keys: Iterator[int] = count(1)
        self._requests: Iterator[int] = count(1)
        self._changed = [False, False]  # subscriptions, connection

    def start(self) -> None:
        """Start the thread that connects to the node."""
        self._requester.start()

    def stop(self) -> None:
        """End all subscriptions and make no further requests."""
        for subscriber in self._subscribers.values():
            subscriber.stop()
        self._requester.stop()

    def ask(
        self,
        make: Callable[[int], Command],
        on_reply: OnReply,
        poll: bool = False,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Send the command that `make(request number)` returns; `on_reply` may get a `Failed`."""
        self._requester.ask(make(next(self._requests)), on_reply, poll, timeout)

    def poll_status(self) -> None:
        """Request the node's status, which is in `status` at a later tick."""
        self.ask(GetStatus, self._on_status, poll=True)

    def pump(self) -> Changes:
        """Take everything out of the inbox, call its callbacks, and log the events."""
        taken = self._inbox.drain()
        for callback in taken.callbacks:
            callback()
        for key, number in taken.counts.items():
            self.rate.add(number)
            if key in self.subscriptions:
                self.subscriptions[key].rate.add(number)
        self.log.skipped += taken.skipped
        # Each subscription has its own connection: within a tick, order by the events' time.
        known = [(k, d) for k, d in taken.deliveries if k in self.subscriptions]
        known.sort(key=lambda each: each[1].event.time)
        self.log.add(known)
        changes = Changes(bool(taken.counts), *self._changed)
        self._changed = [False, False]
        return changes

    def update_rates(self) -> None:
        """Update the rates; called about once a second."""
        now = self._clock()
        self.rate.update(now)
        for subscription in self.subscriptions.values():
            subscription.rate.update(now)

    def subscribe(
        self, selector: str, name: str, attributes: tuple[str, ...], level: int = 0
    ) -> SubscriptionEntry:
        """Add a subscription, which is made again whenever the node comes back.

        Raises ValueError if there are `SUBSCRIPTIONS` already.
        """
        if len(self.subscriptions) >= SUBSCRIPTIONS:
            raise ValueError(f"at most {SUBSCRIPTIONS} subscriptions; remove one first")
        key = next(self._keys)
        subscription = SubscriptionEntry(key, selector, name or f"s{key}", attributes, level)
        self.subscriptions[key] = subscription
        self._begin(subscription)
        return subscription

    def remove(self, key: int) -> None:
        """End a subscription. Its events stay in the log."""
        self._end(key)
        self.subscriptions.pop(key, None)
        self._changed[0] = True

    def pause(self, key: int) -> None:
        """Pause a subscription (it ends at the node, too), or resume it."""
        subscription = self.subscriptions[key]
        if subscription.state in (SubscriptionState.PAUSED, SubscriptionState.FAILED):
            self._begin(subscription)
        else:
            self._end(key)
            subscription.state = SubscriptionState.PAUSED
            subscription.id = subscription.reason = ""
        self._changed[0] = True

    def find(self, subscription_id: str) -> SubscriptionEntry | None:
        """The subscription with the node's id `subscription_id`, else None."""
        for subscription in self.subscriptions.values():
            if subscription_id and subscription.id == subscription_id:
                return subscription
        return None

    def _begin(self, subscription: SubscriptionEntry) -> None:
        subscription.state, subscription.reason = SubscriptionState.WAITING, ""
        subscriber = Subscriber(
            subscription.key,
            subscription.selector,
            subscription.name,
            self._connect,
            self._inbox,
            self._on_state,
            subscription.level,
        )
        self._subscribers[subscription.key] = subscriber
        self._changed[0] = True
        subscriber.start()

    def _end(self, key: int) -> None:
        subscriber = self._subscribers.pop(key, None)
        if subscriber is not None:
            subscriber.stop()

    def _on_state(
        self, key: int, state: SubscriptionState, subscription_id: str, reason: str
    ) -> None:
        subscription = self.subscriptions.get(key)
        if subscription is not None:
            subscription.state, subscription.reason = state, reason
            subscription.id = subscription_id
            self._changed[0] = True

    def _on_status(self, reply: Reply) -> None:
        if isinstance(reply, Status):
            self.status = reply

    def _on_connection(self, up: bool, reason: str, wait: float) -> None:
        self.up, self.reason = up, reason
        self.ever_up = self.ever_up or up
        self.retry_at = self._clock() + wait
        self._changed[1] = True

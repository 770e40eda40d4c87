"""The TUI's hold on one node: its subscriptions, the event log, and the questions it asks.

Everything here runs in the app's thread except what the threads of `Asker` and `Feed` do, and those
speak through the inbox only. `pump` is the heart: once per beat it empties the inbox and says
whether there is anything to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from canopy.tui.model.asker import TIMEOUT, Asker, OnReply
from canopy.tui.model.client import Connector
from canopy.tui.model.feed import Feed, State
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.log import EventLog
from canopy.tui.model.rates import Rate
from overlay.client import Command, GetStatus, Reply, Status

SUBSCRIPTIONS = 32  # each has a thread and a connection; wild guess: a screen shows ten


class Subscription:
    """One line of the list. `key` is the TUI's own; `id` the node's, "" until it acknowledged."""

    def __init__(
        self, key: int, selector: str, name: str, attributes: tuple[str, ...], level: int = 0
    ) -> None:
        self.key = key
        self.selector = selector
        self.name = name
        self.attributes = attributes
        self.level = level  # latency level; 0: none
        self.state = State.WAITING
        self.id = ""
        self.reason = ""
        self.pivots: tuple[str, ...] = ()
        self.rate = Rate()


class Changes(NamedTuple):
    """What a beat brought."""

    events: bool
    subscriptions: bool
    connection: bool


class Attachment:
    """All that the screens ask for. `clock` is monotonic seconds."""

    def __init__(self, connect: Connector, clock: Callable[[], float]) -> None:
        self.log = EventLog()
        self.rate = Rate()
        self.subscriptions: dict[int, Subscription] = {}
        self.status: Status | None = None  # the last one that the node told
        self.up = False
        self.ever_up = False
        self.reason = ""
        self.retry_at = 0.0  # by the clock, while not up
        self._connect = connect
        self._clock = clock
        self._inbox = Inbox()
        self._asker = Asker(connect, self._inbox, self._on_connection)
        self._feeds: dict[int, Feed] = {}
        self._keys: Iterator[int] = count(1)
        self._requests: Iterator[int] = count(1)
        self._changed = [False, False]  # subscriptions, connection

    def start(self) -> None:
        """Begin to connect."""
        self._asker.start()

    def stop(self) -> None:
        """End all subscriptions and ask nothing more."""
        for feed in self._feeds.values():
            feed.stop()
        self._asker.stop()

    def ask(
        self,
        make: Callable[[int], Command],
        on_reply: OnReply,
        poll: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        """Ask the node; `make` gets the number of the request. `on_reply` may get a `Failed`."""
        self._asker.ask(make(next(self._requests)), on_reply, poll, timeout)

    def poll_status(self) -> None:
        """Ask how the node is; the answer is in `status` at a later beat."""
        self.ask(GetStatus, self._on_status, poll=True)

    def pump(self) -> Changes:
        """Take in what came since the last beat."""
        taken = self._inbox.take()
        for news in taken.news:
            news()
        for key, number in taken.counts.items():
            self.rate.add(number)
            if key in self.subscriptions:
                self.subscriptions[key].rate.add(number)
        self.log.skipped += taken.skipped
        # Each subscription has its own connection: within a beat, the events' time gives the order.
        known = [(k, d) for k, d in taken.deliveries if k in self.subscriptions]
        known.sort(key=lambda each: each[1].event.time)
        self.log.add(known)
        changes = Changes(bool(taken.counts), *self._changed)
        self._changed = [False, False]
        return changes

    def roll(self) -> None:
        """Bring the rates up to date; called about once a second."""
        now = self._clock()
        self.rate.roll(now)
        for subscription in self.subscriptions.values():
            subscription.rate.roll(now)

    def subscribe(
        self, selector: str, name: str, attributes: tuple[str, ...], level: int = 0
    ) -> Subscription:
        """A new subscription, made again by itself whenever the node comes back."""
        if len(self.subscriptions) >= SUBSCRIPTIONS:
            raise ValueError(f"at most {SUBSCRIPTIONS} subscriptions; remove one first")
        key = next(self._keys)
        subscription = Subscription(key, selector, name or f"s{key}", attributes, level)
        self.subscriptions[key] = subscription
        self._begin(subscription)
        return subscription

    def remove(self, key: int) -> None:
        """End a subscription. Its events stay in the log."""
        self._end(key)
        self.subscriptions.pop(key, None)
        self._changed[0] = True

    def pause(self, key: int) -> None:
        """Pause a subscription (at the node too: nothing is sent meanwhile), or resume it."""
        subscription = self.subscriptions[key]
        if subscription.state is State.PAUSED or subscription.state is State.FAILED:
            self._begin(subscription)
        else:
            self._end(key)
            subscription.state, subscription.id, subscription.reason = State.PAUSED, "", ""
        self._changed[0] = True

    def by_id(self, subscription_id: str) -> Subscription | None:
        """The subscription that the node calls so."""
        for subscription in self.subscriptions.values():
            if subscription_id and subscription.id == subscription_id:
                return subscription
        return None

    def _begin(self, subscription: Subscription) -> None:
        subscription.state, subscription.reason = State.WAITING, ""
        feed = Feed(
            subscription.key,
            subscription.selector,
            subscription.name,
            self._connect,
            self._inbox,
            self._on_state,
            subscription.level,
        )
        self._feeds[subscription.key] = feed
        self._changed[0] = True
        feed.start()

    def _end(self, key: int) -> None:
        feed = self._feeds.pop(key, None)
        if feed is not None:
            feed.stop()

    def _on_state(self, key: int, state: State, subscription_id: str, reason: str) -> None:
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

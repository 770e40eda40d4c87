"""The TUI's connection to one node: subscriptions, the event log, and requests.

Everything here runs in the app's thread. The threads of `Requester` and `Subscriber` reach it
through the inbox only, which `pump` empties once per tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from canopy.client.streams.reading import Start
from canopy.tui.constants import REQUEST_TIMEOUT, SUBSCRIPTIONS, UNDO, UNDO_EVENTS
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.log import EventLog
from canopy.tui.model.rates import Rate
from canopy.tui.model.requester import Connector, OnReply, Requester
from canopy.tui.model.saved import SavedSubscription, SavedSubscriptions
from canopy.tui.model.stream_reader import StreamReader
from canopy.tui.model.subscriber import Subscriber, SubscriptionState
from matching import compile_selector
from overlay.client import Command, Feed, GetStatus, Reply, Status, StreamEvent
from overlay.phrases import counted


class UndoableChange(NamedTuple):
    """One change. `back` undoes it, and raises ValueError if that is impossible at present."""

    what: str  # what is there again afterwards, for people
    back: Callable[[], None]
    has_events: bool = False  # whether it holds the events of a list that was cleared


class UndoStack:
    """The last changes that can be undone, the newest last; bounded."""

    def __init__(self) -> None:
        self._changes: list[UndoableChange] = []

    def __len__(self) -> int:
        return len(self._changes)

    def push(self, change: UndoableChange) -> None:
        """Remember a change; the oldest beyond the bounds are forgotten."""
        self._changes.append(change)
        with_events = [one for one in self._changes if one.has_events]
        forgotten = with_events[:-UNDO_EVENTS]
        self._changes = [one for one in self._changes if one not in forgotten][-UNDO:]

    def undo(self) -> str:
        """Undo the newest change. Returns what was restored, "" if there is no change. Raises
        ValueError if it cannot be undone at present; the change is then kept."""
        if not self._changes:
            return ""
        change = self._changes[-1]
        change.back()
        self._changes.pop()
        return change.what


@dataclass(eq=False)
class SubscriptionEntry:
    """One subscription of the terminal UI: its selector, its state, and its counts of events."""

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
    """The changes since the last tick."""

    events: bool
    subscriptions: bool
    connection: bool


class Attachment:
    """The data of the screens, and their requests to the node. `clock` gives monotonic seconds;
    `saved` keeps the subscriptions for the next start (None: they are not kept)."""

    def __init__(
        self,
        connect: Connector,
        clock: Callable[[], float],
        saved: SavedSubscriptions | None = None,
    ) -> None:
        self.log = EventLog()
        self.undo_stack = UndoStack()
        self.notices: list[str] = []  # for the app to show, and to remove
        self.rate = Rate()
        self.subscriptions: dict[int, SubscriptionEntry] = {}
        self.status: Status | None = None  # the last reply
        self.up = False
        self.ever_up = False
        self.reason = ""
        self.retry_at = 0.0  # by the clock, while not up
        self._saved = saved
        self._connect = connect
        self._clock = clock
        self._inbox = Inbox()
        self._requester = Requester(connect, self._inbox, self._on_connection)
        self._subscribers: dict[int, Subscriber] = {}
        self._keys: Iterator[int] = count(1)
        self._requests: Iterator[int] = count(1)
        self._changed = [False, False]  # subscriptions, connection

    def start(self, fresh: bool = False) -> None:
        """Start the thread that connects to the node, and make the saved subscriptions. If `fresh`,
        they are made only by `undo`."""
        self._requester.start()
        if self._saved is None:
            return
        found, notice = self._saved.load()
        if notice:
            self.notices.append(notice)
        if not found:
            return
        count = counted(len(found), "saved subscription")
        if fresh:
            self.undo_stack.push(UndoableChange(count, lambda: self._make_again(found)))
            self.notices.append(f"started without {count}; u subscribes again")
        else:
            self._make_again(found)
            self.notices.append(f"subscribed again: {count} (canopy tui --fresh starts without)")

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
        """Send the command that `make(request number)` returns. `on_reply` is called with the
        reply, which may be a `Failed`."""
        self._requester.ask(make(next(self._requests)), on_reply, poll, timeout)

    def feed_telemetry(self, period: float, on_reply: OnReply) -> None:
        """Have the node publish samples of its machine every `period` seconds (0: stop)."""
        self.ask(lambda request: Feed(request, "telemetry", period), on_reply)

    def read_stream(
        self,
        stream: str,
        selector: str,
        start: Start | int,
        at: int,
        on_events: Callable[[list[StreamEvent]], None],
        on_state: Callable[[bool, str], None],
    ) -> StreamReader:
        """Read a stream from `start` on (`Client.read`), until the reader is stopped."""
        reader = StreamReader(
            self._connect, self._inbox, stream, selector, start, at, on_events, on_state
        )
        reader.start()
        return reader

    def poll_status(self) -> None:
        """Request the node's status; a later tick puts it into `status`."""
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
        subscription = self._add(selector, name, attributes, level)
        self._begin(subscription)
        self._save()
        return subscription

    def remove(self, key: int) -> None:
        """End a subscription; `undo` makes it again. Its events stay in the log."""
        order = list(self.subscriptions)
        subscription = self._take_out(key)
        self._save()

        def back() -> None:
            self._put_back(subscription, order)
            self._save()

        self.undo_stack.push(UndoableChange(subscription.name, back))

    def change(
        self, key: int, selector: str, name: str, attributes: tuple[str, ...], level: int = 0
    ) -> SubscriptionEntry:
        """Replace a subscription by another one, in its place; `undo` restores the first one."""
        order = list(self.subscriptions)
        before = self._take_out(key)
        made = self._add(selector, name, attributes, level)
        self._order([made.key if one == key else one for one in order])
        self._begin(made)
        self._save()

        def back() -> None:
            if made.key in self.subscriptions:
                self._take_out(made.key)
            self._put_back(before, order)
            self._save()

        self.undo_stack.push(UndoableChange(f"{before.name} as it was", back))
        return made

    def clear(self) -> int:
        """Remove all events from the log; `undo` restores them. Returns their number."""
        cleared = self.log.clear()
        count = len(cleared.rows) + len(cleared.held)
        if count:
            what = counted(count, "event")
            self.undo_stack.push(
                UndoableChange(what, lambda: self.log.restore(cleared), has_events=True)
            )
        return count

    def undo(self) -> str:
        """Undo the newest removal, change or clearing. Returns what was restored, or "". Raises
        ValueError if there is no room for it."""
        return self.undo_stack.undo()

    def pause(self, key: int) -> None:
        """Pause a subscription (it also ends at the node), or resume it."""
        subscription = self.subscriptions[key]
        if subscription.state in (SubscriptionState.PAUSED, SubscriptionState.FAILED):
            self._begin(subscription)
        else:
            self._end(key)
            subscription.state = SubscriptionState.PAUSED
            subscription.id = subscription.reason = ""
        self._changed[0] = True
        self._save()

    def find(self, subscription_id: str) -> SubscriptionEntry | None:
        """Return the subscription with the node's id `subscription_id`, else None."""
        for subscription in self.subscriptions.values():
            if subscription_id and subscription.id == subscription_id:
                return subscription
        return None

    def _add(
        self, selector: str, name: str, attributes: tuple[str, ...], level: int
    ) -> SubscriptionEntry:
        self._require_room()
        key = next(self._keys)
        used = {subscription.name for subscription in self.subscriptions.values()}
        unused = next(free for n in count(key) if (free := f"s{n}") not in used)
        subscription = SubscriptionEntry(key, selector, name or unused, attributes, level)
        self.subscriptions[key] = subscription
        return subscription

    def _require_room(self, more: int = 1) -> None:
        if len(self.subscriptions) + more > SUBSCRIPTIONS:
            raise ValueError(f"at most {SUBSCRIPTIONS} subscriptions; remove one first")

    def _make_again(self, found: tuple[SavedSubscription, ...]) -> None:
        self._require_room(len(found))
        for selector, name, level, paused in found:
            made = self._add(selector, name, compile_selector(selector).attributes, level)
            if paused:
                made.state = SubscriptionState.PAUSED
            else:
                self._begin(made)
        self._changed[0] = True
        self._save()

    def _take_out(self, key: int) -> SubscriptionEntry:
        self._end(key)
        self._changed[0] = True
        return self.subscriptions.pop(key)

    def _put_back(self, subscription: SubscriptionEntry, order: list[int]) -> None:
        self._require_room()
        subscription.id = ""
        self.subscriptions[subscription.key] = subscription
        self._order(order)
        if subscription.state is not SubscriptionState.PAUSED:
            self._begin(subscription)
        self._changed[0] = True

    def _order(self, keys: list[int]) -> None:
        """Sort the subscriptions in the order of `keys`; others come last."""
        rest = [key for key in self.subscriptions if key not in keys]
        listed = [key for key in [*keys, *rest] if key in self.subscriptions]
        self.subscriptions = {key: self.subscriptions[key] for key in listed}

    def _save(self) -> None:
        if self._saved is None:
            return
        try:
            self._saved.save(
                SavedSubscription(s.selector, s.name, s.level, s.state is SubscriptionState.PAUSED)
                for s in self.subscriptions.values()
            )
        except OSError as error:
            self.notices.append(f"the subscriptions cannot be saved: {error}")

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

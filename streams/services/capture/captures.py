"""The subscriptions with which this node captures events for the shards that it has.

A node that has a shard of a stream with a selector subscribes as a program does, whether it leads
or follows, so that there is no moment without a subscriber when another leader takes over. The
subscription is registered anew where it was refused or ended, and with another selector before the
former one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from overlay.client import (
    Command,
    Delivered,
    Ended,
    Event,
    Failed,
    Lapsed,
    Subscribe,
    Subscribed,
)
from overlay.info import IntakeInfo
from overlay.inner import InnerReply
from overlay.machine import Machine, Port, Timer
from streams.directory.entry import StreamEntry
from streams.disk import Opened
from streams.programs.producer.producers import shard_of
from streams.services.capture.shard_capture import ShardCapture
from streams.services.service import Leaderships
from streams.shard.hosting.shard_hosts import ShardHosts, StreamDescribed
from streams.shard.replica import ShardLed, ShardUnled

LOOK: Final = 0.25
"""Seconds between looks at which shards there are, and at what is committed."""

AGAIN: Final = 1.0
"""Seconds after which a refused subscription is tried again."""


class LookAtCaptures(Timer, frozen=True):
    """Time to look at what is to be captured."""


class _Subscription:
    """One subscription for a stream. `client`: the number under which it was made."""

    def __init__(self, entry: StreamEntry, client: int, now: float) -> None:
        self.entry = entry
        self.client = client
        self.asked_at = now
        self.is_ready = False
        self.has_failed = False
        self.gaps = 0
        """How often events may have been missed."""

    @property
    def selector(self) -> str:
        """What it is registered with."""
        return self.entry.options.capture


class Captures(Machine):
    """What this node captures."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        hosts: ShardHosts,
        ask: Callable[[int, Command], None],
        close: Callable[[int], None],
        clock: Callable[[], int],
    ) -> None:
        """`ask` carries out a client's command, `close` ends a client; `clock`: nanoseconds since
        1970."""
        super().__init__(port)
        self._leaderships = leaderships
        self._hosts = hosts
        self._ask, self._close = ask, close
        self._clock = clock
        self._streams: dict[str, StreamEntry] = {}  # that may have something to capture here
        self._shards: dict[str, ShardCapture] = {}
        self._subscriptions: dict[str, _Subscription] = {}  # by stream id
        self._former: dict[str, _Subscription] = {}  # until the newer one is acknowledged
        self._by_client: dict[int, _Subscription] = {}
        self._client = 0
        self._is_looking = False

    def status(self, shard: str) -> IntakeInfo | None:
        """How far capturing for a shard is; None: nothing is captured for it."""
        capture = self._shards.get(shard)
        subscription = self._subscriptions.get(shard.rpartition("/")[0])
        if capture is None or subscription is None:
            return None
        state = "captures" if subscription.is_ready else "registers"
        state = "full" if capture.is_full else state
        return IntakeInfo(state, subscription.selector, capture.waiting, subscription.gaps)

    # -- subscriptions ---------------------------------------------------------------------------

    def on_opened(self, event: Opened) -> None:
        """This node has a shard."""
        self._look_for(event.shard.rpartition("/")[0])

    def on_described(self, event: StreamDescribed) -> None:
        """A stream may have a selector by now, or none any more."""
        self._look_for(event.id)

    def _look_for(self, id_: str) -> None:
        entry = self._hosts.entries.get(id_)
        if entry is None or not (entry.options.capture or id_ in self._streams):
            return
        self._streams[id_] = entry
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(LOOK, LookAtCaptures())

    def on_look(self, timer: LookAtCaptures) -> None:
        """Subscribe for shards that are here, end what is not wanted, let go what is committed."""
        wanted: dict[str, StreamEntry] = {}
        shards: dict[str, None] = {}
        for entry in list(self._streams.values()):
            here = [shard for shard in entry.shards() if shard in self._hosts.hosted]
            if here and entry.options.capture and not entry.removed:
                wanted[entry.id] = entry
                shards.update(dict.fromkeys(here))
            else:
                del self._streams[entry.id]
        for shard in shards:
            replica = self._hosts.replica(shard)
            known = self._shards.get(shard)
            if replica is not None and (known is None or known.replica is not replica):
                self._let_go(shard)
                known = self._shards[shard] = ShardCapture(self.port, replica, self._clock)
                self._leaderships.hear(shard, known)
            if known is not None:
                known.look()
                known.pump()
        for shard in [one for one in self._shards if one not in shards]:
            self._let_go(shard)
        for entry in wanted.values():
            self._subscribe(entry)
        for id_ in [one for one in self._subscriptions if one not in wanted]:
            self._end(self._subscriptions.pop(id_))
            self._end(self._former.pop(id_, None))
        self._is_looking = bool(self._streams)
        if self._is_looking:
            self.port.set_timer(LOOK, timer)

    def _let_go(self, shard: str) -> None:
        known = self._shards.pop(shard, None)
        if known is not None:
            self._leaderships.hear_no_more(shard, known)

    def _subscribe(self, entry: StreamEntry) -> None:
        """Have a subscription with the selector of this entry."""
        known = self._subscriptions.get(entry.id)
        gaps = 0
        if known is not None:
            is_same = known.selector == entry.options.capture
            if is_same and not (known.has_failed and self.port.now - known.asked_at > AGAIN):
                return
            gaps = known.gaps
            if is_same or not known.is_ready:
                self._end(known)
            else:
                self._end(self._former.pop(entry.id, None))
                self._former[entry.id] = known
        self._client -= 1
        mine = _Subscription(entry, self._client, self.port.now)
        mine.gaps = gaps
        self._subscriptions[entry.id] = self._by_client[mine.client] = mine
        self._ask(mine.client, Subscribe(1, mine.selector, f"stream {entry.name}"))

    def _end(self, subscription: _Subscription | None) -> None:
        if subscription is not None and self._by_client.pop(subscription.client, None) is not None:
            self._close(subscription.client)

    def on_inner_reply(self, event: InnerReply) -> None:
        """What a program would be sent."""
        mine = self._by_client.get(event.client)
        reply = event.reply
        if mine is None:
            return
        if isinstance(reply, Delivered):
            self._take(mine.entry.id, [delivery.event for delivery in reply.deliveries])
        elif isinstance(reply, Subscribed):
            mine.is_ready = True
            self._end(self._former.pop(mine.entry.id, None))
        elif isinstance(reply, Lapsed) and reply.is_over:
            mine.is_ready = True
        elif isinstance(reply, Failed):
            self.port.count("capture_gaps", int(mine.is_ready))
            mine.gaps += mine.is_ready
            if isinstance(reply, Lapsed):
                mine.is_ready = False
            elif reply.request or isinstance(reply, Ended):
                mine.has_failed, mine.is_ready = True, False
                mine.asked_at = self.port.now

    # -- events ----------------------------------------------------------------------------------

    def _take(self, stream: str, events: Sequence[Event]) -> None:
        """Give events to the shards in which they belong."""
        for shard, capture in self._shards.items():
            id_, _, number = shard.rpartition("/")
            if id_ != stream:
                continue
            options = self._subscriptions[stream].entry.options
            count, by = options.shards, options.by
            capture.add(
                events
                if count == 1
                else [e for e in events if shard_of(e.attributes.get(by), count) == int(number)]
            )
            capture.pump()

    def on_led(self, event: ShardLed) -> None:
        """This node leads a shard: what the former leader did not commit is appended."""
        self._pump(event.shard)

    def on_unled(self, event: ShardUnled) -> None:
        """Another node appends from now on, or the shard is destroyed."""
        if event.shard in self._hosts.hosted:
            self._pump(event.shard)
        else:
            self._let_go(event.shard)

    def _pump(self, shard: str) -> None:
        capture = self._shards.get(shard)
        if capture is not None:
            capture.pump()

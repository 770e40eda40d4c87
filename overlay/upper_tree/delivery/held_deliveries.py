"""Deliveries that wait at this node for others: one queue for each, all bounded.

Per node a queue, the oldest first. All queues together are bounded in bytes and in deliveries (an
event for a node is one). Where the bound is reached, the oldest deliveries for whichever node has
most are given up, and go on being until a sixteenth of the bound is free: so a node that much is
for takes nothing from the others, and looking for it is done once for many deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from matching import Interval
from overlay.bounded import BoundedDict
from overlay.machine import NodeId, Peer
from overlay.upper_tree.batches import weigh_whole
from overlay.upper_tree.delivery.constants import LOST_PEERS_MOST
from overlay.upper_tree.messages import Deliver

T = TypeVar("T")


class Reach(Enum):
    """The state of the way to a node, for which deliveries to it are held."""

    LOST = auto()  # it is out of reach
    CONGESTED = auto()  # too much waits on the link to it
    OPEN = auto()  # it is in reach, and what is held follows in pieces


class HeldNode:
    """The deliveries held for one node. Written by `HeldDeliveries` and `Holding`."""

    __slots__ = (
        *("attempt", "bytes", "events", "messages", "peer", "reach", "since", "tried_at"),
        "went_by_relay",
    )

    def __init__(self, peer: Peer, since: float) -> None:
        """`since`: when it was found out of reach (Port's seconds)."""
        self.peer = peer
        self.since = since
        self.reach = Reach.LOST
        self.messages: deque[tuple[Deliver, int, float]] = deque()
        """With their estimated bytes, and since when each is held."""
        self.bytes = 0
        self.events = 0
        self.attempt: Attempt | None = None
        self.tried_at = float("-inf")  # when the last attempt began, and …
        self.went_by_relay = False  # … whether it was by a relay

    def tries(self, relay: Peer | None, now: float) -> None:
        """Note that the oldest delivery is on its way by `relay`, or over the own link (None),
        since `now`."""
        self.attempt = Attempt(relay)
        self.tried_at = now
        self.went_by_relay = relay is not None

    def turns(self, reach: Reach, now: float) -> None:
        """Note how the node is reached from `now` on. If that changes, an attempt under way no
        longer counts."""
        if reach is not self.reach:
            self.reach = reach
            self.since = now
            self.attempt = None

    def came_back(self) -> None:
        """Note that the attempt under way has come back without an effect."""
        self.attempt = None


class Attempt(NamedTuple):
    """A delivery sent to an unreachable node in order to find out whether it is reachable again."""

    relay: Peer | None
    """None: it goes over this node's own link."""


class HeldDeliveries:
    """The queues of deliveries that this node holds, by the node they are for, within one bound for
    all."""

    def __init__(self, bytes_most: int, events_most: int) -> None:
        """`bytes_most` are estimated bytes of events; `events_most` deliveries."""
        self.bytes_most = bytes_most
        self.events_most = events_most
        self.bytes = 0
        self.events = 0
        self._nodes: BoundedDict[NodeId, HeldNode] = BoundedDict(LOST_PEERS_MOST)
        self.find = self._nodes.get
        """The record of a node, or None if nothing needs to be held for it."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._nodes

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def all(self) -> list[HeldNode]:
        """Return the records of all nodes, the first one that became unreachable first."""
        return list(self._nodes.values())

    @property
    def has_room(self) -> bool:
        """Whether one more node may be added without forgetting another one."""
        return len(self._nodes) < LOST_PEERS_MOST

    def add(self, peer: Peer, now: float) -> HeldNode:
        """A node is out of reach from now on."""
        held = self._nodes[peer.id] = HeldNode(peer, now)
        return held

    def forget(self, held: HeldNode) -> list[Deliver]:
        """Stop holding deliveries for this node. Return those that were held, the oldest first."""
        del self._nodes[held.peer.id]
        self.bytes -= held.bytes
        self.events -= held.events
        return [message for message, _, _ in held.messages]

    def append(self, held: HeldNode, message: Deliver, now: float) -> None:
        """Hold a delivery behind the others."""
        size = delivery_bytes(message)
        held.messages.append((message, size, now))
        self._count(held, size, len(message.events))

    def put_back(self, held: HeldNode, messages: Iterable[Deliver], now: float) -> None:
        """Hold deliveries, in order, that are older than all that is held."""
        for message in reversed(list(messages)):
            size = delivery_bytes(message)
            held.messages.appendleft((message, size, now))
            self._count(held, size, len(message.events))

    def take(self, held: HeldNode, now: float) -> Deliver:
        """Take the oldest delivery for a node out of its queue, which must not be empty; it says
        how long it was held."""
        message, size, since = held.messages.popleft()
        self._count(held, -size, -len(message.events))
        waited = int(1000 * (now - since))
        return replace(message, held=message.held + waited) if waited > 0 else message

    def take_earlier(self, held: HeldNode, incarnation: int) -> list[Deliver]:
        """Remove and return the deliveries for an earlier incarnation of the node, as far as that
        is known."""
        earlier = [each for each in held.messages if 0 < each[0].life < incarnation]
        if earlier:
            held.messages = deque(each for each in held.messages if each not in earlier)
        for message, size, _ in earlier:
            self._count(held, -size, -len(message.events))
        return [message for message, _, _ in earlier]

    def _count(self, held: HeldNode, size: int, events: int) -> None:
        held.bytes += size
        held.events += events
        self.bytes += size
        self.events += events

    def excess(self, now: float) -> Iterator[tuple[HeldNode, Deliver]]:
        """Remove and yield the deliveries that exceed the bound."""
        if self.bytes <= self.bytes_most and self.events <= self.events_most:
            return
        while self.bytes * 16 > self.bytes_most * 15 or self.events * 16 > self.events_most * 15:
            by_bytes = self.bytes * self.events_most > self.events * self.bytes_most
            most = max(
                (held for held in self._nodes.values() if held.messages),
                key=lambda held: held.bytes if by_bytes else held.events,
            )
            yield most, self.take(most, now)


def delivery_bytes(message: Deliver) -> int:
    """Estimated bytes of a delivery's events (`weigh_whole`)."""
    return sum(map(weigh_whole, message.events))


def split_by_tree(message: Deliver) -> list[Deliver]:
    """The same as several messages, so that all events of each came through one part of a tree."""
    if not message.apart:
        return [message]
    elsewhere = {place for _, _, some in message.apart for place in some}
    own = tuple([place for place in range(len(message.events)) if place not in elsewhere])
    found = [(message.attribute, message.interval, own), *message.apart]
    return [_part(message, *one) for one in found if one[-1]]


def _part(message: Deliver, tree: str, interval: Interval, places: Sequence[int]) -> Deliver:
    def pick(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple([items[place] for place in places]) if items else ()

    return msgspec.structs.replace(
        message,
        attribute=tree,
        interval=interval,
        events=pick(message.events),
        registrations=pick(message.registrations),
        onward=pick(message.onward),
        previous=pick(message.previous),
        found=pick(message.found),
        apart=(),
    )

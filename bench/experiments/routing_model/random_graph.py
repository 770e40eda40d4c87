"""The lower layer in the routing model: a random graph, access points, and the product's CRAWL.

Every node has a view of random others (out-degree `view`) and a table with as many random planted
attributes as it has room for, each with one random node of the attribute's tree: what gossip tends
to. What a node hosts itself it knows as well, as everywhere. All of it follows from the seed and
the node's number, so nodes are made when a walk first comes by. A walk is the product's (`Crawl`);
its messages are handed over at once. Hops are read from the trace records that it writes, one
data-plane message per attribute and step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from canopy.sim.scenario.range_load import attribute_name
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import (
    AccessPoint,
    Walk,
    WalkFailed,
    WalkFound,
    WalkHit,
    WalkMiss,
)
from overlay.machine import LocalEvent, Message, Peer, Timer
from overlay.settings import ViewSettings, WalkSettings

NODES_KEPT = 20_000
"""Nodes that are kept made, the oldest is forgotten first: some 15 kB each with 100 access points,
measured."""

Hosts = Callable[[int, Random], int | None]
"""A random node of an attribute's tree, None: it has no tree."""


def model_peer(number: int) -> Peer:
    """Node `number` as the machines see it."""
    return Peer(f"n{number}", "")


def peer_number(peer: Peer) -> int:
    """The node number of a peer that `model_peer` made."""
    return int(peer.id[1:])


@dataclass
class WalkResult:
    """How the walks of one event went: per attribute the entry found, and messages."""

    entries: dict[int, int] = field(default_factory=dict)
    hops: dict[int, int] = field(default_factory=dict)  # messages, a recovery's included
    blocked: int = 0


class ModelPort:
    """A `Port` without links, time and counters."""

    now = 0.0

    def __init__(self, layer: LowerLayer, number: int) -> None:
        self.me = model_peer(number)
        self.rng = layer.rng
        self._layer = layer

    def send(self, peer: Peer, message: Message) -> None:
        """Put the message into the lower layer's queue."""
        self._layer.queue.append((self.me, peer, message))

    def emit(self, event: LocalEvent) -> None:
        """Only the ends of walks matter here."""
        self._layer.ended(event)

    def trace(self, kind: str, **fields: Any) -> None:
        """Count the hops of walks; other records are dropped."""
        self._layer.step(kind, fields)

    def count(self, name: str, amount: int = 1) -> None:
        """Does nothing: counters are not kept in the model."""

    def set_timer(self, delay: float, timer: Timer) -> None:
        """Does nothing: there is no time in the model."""

    def cancel_timer(self, timer: Timer) -> None:
        """Does nothing: there is no time in the model."""


class FixedView:
    """The part of a view that `Crawl` uses."""

    def __init__(self, peers: tuple[Peer, ...]) -> None:
        self._peers = peers

    def peers(self) -> tuple[Peer, ...]:
        """All neighbours in the fixed graph."""
        return self._peers


class LowerLayer:
    """All nodes' views and access points, made when they are first used."""

    def __init__(
        self,
        seed: str,
        nodes: int,
        planted: Sequence[int],
        host: Hosts,
        own: Mapping[int, Sequence[int]],
        view: ViewSettings,
        walk: WalkSettings,
    ) -> None:
        """`planted`: the attributes that have a tree; `own`: those of which a node hosts a part."""
        self.rng = Random(f"{seed}/walks")
        self.nodes = nodes
        self.view = view
        self.queue: deque[tuple[Peer, Peer, Message]] = deque()
        self._seed = seed
        self._planted = planted
        self._host = host
        self._own = own
        self._walk = walk
        self._made: dict[int, Crawl] = {}
        self._result = WalkResult()

    def neighbours(self, number: int) -> list[int]:
        """The view of a node: random others."""
        rng = Random(f"{self._seed}/view/{number}")
        count = min(self.view.size, self.nodes - 1)
        picked = rng.sample(range(self.nodes - 1), count)
        return [other + (other >= number) for other in picked]

    def walk(self, source: int, attributes: Sequence[int]) -> WalkResult:
        """The product's walks for these attributes, each on its own as in the paper."""
        self._result = WalkResult()
        crawl = self._node(source)
        for attribute in attributes:  # one walk each: the paper's, not one for all (C3, Here)
            crawl.walk([attribute_name(attribute)])
        while self.queue:
            sender, receiver, message = self.queue.popleft()
            at = self._node(peer_number(receiver))
            if type(message) is Walk:
                at.on_walk(sender, message)
            elif type(message) is WalkHit:
                at.on_walk_hit(sender, message)
            elif type(message) is WalkMiss:
                at.on_walk_miss(sender, message)
        return self._result

    # --- what the ports report ---

    def step(self, kind: str, fields: dict[str, Any]) -> None:
        """Note one trace record of a walk."""
        if kind in ("walk_hop", "walk_recovered"):
            attribute = int(fields["attribute"][1:])
            self._result.hops[attribute] = self._result.hops.get(attribute, 0) + 1
        elif kind == "walk_blocked":
            self._result.blocked += 1

    def ended(self, event: LocalEvent) -> None:
        """Note which access point a walk found, or that it found none."""
        if isinstance(event, WalkFound):
            point = event.point
            self._result.entries[int(point.attribute[1:])] = peer_number(point.peer)
        else:
            assert isinstance(event, WalkFailed)

    # --- nodes ---

    def _node(self, number: int) -> Crawl:
        crawl = self._made.get(number)
        if crawl is None:
            crawl = self._made[number] = self._make(number)
            if len(self._made) > NODES_KEPT:
                del self._made[next(iter(self._made))]
        return crawl

    def _make(self, number: int) -> Crawl:
        port: Any = ModelPort(self, number)
        table = AccessPoints(port, self.view)
        rng = Random(f"{self._seed}/table/{number}")
        count = min(self.view.access_points, len(self._planted))
        for attribute in rng.sample(self._planted, count):
            host = self._host(attribute, rng)
            if host is not None and host != number:
                table.learn(AccessPoint(attribute_name(attribute), model_peer(host), (1, 1), 0))
        mine = [attribute_name(attribute) for attribute in self._own.get(number, ())]
        table.set_local([AccessPoint(attribute, port.me, (1, 1), 0) for attribute in mine])
        view: Any = FixedView(tuple(model_peer(other) for other in self.neighbours(number)))
        return Crawl(port, self._walk, view, table)

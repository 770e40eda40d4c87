"""Machines of the attribute trees without links below them: one node alone, or several joined by
FIFO links that deliver only when the test says so, in any interleaving."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from matching import compile_selector
from overlay.chord.events import Committed, OwnerFound, OwnerUnknown, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.client import Event, Gathered
from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.machine import Key, LocalEvent, Message, Peer, Timer
from overlay.settings import Settings
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.messages import Registration, ServingBeat, ServingReply
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registry import Registry
from overlay.upper_tree.owner.restoration import TreeRestoration
from overlay.upper_tree.summaries.cache_holders import CacheHolders
from overlay.upper_tree.summaries.summary_server import SummaryServer
from tests.support.fake_port import FakePort

T = TypeVar("T")
KEY = "8" * 40


def one_replica(chosen: Settings) -> Settings:
    """The same, but each virtual node has one host."""
    return msgspec.structs.replace(chosen, tree=msgspec.structs.replace(chosen.tree, replicas=1))


def peer(name: str) -> Peer:
    return Peer(name, f"{name}:1")


def registration(
    id_: str, attribute: str, selector: str, subscriber: Peer, counting: bool = False
) -> Registration:
    """What a registrar would make of a selector with one conjunction."""
    (conjunction,) = compile_selector(selector).conjunctions
    if counting:
        constraint = conjunction.constraints[attribute]
        text, where = constraint.text, constraint.hull
    else:
        text, where = conjunction.text, dict(conjunction.pivots())[attribute]
    return Registration(id_, attribute, subscriber, text, where)


def event(sequence: int, publisher: str = "pub", incarnation: int = 1, **attributes: Any) -> Event:
    return Event(publisher, incarnation, sequence, 0.0, attributes)


class TreePort(FakePort):
    """A node: local events and what it sends to itself run in the same turn, as in a Node."""

    def __init__(self, name: str = "me", net: TreeNet | None = None) -> None:
        super().__init__(name)
        self.net = net
        self.replies: list[tuple[int, Any]] = []
        self.watched: dict[str, tuple[Peer, ...]] = {}
        self._todo: deque[LocalEvent | Message] = deque()

    def watch(self, group: str, peers: Sequence[Peer]) -> None:
        self.watched[group] = tuple(peers)

    def reply(self, client: int, reply: Any) -> None:
        self.replies.append((client, reply))

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        for client, where in places.items():
            self.reply(client, Gathered.of(events, where))

    def store(self, *records: bytes, anew: bool = False) -> None:
        raise AssertionError("the trees store nothing yet")

    def send(self, peer: Peer, message: Message) -> None:
        super().send(peer, message)
        if peer.id == self.me.id:
            self._todo.append(message)
        elif self.net is not None:
            self.net.carry(self.me.id, peer.id, message)

    def emit(self, event: LocalEvent) -> None:
        super().emit(event)
        self._todo.append(event)

    def hear(self, what: Message | LocalEvent | Timer, sender: Peer | None = None) -> None:
        super().hear(what, sender)
        self.turn()

    def turn(self) -> None:
        """All that is still to be done in this turn; to be called after a machine's method."""
        while self._todo:
            what = self._todo.popleft()
            super().hear(what, self.me if isinstance(what, Message) else None)

    def sent_to(self, kind: type[T]) -> list[tuple[str, T]]:
        """(receiver, message) of a type, sent so far; forgets them."""
        found: list[tuple[str, T]] = [
            (to.id, message) for to, message in self.sent if isinstance(message, kind)
        ]
        self.sent = [each for each in self.sent if not isinstance(each[1], kind)]
        return found

    def answers(self, kind: type[T]) -> list[T]:
        """Replies of a type to any client; forgets them."""
        found = [reply for _, reply in self.replies if isinstance(reply, kind)]
        self.replies = [each for each in self.replies if not isinstance(each[1], kind)]
        return found


class TreeNet:
    """Nodes by name and FIFO links between them. Nothing moves by itself."""

    def __init__(self) -> None:
        self.nodes: dict[str, TreePort] = {}
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.held: dict[str, None] = {}
        """Nodes whose links hold everything back: they are paused, or slow to reach."""

    def node(self, name: str) -> TreePort:
        port = self.nodes[name] = TreePort(name, self)
        return port

    def carry(self, source: str, target: str, message: Message) -> None:
        self.links.setdefault((source, target), deque()).append(message)

    def busy(self) -> list[tuple[str, str]]:
        """Links with something under way."""
        return [
            link
            for link, messages in self.links.items()
            if messages and not any(name in self.held for name in link)
        ]

    def deliver(self, link: tuple[str, str]) -> None:
        """The oldest message of one link."""
        message = self.links[link].popleft()
        if link[1] in self.nodes:
            self.nodes[link[1]].hear(message, peer(link[0]))

    def flush(self, most: int = 10_000) -> None:
        """Deliver until nothing is under way."""
        for _ in range(most):
            links = self.busy()
            if not links:
                return
            self.deliver(links[0])
        raise AssertionError("the network does not come to rest")

    def cut(self, one: str, two: str, left: bool = False) -> None:
        """The link is lost (`two` has `left`), with what is under way; both ends hear it."""
        for source, target in ((one, two), (two, one)):
            lost = tuple(self.links.pop((source, target), ()))
            if source in self.nodes:
                self.nodes[source].hear(LinkDown(peer(target), "cut", left, lost))

    def join(self, one: str, two: str) -> None:
        """The link is there again, as a new session."""
        for source, target in ((one, two), (two, one)):
            self.nodes[source].hear(LinkUp(peer(target), True))

    def advance(self, seconds: float) -> None:
        for port in self.nodes.values():
            port.advance(seconds)


class FakeClusters:
    """The own cluster as a test describes it; the log commits when the test says so."""

    def __init__(self, port: TreePort, cluster: Cluster | None) -> None:
        self.port = port
        self.cluster = cluster
        self.log: list[bytes] = []
        self.copied: list[bytes] | None = None
        self.transferred: list[bytes] | None = None
        self.released: list[str] = []
        self.split_at: list[Key] = []
        self.giving_away: Cluster | None = None
        self.wanted = 0
        self.preferred: list[str] = []
        self.followed = True
        self.led_for = 0.0
        self.lease_left = 0.8
        self.unheard: tuple[str, ...] = ()
        self.uncopied = 1 << 60  # the first entry that an observer lacks
        self.whole: tuple[Key, ...] = ()  # copies of other clusters that lack nothing
        self.forgotten: list[Key] = []
        self.outranked: list[int] = []

    def outrank(self, epoch: int) -> None:
        self.outranked.append(epoch)

    def is_silent(self, node: str) -> bool:
        return node in self.unheard

    @property
    def is_primary(self) -> bool:
        return self.cluster is not None and self.cluster.primary.id == self.port.me.id

    @property
    def is_followed(self) -> bool:
        return self.is_primary and self.followed

    def owns(self, key: Key) -> bool:
        cluster = self.cluster
        if cluster is None or not self.is_primary or not cluster.owns(key):
            return False
        return self.giving_away is None or not self.giving_away.owns(key)

    def append(self, entry: bytes) -> int:
        assert self.is_primary, "only the primary writes"
        self.log.append(entry)
        return len(self.log) - 1

    def commit(self) -> None:
        """The standby has everything."""
        self.port.hear(Committed(KEY, len(self.log)))

    def append_all(self, entries: Sequence[bytes]) -> int:
        return [self.append(entry) for entry in entries][-1]

    def is_copied(self, index: int) -> bool:
        return index < self.uncopied

    def is_whole(self, key: Key) -> bool:
        return key in self.whole

    def forget_log(self, key: Key) -> None:
        self.forgotten.append(key)

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        self.copied = list(entries)

    def store_snapshot(self, entries: Sequence[bytes]) -> None:
        raise AssertionError("there is no disk")

    def transfer(self, entries: Sequence[bytes]) -> None:
        self.transferred = list(entries)

    def release(self, peer: Peer) -> None:
        self.released.append(peer.id)

    def want(self, members: int) -> None:
        self.wanted = members

    def prefer(self, peers: Sequence[Peer]) -> None:
        self.preferred = [peer.id for peer in peers]

    def request_split(self, middle: Key) -> None:
        self.split_at.append(middle)


class FakeRing:
    """Owners as the test says: `known` at once, others when `answer` is called."""

    def __init__(self, port: TreePort) -> None:
        self.port = port
        self.clusters: list[Cluster] = []
        self.asked: list[Key] = []
        self.collected = 0

    def owner(self, key: Key) -> Cluster | None:
        return next((c for c in reversed(self.clusters) if c.owns(key)), None)

    def find(self, key: Key) -> None:
        self.asked.append(key)

    def learn(self, cluster: Cluster) -> None:
        self.clusters.append(cluster)

    def walk(self) -> None:
        self.collected += 1

    def answer(self, attribute: str, cluster: Cluster | None) -> None:
        key = attribute_key(attribute)
        if cluster is None:
            self.port.hear(OwnerUnknown(key))
        else:
            self.learn(cluster)
            self.port.hear(OwnerFound(key, cluster, 2))


def cluster_of(
    primary: str, *brokers: str, standby: str | None = None, version: tuple[int, int] = (1, 1)
) -> Cluster:
    """A cluster that owns the whole ring."""
    return Cluster(
        "ring",
        KEY,
        KEY,
        version,
        peer(primary),
        None if standby is None else peer(standby),
        tuple(peer(name) for name in brokers),
    )


class OwnerNode:
    """The owner's machines (owner, registry, balance) at the primary, and a host beside them."""

    def __init__(
        self, port: TreePort, settings: Settings, cluster: Cluster, primary: bool = True
    ) -> None:
        self.port = port
        self.clusters = FakeClusters(port, cluster)
        self.ring = FakeRing(port)
        self.owner = Owner(port, settings, self.clusters, self.ring)
        self.restoration = TreeRestoration(port, self.owner)
        self.cache_holders = CacheHolders(port, settings, self.owner, self.restoration)
        self.summaries = SummaryServer(
            port, settings, self.owner, self.cache_holders, self.restoration
        )
        self.registry = Registry(port, settings, self.owner, self.summaries, self.restoration)
        self.rebalance = Rebalance(port, settings, self.owner)
        self.hosting = HostNode(port, settings).hosting
        port.add(self.owner, self.owner.hosts, self.restoration, self.cache_holders)
        port.add(self.summaries, self.registry, self.rebalance)
        if primary:
            port.hear(RoleChanged(cluster, "primary"))


class HostNode:
    """A host's machine."""

    def __init__(self, port: TreePort, settings: Settings) -> None:
        self.port = port
        self.access_points = AccessPoints(port, settings.view)
        self.ring = FakeRing(port)
        self.hosting = Hosting(port, settings, self.access_points, self.ring)
        port.add(self.hosting)

    def lease(self) -> HostNode:
        """An owner of everything counts on it: it may serve for its whole term."""
        owner, key = peer("owner"), "0" * 40
        for number in (1, 2):
            self.port.hear(ServingBeat(key, key, 1_000_000, number, number - 1, 4.0), owner)
        self.port.take(ServingReply)
        return self

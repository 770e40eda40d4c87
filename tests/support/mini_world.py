"""Many Ring + Clusters machines in one process: FIFO links with random delays, a heap, no IO.

A registry of the test's own stands above each node: it keeps the list of entries that the log
means, as the real one keeps trees. Every message is delivered; a crashed or departed node makes its
partners' links go down after a while, with what was lost named, as overlay/links does.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from canopy.sim.world.scheduler import Scheduler
from overlay.chord.clusters import Clusters
from overlay.chord.events import OwnerFound, OwnerUnknown, RingWalked
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.events import RingHintReceived
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, LocalEvent, Message, Named, NodeId, Peer, Timer
from overlay.settings import ClusterSettings, ElectionSettings, RingSettings
from tests.support.fake_registry import FakeRegistry


class MiniPort:
    """A Port that puts everything into the world's heap."""

    def __init__(self, world: MiniWorld, me: Peer, seed: int) -> None:
        self.world = world
        self.me = me
        self.rng = Random(seed)
        self.queue: list[LocalEvent] = []
        self.timers: dict[Timer, object] = {}
        self.counters: dict[str, int] = {}
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.watched: dict[str, tuple[Peer, ...]] = {}

    @property
    def now(self) -> float:
        return self.world.now

    def send(self, peer: Peer, message: Message) -> None:
        self.world.send(self.me, peer, message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        token = self.timers[timer] = object()  # another one for each time that it is set
        self.world.after(delay, self.world.fire, self.me.id, timer, token)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def emit(self, event: LocalEvent) -> None:
        self.queue.append(event)

    def watch(self, group: str, peers: Sequence[Peer]) -> None:
        self.watched[group] = tuple(peers)

    def store(self, *records: bytes, anew: bool = False) -> None:
        disk = self.world.disks.setdefault(self.me.id, [])
        if anew:
            disk.clear()
        disk += records

    def trace(self, kind: str, **fields: Any) -> None:
        self.traces.append((kind, fields))

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        return events

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount


class FakeView:
    """Knows some of the others; who is idle it is told at once."""

    def __init__(self, world: MiniWorld, me: Peer) -> None:
        self.world = world
        self.me = me
        self.neighbours: list[Peer] = []
        self.idle = True
        self.hint: RingHint | None = None

    def peers(self) -> tuple[Peer, ...]:
        nodes, cut = self.world.nodes, self.world.cut
        return tuple(p for p in self.neighbours if p.id in nodes and (self.me.id, p.id) not in cut)

    def idle_peers(self) -> tuple[Peer, ...]:
        return tuple(p for p in self.peers() if self.world.nodes[p.id].view.idle)

    def set_idle(self, idle: bool) -> None:
        self.idle = idle

    def advertise_ring(self, hint: RingHint | None) -> None:
        self.hint = hint

    def forget_ring(self, ring: str) -> None:
        pass


class MiniNode:
    """One node: two machines and a registry."""

    def __init__(
        self,
        world: MiniWorld,
        number: int,
        founder: bool,
        ring: RingSettings,
        cluster: ClusterSettings,
    ) -> None:
        self.number = number
        self.peer = Peer(f"{number:016x}", f"host:{number}")
        self.port = MiniPort(world, self.peer, world.rng.getrandbits(32))
        self.view = FakeView(world, self.peer)
        self.ring = Ring(self.port, ring)
        restored = tuple(world.disks.get(self.peer.id, ()))
        self.clusters = Clusters(
            self.port, cluster, self.ring, self.view, founder, world.election, restored
        )
        self.registry = FakeRegistry(self)
        self.events: list[LocalEvent] = []
        self.table: dict[type, list[Any]] = {}
        for machine in (self.ring, self.clusters):
            for kind, handler in machine.handlers().items():
                listeners = self.table.setdefault(kind, [])
                assert not listeners or issubclass(kind, LocalEvent), f"two owners of {kind}"
                listeners.append(handler)

    def settle(self) -> None:
        """Hand round what was emitted until nothing is left."""
        while self.port.queue:
            event = self.port.queue.pop(0)
            self.events.append(event)
            for handler in self.table.get(type(event), ()):
                handler(event)
            self.registry.on_event(event)

    def answers(self, key: Key) -> list[OwnerFound | OwnerUnknown]:
        return [e for e in self.events if isinstance(e, OwnerFound | OwnerUnknown) and e.key == key]

    def collected(self) -> list[RingWalked]:
        return [e for e in self.events if isinstance(e, RingWalked)]


class MiniWorld(Scheduler):
    """The heap, the links, and questions about the whole."""

    DEAD_AFTER = 1.0

    def __init__(
        self,
        seed: int = 0,
        ring: RingSettings | None = None,
        cluster: ClusterSettings | None = None,
        delay: float = 0.05,
        election: ElectionSettings | None = None,
    ) -> None:
        super().__init__()
        self.election = election or ElectionSettings()
        self.rng = Random(seed)
        self.delay = delay
        self.ring = ring or RingSettings()
        self.cluster = cluster or ClusterSettings()
        self.nodes: dict[NodeId, MiniNode] = {}
        self.cut: dict[tuple[NodeId, NodeId], None] = {}  # links that carry nothing
        self.links: dict[tuple[NodeId, NodeId], float] = {}  # open; last arrival of the direction
        self.disks: dict[NodeId, list[bytes]] = {}
        self.sent: list[tuple[NodeId, NodeId, Message]] = []
        self.watchers: list[Any] = []  # called after every step
        self._made = 0

    # -- making ----------------------------------------------------------------------------------

    def add(self, founder: bool = False, degree: int | None = None) -> MiniNode:
        self._made += 1
        node = MiniNode(self, self._made, founder, self.ring, self.cluster)
        others = list(self.nodes.values())
        if degree is not None and len(others) > degree:
            others = self.rng.sample(others, degree)
        for other in others:
            node.view.neighbours.append(other.peer)
            other.view.neighbours.append(node.peer)
        self.nodes[node.peer.id] = node
        node.ring.start()
        node.clusters.start()
        node.settle()
        return node

    def restart(self, old: MiniNode, wiped: bool = False) -> MiniNode:
        """A crashed node is started again, with what its disk has."""
        if wiped:
            self.disks.pop(old.peer.id, None)
        node = MiniNode(self, old.number, False, self.ring, self.cluster)
        node.view.neighbours += old.view.neighbours
        self.nodes[node.peer.id] = node
        node.ring.start()
        node.clusters.start()
        node.settle()
        for other in node.view.peers():
            self.after(0.1, self.deliver, other.id, LinkUp(node.peer, True))
        return node

    def gossip(self) -> None:
        """Everybody hears the hints of its neighbours."""
        for node in list(self.nodes.values()):
            for peer in node.view.peers():
                hint = self.nodes[peer.id].view.hint
                if hint is not None:
                    self._give(node, RingHintReceived(hint))

    def crash(self, node: MiniNode, left: bool = False) -> None:
        """The node is gone; its partners notice after a while."""
        del self.nodes[node.peer.id]
        for one, other in list(self.links):
            if other == node.peer.id:
                self._break(one, node.peer, left, ())
        self.links = {pair: at for pair, at in self.links.items() if node.peer.id not in pair}

    def cut_link(self, one: MiniNode, other: MiniNode) -> None:
        for a, b in ((one, other), (other, one)):
            self.cut[(a.peer.id, b.peer.id)] = None
            self.links.pop((a.peer.id, b.peer.id), None)
            self._break(a.peer.id, b.peer, False, ())

    def heal_link(self, one: MiniNode, other: MiniNode) -> None:
        for a, b in ((one, other), (other, one)):
            self.cut.pop((a.peer.id, b.peer.id), None)
            # A new session: up follows down, however soon the link heals.
            self.after(self.DEAD_AFTER, self.deliver, a.peer.id, LinkUp(b.peer, True))

    # -- running ---------------------------------------------------------------------------------

    def fire(self, at: NodeId, timer: Timer, token: object) -> None:
        """A timer is due at a node, unless it was cancelled or set anew."""
        node = self.nodes.get(at)
        if node is not None and node.port.timers.get(timer) is token:
            del node.port.timers[timer]
            self.deliver(at, timer)

    def deliver(
        self, at: NodeId, what: Message | LocalEvent | Timer, sender: Peer | None = None
    ) -> None:
        """Hand a node a message, an event or a timer; then call the watchers."""
        node = self.nodes.get(at)
        if node is None:
            return
        if sender is None or (sender.id, at) not in self.cut:
            self._give(node, what, sender)
        for watcher in self.watchers:
            watcher()

    def send(self, sender: Peer, peer: Peer, message: Message) -> None:
        self.sent.append((sender.id, peer.id, message))
        pair = (sender.id, peer.id)
        if sender.id != peer.id and (pair in self.cut or peer.id not in self.nodes):
            self._break(sender.id, peer, False, (message,))
            return
        at = self.now + self.rng.random() * self.delay
        at = max(at, self.links.get(pair, 0.0))  # FIFO
        self.links[pair] = at
        self.links.setdefault((peer.id, sender.id), 0.0)
        self.after(at - self.now, self.deliver, peer.id, message, sender)

    def run(self, seconds: float, gossip_every: float = 1.0) -> None:
        until = self.now + seconds
        while self.now < until:
            step = min(until, self.now + gossip_every)
            self.run_to(step)
            self.gossip()

    def _give(self, node: MiniNode, what: Any, sender: Peer | None = None) -> None:
        for handler in node.table.get(type(what), ()):
            if sender is None:
                handler(what)
            else:
                handler(sender, what)
        node.settle()

    def _break(self, at: NodeId, peer: Peer, left: bool, lost: tuple[Message, ...]) -> None:
        event = LinkDown(peer, "gone", left, lost)
        self.after(0.01 if left else self.DEAD_AFTER, self.deliver, at, event)

    # -- asking ----------------------------------------------------------------------------------

    def primaries(self) -> list[MiniNode]:
        """All that lead a cluster, in ring order."""
        leading = [n for n in self.nodes.values() if n.clusters.is_primary]
        return sorted(leading, key=lambda n: n.clusters.cluster.key)  # type: ignore[union-attr]

    def arcs(self) -> list[Cluster]:
        return [n.clusters.cluster for n in self.primaries() if n.clusters.cluster is not None]

    def owners(self, key: Key) -> list[MiniNode]:
        """Who serves the key: never more than one, and at rest exactly one."""
        return [n for n in self.nodes.values() if n.clusters.owns(key)]

    def node(self, node: NodeId) -> MiniNode:
        return self.nodes[node]

    def ring_is_whole(self) -> None:
        """At rest: arcs fit together, pointers are right, lists are as long as they can be."""
        arcs = self.arcs()
        for at, node in enumerate(self.primaries()):
            own, pointers = arcs[at], node.ring.state.pointers
            before = arcs[at - 1]
            assert own.start == before.key, "a gap or an overlap between two arcs"
            following = [arcs[(at + 1 + i) % len(arcs)] for i in range(len(arcs) - 1)]
            following = following[: self.ring.successors]
            assert [(c.key, c.primary.id) for c in pointers.successors] == [
                (c.key, c.primary.id) for c in following
            ]
            if len(arcs) > 1:
                assert pointers.predecessor is not None
                assert pointers.predecessor.key == before.key
                assert pointers.predecessor.primary.id == before.primary.id

    def members_agree(self) -> None:
        """At rest: everybody is what the description of its cluster says."""
        described: dict[NodeId, Key] = {}
        for cluster in self.arcs():
            for member in cluster.members():
                assert member.id not in described, "a node serves in two clusters"
                described[member.id] = cluster.key
        for node in self.nodes.values():
            own = node.clusters.cluster
            assert described.get(node.peer.id) == (None if own is None else own.key)
            if own is not None:
                assert own == self.nodes[own.primary.id].clusters.cluster

    def copies_agree(self) -> None:
        """At rest: every voter holds what the primary holds, and all of it is committed."""
        for node in self.primaries():
            cluster = node.clusters.cluster
            assert cluster is not None
            assert not node.registry.written, "an entry waits for ever"
            for voter in node.clusters.log.voters:
                assert self.nodes[voter.id].registry.entries == node.registry.entries
                assert self.nodes[voter.id].clusters.log.position == node.clusters.log.position

    def write(self, key: Key, text: str) -> bool:
        """Write where the key is served, if it is."""
        return any(node.registry.write(key, text) for node in self.owners(key))


def middle_of(cluster: Cluster) -> Key:
    """The key halfway along the arc."""
    start, end, ring = int(cluster.start, 16), int(cluster.key, 16), 1 << 160
    length = (end - start) % ring or ring
    return f"{(start + length // 2) % ring:040x}"


UNRECOVERED = ElectionSettings(fork_after=10_000.0)
"""No cluster goes on without its majority, as if P5 were not there."""


def grown(
    seed: int,
    nodes: int,
    clusters: int,
    size: int = 3,
    degree: int = 12,
    election: ElectionSettings | None = None,
) -> MiniWorld:
    """A world at rest with that many clusters, or as many as the nodes allow."""
    world = MiniWorld(seed, cluster=ClusterSettings(size=size), election=election)
    world.add(founder=True)
    for _ in range(nodes - 1):
        world.add(degree=degree)
    world.run(5)
    for _ in range(40):
        leading = world.primaries()
        if len(leading) >= clusters:
            break
        room = clusters - len(leading)
        widest = sorted(leading, key=lambda n: -width(n.clusters.cluster))[:room]
        for node in widest:
            assert node.clusters.cluster is not None
            node.clusters.request_split(middle_of(node.clusters.cluster))
        world.run(6)
    world.run(4)
    return world


def width(cluster: Cluster | None) -> int:
    """Keys in the arc."""
    assert cluster is not None
    return (int(cluster.key, 16) - int(cluster.start, 16)) % (1 << 160) or 1 << 160

"""Nodes with a ring and clusters in a `World`, and questions about the whole.

A registry of the test's own stands above each node: it keeps the list of entries that the log
means, as the real one keeps trees. Messages take up to `delay` seconds and are never lost on an
open link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from canopy.sim.world.signer import SimulatedSigner
from overlay.chord.clusters import Clusters
from overlay.chord.events import OwnerFound, OwnerUnknown, RingWalked
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.links.events import MessageDropped
from overlay.lower_random.messages import RingHint, RingHintReceived
from overlay.machine import Key, LocalEvent, Message, NodeId, Peer
from overlay.settings import ClusterSettings, ElectionSettings, RingSettings
from tests.support.fake_registry import FakeRegistry
from tests.support.world import World


class FakeView:
    """Knows some of the others, and at once which of them are idle."""

    def __init__(self, world: RingWorld, me: Peer) -> None:
        self.world = world
        self.me = me
        self.neighbours: list[Peer] = []
        self.idle = True
        self.hint: RingHint | None = None

    def peers(self) -> tuple[Peer, ...]:
        members, severed = self.world.members, self.world.severed
        return tuple(
            p for p in self.neighbours if p.id in members and (self.me.id, p.id) not in severed
        )

    def idle_peers(self) -> tuple[Peer, ...]:
        return tuple(p for p in self.peers() if self.world.members[p.id].view.idle)

    def set_idle(self, idle: bool) -> None:
        self.idle = idle

    def advertise_ring(self, hint: RingHint | None) -> None:
        self.hint = hint

    def forget_ring(self, ring: str) -> None:
        pass


class RingNode:
    """One node: two machines and a registry."""

    def __init__(self, world: RingWorld, number: int, founder: bool) -> None:
        self.number = number
        name = f"{number:016x}"
        self.port = world.node(name, f"host:{number}", Random(world.rng.getrandbits(32)))
        self.peer = self.port.me
        self.view = FakeView(world, self.peer)
        signer = SimulatedSigner(name, "rings") if world.signed else None
        self.ring = Ring(self.port, world.ring, signer=signer)
        restored = tuple(world.disks.get(name, ()))
        self.clusters = Clusters(
            self.port, world.cluster, self.ring, self.view, founder, world.election, restored
        )
        self.registry = FakeRegistry(self.port, self.clusters)
        self.port.add(self.ring, self.clusters, self.registry)

    @property
    def events(self) -> list[LocalEvent]:
        """What its machines emitted."""
        return self.port.emitted

    def answers(self, key: Key) -> list[OwnerFound | OwnerUnknown]:
        return [e for e in self.events if isinstance(e, OwnerFound | OwnerUnknown) and e.key == key]

    def collected(self) -> list[RingWalked]:
        return self.port.of(RingWalked)


class RingWorld(World):
    """Nodes by number, neighbours at random, gossip of ring hints once a second."""

    def __init__(
        self,
        seed: int = 0,
        ring: RingSettings | None = None,
        cluster: ClusterSettings | None = None,
        delay: float = 0.05,
        election: ElectionSettings | None = None,
        signed: bool = False,
    ) -> None:
        """`signed`: nodes have keys."""
        super().__init__(seed, (0.0, delay), now=0.0)
        self.signed = signed
        self.election = election or ElectionSettings()
        self.ring = ring or RingSettings()
        self.cluster = cluster or ClusterSettings()
        self.members: dict[NodeId, RingNode] = {}
        self.drops: Callable[[Peer, Peer, Message], bool] = lambda *_: False
        """Whether a link has no room for a message, by sender and receiver; its sender hears so."""
        self.dropped = 0
        self._made = 0

    def carry(self, sender: Peer, receiver: Peer, message: Message) -> None:
        """Take a message, if its link has room for it."""
        if self.drops(sender, receiver, message):
            self.dropped += 1
            self.nodes[sender.id].emit(MessageDropped(receiver, message, "queue full"))
        else:
            super().carry(sender, receiver, message)

    def add(self, founder: bool = False, degree: int | None = None) -> RingNode:
        """Start a node; `degree` of the others, or all, are its neighbours."""
        self._made += 1
        node = RingNode(self, self._made, founder)
        others = list(self.members.values())
        if degree is not None and len(others) > degree:
            others = self.rng.sample(others, degree)
        for other in others:
            node.view.neighbours.append(other.peer)
            other.view.neighbours.append(node.peer)
        return self._start(node)

    def restart(self, old: RingNode, wiped: bool = False) -> RingNode:
        """A crashed node is started again, with what its disk has."""
        if wiped:
            self.disks.pop(old.peer.id, None)
        node = RingNode(self, old.number, False)
        node.view.neighbours += old.view.neighbours
        self._start(node)
        for other in node.view.peers():
            self.after(0.1, self.begin_session, other.id, node.peer.id)
        return node

    def crash(self, node: RingNode, left: bool = False) -> None:
        """The node is gone; its partners notice after a while."""
        del self.members[node.peer.id]
        self.kill(node.peer.id, left)

    def cut_link(self, one: RingNode, other: RingNode) -> None:
        self.sever(one.peer.id, other.peer.id)

    def heal_link(self, one: RingNode, other: RingNode) -> None:
        self.heal(one.peer.id, other.peer.id)

    def gossip(self) -> None:
        """Every node hears the hints of its neighbours."""
        for node in list(self.members.values()):
            for peer in node.view.peers():
                hint = self.members[peer.id].view.hint
                if hint is not None:
                    node.port.hear(RingHintReceived(hint))

    def run(self, seconds: float, gossip_every: float = 1.0) -> None:
        until = self.now + seconds
        while self.now < until:
            self.run_to(min(until, self.now + gossip_every))
            self.gossip()

    def _start(self, node: RingNode) -> RingNode:
        self.members[node.peer.id] = node
        node.ring.start()
        node.clusters.start()
        node.port.turn()
        return node

    # -- asking ----------------------------------------------------------------------------------

    def leading(self) -> list[RingNode]:
        """All that lead a cluster: what a check asks after every step."""
        return [n for n in self.members.values() if n.clusters.is_primary]

    def primaries(self) -> list[RingNode]:
        """All that lead a cluster, in ring order."""
        return sorted(self.leading(), key=lambda n: n.clusters.cluster.key)  # type: ignore[union-attr]

    def arcs(self) -> list[Cluster]:
        return [n.clusters.cluster for n in self.primaries() if n.clusters.cluster is not None]

    def owners(self, key: Key) -> list[RingNode]:
        """Who serves the key: never more than one, and at rest exactly one."""
        return [n for n in self.members.values() if n.clusters.owns(key)]

    def member(self, node: NodeId) -> RingNode:
        return self.members[node]

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
        """At rest: each node is what the description of its cluster says."""
        described: dict[NodeId, Key] = {}
        for cluster in self.arcs():
            for member in cluster.members():
                assert member.id not in described, "a node serves in two clusters"
                described[member.id] = cluster.key
        for node in self.members.values():
            own = node.clusters.cluster
            assert described.get(node.peer.id) == (None if own is None else own.key)
            if own is not None:
                assert own == self.members[own.primary.id].clusters.cluster

    def copies_agree(self) -> None:
        """At rest: every voter holds what the primary holds, and all of it is committed."""
        for node in self.primaries():
            cluster = node.clusters.cluster
            assert cluster is not None
            assert not node.registry.written, "an entry waits for ever"
            for voter in node.clusters.log.voters:
                assert self.members[voter.id].registry.entries == node.registry.entries
                assert self.members[voter.id].clusters.log.position == node.clusters.log.position

    def write(self, key: Key, text: str) -> bool:
        """Write where the key is served, if it is."""
        return any(node.registry.write(key, text) for node in self.owners(key))


class ServedOnce:
    """A check for `World.checks`: at no moment do two nodes serve the same of these keys. A node
    serves nothing beyond the arc of the cluster that it leads (`owners` asks all nodes), so only
    keys in several arcs are looked at."""

    def __init__(self, world: RingWorld, keys: Sequence[Key]) -> None:
        self._world = world
        self._keys = keys
        self._arcs: list[Cluster | None] = []
        self._in_several: list[Key] = []

    def __call__(self) -> None:
        self.look(self._world.leading())

    def look(self, nodes: list[RingNode]) -> None:
        """The check, where the caller knows who leads."""
        leading = [node.clusters for node in nodes]
        arcs = [clusters.cluster for clusters in leading]
        if arcs != self._arcs:
            self._arcs = arcs
            self._in_several = [
                key
                for key in self._keys
                if sum(arc is not None and arc.owns(key) for arc in arcs) > 1
            ]
        for key in self._in_several:
            assert sum(clusters.owns(key) for clusters in leading) <= 1, f"{key} is served twice"


def slow_split(world: RingWorld, node: RingNode) -> Key:
    """Let `node` split its arc, until that waits for its registry. Returns the middle."""
    assert node.clusters.cluster is not None
    middle = middle_of(node.clusters.cluster)
    node.registry.slow = True
    node.clusters.request_split(middle)
    for _ in range(300):
        if node.clusters.handovers.current is not None:
            return middle
        world.run(0.1)
    raise AssertionError("the split does not begin")


def middle_of(cluster: Cluster) -> Key:
    """The key halfway along the arc."""
    start, end, ring = int(cluster.start, 16), int(cluster.key, 16), 1 << 160
    length = (end - start) % ring or ring
    return f"{(start + length // 2) % ring:040x}"


UNRECOVERED = ElectionSettings(fork_after=10_000.0)
"""No cluster goes on without its majority, as if P5 were not there."""


def cluster_of(node: RingNode) -> Cluster:
    """The own cluster of a node that serves."""
    assert node.clusters.cluster is not None
    return node.clusters.cluster


def grown(
    seed: int,
    nodes: int,
    clusters: int,
    size: int = 3,
    degree: int = 12,
    election: ElectionSettings | None = None,
    cluster: ClusterSettings | None = None,
    signed: bool = False,
) -> RingWorld:
    """A world at rest with that many clusters, or as many as the nodes allow. `cluster`: instead of
    `size`."""
    cluster = cluster or ClusterSettings(size=size)
    world = RingWorld(seed, cluster=cluster, election=election, signed=signed)
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

"""A signed document reaches every node, and an older one nobody."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from overlay.links.events import LinkUp
from overlay.lower_random.documents import DocumentChanged, Documents
from overlay.lower_random.messages import RevocationList
from overlay.machine import Machine, Peer, Port
from tests.support.world import World, WorldNode, peer

GENUINE = b"genuine "
KIND = "revocations"


class Store:
    """Believes what begins as it should, and keeps the highest version."""

    def __init__(self) -> None:
        self.version = 0

    def current(self) -> tuple[int, bytes]:
        return self.version, b"%s%d" % (GENUINE, self.version)

    def accept(self, data: bytes) -> int:
        if data.startswith(GENUINE):
            self.version = max(self.version, int(data[len(GENUINE) :]))
        return self.version


class Rig:
    """Nodes with some random neighbours each."""

    def __init__(self, nodes: int, neighbours: int, delay: float = 0.02) -> None:
        rng = Random(1)
        self.world = World(1, (0.0, delay))
        peers = [peer(f"n{number}") for number in range(nodes)]
        self.nodes: list[WorldNode] = []
        self.stores = [Store() for _ in peers]
        self.machines: list[Documents] = []
        for one, store in zip(peers, self.stores, strict=True):
            near = tuple(rng.sample([other for other in peers if other != one], neighbours))
            node = self.world.node(one.id, one.address)
            view: Any = SimpleNamespace(peers=lambda near=near: near)
            self.machines.append(Documents(node, {KIND: store}, view))
            node.add(self.machines[-1])
            self.nodes.append(node)

    def revoke(self, at: int) -> None:
        self.stores[at].version += 1
        self.machines[at].changed()
        self.nodes[at].turn()

    def versions(self) -> set[int]:
        return {store.version for store in self.stores}


def test_a_list_reaches_a_thousand_nodes_in_a_few_steps() -> None:
    rig = Rig(1000, 20)
    rig.revoke(7)
    rig.world.run(0.2)  # ten times the longest way of one message
    assert rig.versions() == {1}
    assert sum(node.counts["signed_documents"] for node in rig.nodes) == 1000  # each once


def test_who_was_away_hears_of_it_whoever_dialled() -> None:
    rig = Rig(3, 0)
    rig.revoke(0)
    rig.revoke(0)
    one, other = (Peer(node.me.id, node.me.address) for node in rig.nodes[:2])
    rig.nodes[0].hear(LinkUp(other, True))  # the one that has the list speaks first …
    rig.world.run(1.0)
    assert [store.version for store in rig.stores] == [2, 2, 0]
    rig.revoke(1)
    rig.nodes[0].hear(LinkUp(other, True))  # … or the one that has an older one
    rig.world.run(1.0)
    assert rig.stores[0].version == 3
    assert one != other


def test_what_is_not_genuine_or_older_is_not_passed_on() -> None:
    rig = Rig(10, 6)
    rig.revoke(0)
    rig.revoke(0)
    rig.world.run(1.0)
    rig.nodes[1].take(RevocationList)
    for data in (b"forged 9", GENUINE + b"1"):
        rig.nodes[1].hear(RevocationList(data), peer("liar"))
    assert not rig.nodes[1].take(RevocationList)
    rig.world.run(1.0)
    assert rig.versions() == {2}


def test_who_loses_its_document_says_so_and_asks_for_another() -> None:
    """Its root was dropped: what hangs on it is not believed, and nobody waits for a newer one."""
    rig = Rig(2, 0)
    rig.revoke(0)
    rig.nodes[0].hear(LinkUp(rig.nodes[1].me, True))
    rig.nodes[1].hear(LinkUp(rig.nodes[0].me, True))
    rig.world.run(1.0)
    assert rig.versions() == {1}
    heard: list[DocumentChanged] = []
    rig.nodes[1].add(Listener(rig.nodes[1], heard))
    rig.stores[1].version = 0
    rig.machines[1].changed()
    rig.nodes[1].turn()
    assert heard == [DocumentChanged(KIND)]
    rig.world.run(1.0)
    assert rig.stores[1].version == 1
    assert len(heard) == 2


class Listener(Machine):
    """Keeps what is said of documents."""

    def __init__(self, port: Port, heard: list[DocumentChanged]) -> None:
        super().__init__(port)
        self._heard = heard

    def on_document_changed(self, event: DocumentChanged) -> None:
        """Keep it."""
        self._heard.append(event)

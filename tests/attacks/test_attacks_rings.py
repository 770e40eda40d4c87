"""One node cannot end a ring in which it does not serve, nor lead others into one of its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from canopy.sim.world.signer import SimulatedSigner
from overlay.chord.constants import RING_UNBACKED_AFTER
from overlay.chord.epochs import sealing
from overlay.chord.membership.recruitment import Founding
from overlay.chord.messages import Cluster, Merge, MergePhase, Moved, RingEnded, RingMet
from overlay.machine import Message, Peer
from overlay.settings import ClusterSettings
from tests.support.rings import RingNode, RingWorld, cluster_of, grown

STRANGER, OTHER = Peer("ffffffffffffffff", "host:99"), Peer("fffffffffffffffe", "host:98")


def forged(own: Cluster) -> Cluster:
    """A cluster of a ring with the smallest id there can be."""
    return replace(own, ring="0", primary=STRANGER, standby=None, brokers=())


def rings(world: RingWorld) -> set[str]:
    return {node.ring.id for node in world.members.values()}


def test_an_outsider_alone_does_not_end_a_ring() -> None:
    """Attack 4: each node that heard it went over, and passed it on."""
    world = grown(3, nodes=8, clusters=1, size=3)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    for node in list(world.members.values()):
        for _ in range(3):  # one who says it again is no second witness
            node.port.hear(RingEnded(own.ring, forged(own)), STRANGER)
    world.run(10)
    assert rings(world) == {own.ring}
    assert world.primaries() == [primary]
    assert primary.port.counts["ring_ends_doubted"] == 3


def test_nor_does_it_have_a_ring_forgotten_that_others_serve_in() -> None:
    world = grown(3, nodes=8, clusters=1, size=3)
    node = next(n for n in world.members.values() if n.clusters.role == "none")
    node.port.hear(RingEnded("another", forged(cluster_of(world.primaries()[0]))), STRANGER)
    assert "another" not in node.ring.state.ended


def test_two_witnesses_and_the_own_primary_are_believed() -> None:
    world = grown(3, nodes=8, clusters=1, size=3)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    idle = [n for n in world.members.values() if n.clusters.role == "none"]
    ended = RingEnded(own.ring, forged(own))
    idle[0].port.hear(ended, STRANGER)
    assert idle[0].ring.id == own.ring
    idle[0].port.hear(ended, OTHER)
    idle[1].port.hear(ended, primary.peer)
    assert (idle[0].ring.id, idle[1].ring.id) == ("0", "0")


# --- where nodes have keys: rings that somebody founds to have others come over ---


def honest(nodes: int = 12, clusters: int = 3) -> RingWorld:
    return grown(3, nodes=nodes, clusters=clusters, signed=True)


def founded_by_a_liar(world: RingWorld, monkeypatch: pytest.MonkeyPatch, degree: int) -> RingNode:
    """A node that founds a ring under the smallest id there can be; so many know it."""
    original = Founding._cluster
    with monkeypatch.context() as patch:
        patch.setattr(
            Founding, "_cluster", lambda self, rank: replace(original(self, rank), ring="0")
        )
        return world.add(founder=True, degree=degree)


def link(one: RingNode, other: RingNode) -> None:
    one.view.neighbours.append(other.peer)
    other.view.neighbours.append(one.peer)


def of_ring(world: RingWorld, ring: str) -> list[RingNode]:
    return [node for node in world.members.values() if node.ring.id == ring]


def goes_on(world: RingWorld, ring: str, others: int) -> None:
    """All but so many nodes are in this ring, which serves as before."""
    assert len(of_ring(world, ring)) == len(world.members) - others
    key = "1" * 40
    (owner,) = [node for node in world.owners(key) if node.ring.id == ring]
    assert owner.registry.write(key, "kept")


def test_a_ring_of_one_voter_has_nobody_come_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its id: all know it, and hear of it every second."""
    world = honest()
    ring = cluster_of(world.primaries()[0]).ring
    liar = founded_by_a_liar(world, monkeypatch, degree=12)
    liar.clusters.recruiting.settings = ClusterSettings(size=1)
    liar.clusters.recruiting.usual_size()
    monkeypatch.setattr(liar.clusters.merging, "_is_better", lambda ring: False)
    world.run(2 * RING_UNBACKED_AFTER)
    assert liar.ring.id == "0"
    goes_on(world, ring, others=1)
    assert sum(n.port.counts.get("rings_doubted", 0) for n in world.members.values())
    assert not any(n.port.counts.get("rings_given_up") for n in world.members.values())


@pytest.mark.parametrize("leads", [True, False])
def test_nor_by_the_word_of_who_serves_in_the_ring(leads: bool) -> None:
    """A primary, the one whose cluster is to lead any merge, and a voter say all that there is to
    say of a ring that is better, of others that it names as its members, and of the own one's
    end."""
    world = honest()
    first = world.primaries()[0]
    own = cluster_of(first)
    liar = first if leads else world.member(own.brokers[0].id)
    named = [node.peer for node in world.members.values() if node is not liar][:4]
    said = Cluster("0", own.key, own.key, (1, 0), liar.peer).served_by(liar.peer, *named)
    signer = SimulatedSigner(liar.peer.id, "rings")
    said = replace(said, seal=signer.sign(sealing(said)))
    words: list[Message] = [
        RingMet(own.ring, "0", liar.peer),
        Moved(said),
        RingEnded(own.ring, said),
        *[Merge(said, phase) for phase in MergePhase if phase],
    ]
    for _ in range(5):
        for node in list(world.members.values()):
            if node is not liar and not own.has_member(node.peer.id):
                for word in words:
                    node.port.hear(word, liar.peer)
        world.run(4)
    assert not of_ring(world, "0")
    goes_on(world, own.ring, others=0)
    world.ring_is_whole()


def test_who_was_caught_in_such_a_ring_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newcomers who met the liar first, of whom it has recruited one."""
    world = honest()
    ring = cluster_of(world.primaries()[0]).ring
    liar = founded_by_a_liar(world, monkeypatch, degree=0)
    caught = [world.add(degree=0) for _ in range(2)]
    liar.clusters.recruiting.settings = ClusterSettings(size=2)
    liar.clusters.recruiting.usual_size()
    for node in caught:
        link(node, liar)
    world.run(8)
    assert [node.ring.id for node in caught] == ["0", "0"]
    assert sorted(node.clusters.role for node in caught) == ["none", "standby"]
    for node in caught:
        for other in world.primaries()[:2]:
            if other is not liar:
                link(node, other)
    liar.clusters.recruiting.settings = ClusterSettings(size=1)  # and keeps whom it has
    monkeypatch.setattr(liar.clusters.merging, "_is_better", lambda ring: False)
    world.run(2 * RING_UNBACKED_AFTER)
    assert of_ring(world, "0") == [liar]
    goes_on(world, ring, others=1)


def test_an_honest_founder_alone_goes_over_whatever_its_id() -> None:
    """One that was started after a ring without it: both know what each is."""
    world = honest()
    ring = cluster_of(world.primaries()[0]).ring
    with pytest.MonkeyPatch.context() as patch:
        late = founded_by_a_liar(world, patch, degree=3)
    world.run(15)
    assert of_ring(world, "0") == []
    assert late.ring.id == ring
    goes_on(world, ring, others=0)


def test_a_smaller_id_that_does_not_found_holds_up_nobody() -> None:
    """Ids can be ground, and the smallest has its turn to found first."""
    world = RingWorld(cluster=ClusterSettings(size=3), signed=True)
    nodes = [world.add() for _ in range(5)]
    for node in nodes[:2]:
        node.clusters.founding.due = lambda: None  # type: ignore[method-assign]
    world.run(3 * world.ring.found_after + 2)
    assert {node.ring.id for node in nodes} == {cluster_of(nodes[2]).ring}
    assert nodes[2].port.counts["founded"] == 1

"""Repair of the ring, other rings, and the walk around (P2) in small worlds of whole nodes."""

from __future__ import annotations

import pytest

from overlay.chord.keys import key_of
from overlay.chord.messages import (
    Cluster,
    Contact,
    Moved,
    Neighbourhood,
    Rectify,
    Stabilise,
)
from overlay.chord.ring.stabilisation import finger_key
from overlay.lower_random.messages import RingHint, RingHintReceived
from overlay.machine import Peer
from tests.support.examples import seeds
from tests.support.rings import UNRECOVERED, RingNode, RingWorld, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(12)]


def find(world: RingWorld, node: RingNode, *keys: str) -> None:
    for key in keys:
        node.ring.find(key)
    node.port.turn()


def messages(world: RingWorld, kind: type) -> list[object]:
    return [m for _, _, m in world.sent if isinstance(m, kind)]


@pytest.mark.parametrize("seed", seeds(3))
def test_splits_leave_a_whole_ring_with_full_successor_lists(seed: int) -> None:
    world = grown(seed, nodes=40, clusters=8)
    assert len(world.arcs()) == 8
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()


def test_a_cluster_that_died_is_passed_by_in_the_successor_lists() -> None:
    world = grown(4, nodes=40, clusters=7, election=UNRECOVERED)
    leading = world.primaries()
    dead = leading[3]
    before, after = leading[2], leading[4]
    assert dead.clusters.cluster is not None
    for member in dead.clusters.cluster.members():
        world.crash(world.member(member.id))
    world.run(20)
    pointers = before.ring.state.pointers
    assert after.clusters.cluster is not None
    assert pointers.successors[0].key == after.clusters.cluster.key
    assert len(pointers.successors) == pointers.length
    behind = after.ring.state.pointers.predecessor
    assert behind is not None
    assert before.clusters.cluster is not None
    assert behind.key == before.clusters.cluster.key
    # …but no member serves its keys: pointers route, arcs decide.
    assert dead.clusters.cluster is not None
    assert world.owners(dead.clusters.cluster.key) == []


def test_a_primary_that_was_cut_off_comes_back_into_the_ring() -> None:
    world = grown(6, nodes=40, clusters=7)
    lost, *others = world.primaries()
    for other in others:
        world.cut_link(lost, other)
    world.run(20)
    keys = [c.key for n in others for c in n.ring.state.pointers.successors]
    assert lost.clusters.cluster is not None
    assert lost.clusters.cluster.key not in keys
    for other in others:
        world.heal_link(lost, other)
    world.run(30)
    world.ring_is_whole()


def test_no_cluster_is_accepted_as_predecessor_inside_the_own_arc() -> None:
    world = grown(1, nodes=12, clusters=2)
    node = world.primaries()[0]
    own = node.clusters.cluster
    assert own is not None
    before = node.ring.state.pointers.predecessor
    liar = Cluster(own.ring, middle_of(own), own.start, (1, 0), Peer("f" * 16, ""))
    node.ring.stabilisation.on_rectify(liar.primary, Rectify(liar))
    assert node.ring.state.pointers.predecessor == before
    assert node.port.counts["ring_conflicts"] == 1


def test_a_former_primary_says_what_became_of_its_cluster() -> None:
    world = grown(2, nodes=16, clusters=2)
    one, other = world.primaries()
    one.clusters.leave()
    one.port.turn()
    world.run(3)
    assert one.clusters.left
    world.sent.clear()
    assert other.clusters.cluster is not None
    for question in (Stabilise(other.clusters.cluster), Contact(other.peer.id)):
        other.port.send(one.peer, question)
        world.run(0.5)
        answers = [m for s, _, m in world.sent if s == one.peer.id and isinstance(m, Moved)]
        answer = answers[-1].cluster
        assert (answer.key, answer.primary) in [(c.key, c.primary) for c in world.arcs()]
        assert answer.primary != one.peer
    world.run(5)
    world.ring_is_whole()


@pytest.mark.parametrize("clusters", [1, 2, 3, 7])
def test_the_walk_around_the_ring_finds_every_cluster_once(clusters: int) -> None:
    world = grown(3, nodes=40, clusters=clusters)
    for node in (world.primaries()[0], *list(world.members.values())[:3], world.add()):
        world.run(2)
        node.ring.walk()
        node.ring.walk()  # who asks meanwhile gets the same answer
        node.port.turn()
        world.run(5)
        answer = node.collected()[-1]
        assert len(node.collected()) == (2 if clusters == 1 and node.clusters.is_primary else 1)
        assert answer.complete
        assert list(answer.clusters) == world.arcs()
        node.events.clear()


def test_the_walk_says_so_when_a_cluster_is_missing() -> None:
    world = grown(4, nodes=40, clusters=6, election=UNRECOVERED)
    for member in world.arcs()[2].members():
        world.crash(world.member(member.id))
    asker = world.primaries()[0]
    asker.ring.walk()
    asker.port.turn()
    world.run(20)
    (answer,) = asker.collected()
    assert not answer.complete
    assert list(answer.clusters) == world.arcs()


def test_a_second_ring_is_noticed_once_and_kept_out() -> None:
    world = grown(1, nodes=8, clusters=1)
    node = world.primaries()[0]
    ring = node.ring.id
    for _ in range(2):
        hint = RingHint("9" + ring, KEYS[0], (9, 9), Peer("f" * 16, ""))
        node.port.emit(RingHintReceived(hint))
        node.port.turn()
    assert node.ring.id == ring
    assert node.port.counts["other_rings_met"] == 1
    noticed = [f for k, f in node.port.traces if "another ring" in f.get("reason", "")]
    assert len(noticed) == 1
    assert all(h.ring == ring for h in node.ring.state.known.hints())


def test_fingers_are_powers_of_two_away() -> None:
    assert finger_key("f" * 40, 0) == "0" * 40
    assert finger_key("0" * 40, 159) == "8" + "0" * 39


def test_a_better_successor_has_to_confirm_itself() -> None:
    """The original protocol adopts what the successor says of its predecessor; if that one is
    dead, the ring is broken there until it is found out."""
    world = grown(4, nodes=24, clusters=4)
    node, following, *_ = world.primaries()
    own, first = node.clusters.cluster, following.clusters.cluster
    assert own is not None
    assert first is not None
    before = node.ring.state.pointers.successors
    ghost = Cluster(own.ring, middle_of(first), own.key, (9, 0), Peer("f" * 16, ""))
    world.sent.clear()
    node.ring.on_neighbourhood(following.peer, Neighbourhood(first, ghost, before[1:]))
    assert [c.key for c in node.ring.state.pointers.successors] == [c.key for c in before]
    assert [to for _, to, m in world.sent if isinstance(m, Stabilise)] == [ghost.primary.id]
    world.run(3)
    assert ghost.key not in [c.key for c in node.ring.state.pointers.successors]
    node.ring.on_neighbourhood(ghost.primary, Neighbourhood(ghost, own, (first, *before[1:])))
    assert node.ring.state.pointers.successors[0] == ghost  # now it has


def test_fingers_reach_into_the_far_half_of_the_ring() -> None:
    world = grown(5, nodes=100, clusters=20, size=1, degree=40)
    node = world.primaries()[0]
    own = node.clusters.cluster
    assert own is not None
    node.ring.state.known.clear()
    world.run(40)
    for bit in (158, 159):
        far = finger_key(own.key, bit)
        (owner,) = world.owners(far)
        assert node.ring.owner(far) == owner.clusters.cluster


def test_a_primary_that_gossip_names_and_no_pointer_does_is_asked() -> None:
    """After a partition two rings may run through the same keys: neither asks the other."""
    world = grown(4, nodes=24, clusters=4)
    node, following, *_ = world.primaries()
    own, first = node.clusters.cluster, following.clusters.cluster
    assert own is not None
    assert first is not None
    between = f"{(int(own.key, 16) + 1) % (1 << 160):040x}"
    inside = f"{(int(own.start, 16) + 1) % (1 << 160):040x}"
    above_fork = f"{(int(first.key, 16) + 1) % (1 << 160):040x}"
    asked = []
    for number, key in enumerate((between, inside, above_fork, between)):
        peer = Peer(f"{number % 3:016x}", f"other:{number % 3}")
        before = len(world.sent)
        node.port.emit(RingHintReceived(RingHint(own.ring, key, (1, 0), peer)))
        node.port.turn()
        asked.append([type(m) for _, to, m in world.sent[before:] if to == peer.id])
    assert asked == [[Stabilise], [Stabilise], [], []]

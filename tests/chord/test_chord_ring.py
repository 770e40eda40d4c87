"""Lookups, repair and the walk around the ring (P2) in small worlds of whole nodes."""

from __future__ import annotations

import pytest

from overlay.chord.events import OwnerFound, OwnerUnknown, RingKnown
from overlay.chord.keys import key_of
from overlay.chord.lookups import MOST_HOPS, MOST_LOOKUPS
from overlay.chord.messages import Cluster, Contact, Find, FindReply, Moved, Rectify, Stabilise
from overlay.chord.repair import finger_key
from overlay.lower_random.events import RingHeard
from overlay.lower_random.messages import RingHint
from overlay.machine import Peer
from overlay.settings import RingSettings
from tests.support.mini_world import MiniNode, MiniWorld, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(12)]


def find(world: MiniWorld, node: MiniNode, *keys: str) -> None:
    for key in keys:
        node.ring.find(key)
    node.settle()


def messages(world: MiniWorld, kind: type) -> list[object]:
    return [m for _, _, m in world.sent if isinstance(m, kind)]


@pytest.mark.parametrize("seed", range(3))
def test_every_node_finds_the_true_owner_of_every_key(seed: int) -> None:
    world = grown(seed, nodes=30, clusters=6)
    assert len(world.arcs()) == 6
    for node in world.nodes.values():
        find(world, node, *KEYS)
    world.run(5)
    for key in KEYS:
        (owner,) = world.owners(key)
        for node in world.nodes.values():
            (answer,) = node.answers(key)
            assert isinstance(answer, OwnerFound)
            assert answer.cluster.primary == owner.peer


@pytest.mark.parametrize("seed", range(3))
def test_splits_leave_a_whole_ring_with_full_successor_lists(seed: int) -> None:
    world = grown(seed, nodes=40, clusters=8)
    assert len(world.arcs()) == 8
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()


def test_the_owner_answers_itself_without_a_message() -> None:
    world = MiniWorld()
    node = world.add(founder=True)
    world.run(1)
    before = len(world.sent)
    find(world, node, KEYS[0])
    (answer,) = node.answers(KEYS[0])
    assert isinstance(answer, OwnerFound)
    assert answer.hops == 0
    assert len(world.sent) == before


def test_lookups_of_one_key_are_coalesced() -> None:
    world = grown(1, nodes=8, clusters=1)
    outsider = world.add()
    world.run(2)
    world.sent.clear()
    find(world, outsider, KEYS[0], KEYS[0], KEYS[0])
    world.run(1)
    assert len(messages(world, Find)) == 1
    assert len(outsider.answers(KEYS[0])) == 1
    find(world, outsider, KEYS[0])
    world.run(1)
    assert len(outsider.answers(KEYS[0])) == 2  # a later one is a lookup of its own


def test_a_lookup_waits_for_the_first_way_into_the_ring() -> None:
    world = MiniWorld()
    founder = world.add(founder=True)
    world.cluster = world.cluster.__class__(size=1)
    outsider = world.add()
    outsider.view.neighbours.clear()
    find(world, outsider, KEYS[0])
    assert not outsider.ring.known()
    hint = founder.view.hint
    assert hint is not None
    outsider.port.emit(RingHeard(hint))
    outsider.settle()
    world.run(1)
    assert outsider.ring.known()
    assert [e.ring for e in outsider.events if isinstance(e, RingKnown)] == [hint.ring]
    assert isinstance(outsider.answers(KEYS[0])[0], OwnerFound)


def test_without_a_way_the_answer_is_unknown_in_bounded_time() -> None:
    world = MiniWorld(ring=RingSettings(found_after=600.0))
    alone = world.add()
    find(world, alone, KEYS[0])
    assert alone.answers(KEYS[0]) == []
    world.run(30)
    assert alone.answers(KEYS[0]) == [OwnerUnknown(KEYS[0])]


def test_lookups_under_way_are_bounded() -> None:
    world = MiniWorld(ring=RingSettings(found_after=600.0))
    alone = world.add()
    find(world, alone, *(f"{n:040x}" for n in range(MOST_LOOKUPS + 1)))
    assert alone.answers(f"{MOST_LOOKUPS:040x}") == [OwnerUnknown(f"{MOST_LOOKUPS:040x}")]
    assert alone.answers(f"{0:040x}") == []


def test_a_dead_first_step_is_replaced_by_another_way() -> None:
    world = grown(2, nodes=24, clusters=4)
    asker = next(n for n in world.nodes.values() if n.clusters.role == "none")
    for node in world.primaries():  # so that it knows them all
        assert node.clusters.cluster is not None
        asker.ring.learn(node.clusters.cluster)
    key = KEYS[3]
    (owner,) = world.owners(key)
    first = asker.ring.place.route(key)
    assert first == owner.peer
    world.cut_link(asker, owner)
    find(world, asker, key)
    world.run(8)
    # The way through another cluster leads there; the answer cannot cross the cut link, so what
    # counts is that the owner was asked by somebody else.
    passed = [s for s, to, m in world.sent if isinstance(m, Find) and to == owner.peer.id]
    assert any(sender != asker.peer.id for sender in passed)


def test_stale_knowledge_leads_forward_from_owner_to_owner() -> None:
    world = MiniWorld(3, cluster=grown(0, 1, 1).cluster)
    founder = world.add(founder=True)
    for _ in range(30):
        world.add()
    world.run(5)
    first = founder.clusters.cluster
    assert first is not None
    late = world.add()
    late.ring.learn(first)  # from before every split
    late.view.neighbours.clear()
    for _ in range(3):
        assert founder.clusters.cluster is not None
        founder.clusters.request_split(middle_of(founder.clusters.cluster))
        world.run(8)
    assert len(world.arcs()) == 4
    late.ring.place.known.clear()
    late.ring.learn(first)
    find(world, late, *KEYS)
    world.run(3)
    for key in KEYS:
        (owner,) = world.owners(key)
        (answer,) = late.answers(key)
        assert isinstance(answer, OwnerFound)
        assert answer.cluster.primary == owner.peer
        assert late.ring.owner(key) == owner.clusters.cluster


def test_a_lookup_that_goes_in_circles_is_dropped() -> None:
    world = grown(1, nodes=12, clusters=2)
    outsider = next(n for n in world.nodes.values() if not n.clusters.is_primary)
    key = next(k for k in KEYS if not outsider.clusters.owns(k))
    world.sent.clear()
    nobody = Peer("f" * 16, "")
    outsider.ring.lookups.on_find(world.primaries()[0].peer, Find(key, nobody, 1, MOST_HOPS))
    assert not messages(world, Find)
    assert outsider.port.counters["lookups_dropped"] == 1


def test_only_an_owner_of_the_key_is_believed() -> None:
    world = grown(1, nodes=12, clusters=2)
    one, other = world.primaries()
    asker = next(n for n in world.nodes.values() if not n.clusters.is_primary)
    key = next(k for k in KEYS if one.clusters.owns(k))
    find(world, asker, key)
    wrong = other.clusters.cluster
    assert wrong is not None
    asker.ring.lookups.on_find_reply(other.peer, FindReply(1, wrong, 1))
    asker.settle()
    assert asker.answers(key) == []


def test_hops_grow_with_the_logarithm_of_the_clusters() -> None:
    world = grown(5, nodes=100, clusters=32, size=1, degree=40)
    arcs = world.arcs()
    assert len(arcs) >= 24
    world.run(120)  # fingers
    asker = world.primaries()[0]
    pointers = asker.ring.place.pointers
    for node in world.primaries():  # the cache would know everybody: only pointers and fingers
        place = node.ring.place
        own = node.clusters.cluster
        assert own is not None
        fingers = [place.known.owner(finger_key(own.key, bit)) for bit in range(150, 160)]
        place.known.clear()
        for cluster in fingers:
            if cluster is not None:
                place.learn(cluster)
    find(world, asker, *(c.key for c in arcs))
    world.run(5)
    hops = [a.hops for c in arcs for a in asker.answers(c.key) if isinstance(a, OwnerFound)]
    assert len(hops) == len(arcs)
    assert max(hops) <= 6  # log2 of 32 clusters, and one
    assert len(pointers.successors) == pointers.length


def test_a_primary_that_died_is_passed_by_in_the_successor_lists() -> None:
    world = grown(4, nodes=40, clusters=7)
    leading = world.primaries()
    dead = leading[3]
    before, after = leading[2], leading[4]
    world.crash(dead)
    world.run(20)
    pointers = before.ring.place.pointers
    assert after.clusters.cluster is not None
    assert pointers.successors[0].key == after.clusters.cluster.key
    assert len(pointers.successors) == pointers.length
    behind = after.ring.place.pointers.predecessor
    assert behind is not None
    assert before.clusters.cluster is not None
    assert behind.key == before.clusters.cluster.key
    # …but nobody serves its keys: pointers route, arcs decide.
    assert dead.clusters.cluster is not None
    assert world.owners(dead.clusters.cluster.key) == []


def test_a_primary_that_was_cut_off_comes_back_into_the_ring() -> None:
    world = grown(6, nodes=40, clusters=7)
    lost, *others = world.primaries()
    for other in others:
        world.cut_link(lost, other)
    world.run(20)
    keys = [c.key for n in others for c in n.ring.place.pointers.successors]
    assert lost.clusters.cluster is not None
    assert lost.clusters.cluster.key not in keys
    for other in others:
        world.heal_link(lost, other)
    world.run(30)
    world.ring_is_whole()


def test_nobody_is_accepted_as_predecessor_inside_the_own_arc() -> None:
    world = grown(1, nodes=12, clusters=2)
    node = world.primaries()[0]
    own = node.clusters.cluster
    assert own is not None
    before = node.ring.place.pointers.predecessor
    liar = Cluster(own.ring, middle_of(own), own.start, (1, 0), Peer("f" * 16, ""))
    node.ring.repair.on_rectify(liar.primary, Rectify(liar))
    assert node.ring.place.pointers.predecessor == before
    assert node.port.counters["ring_conflicts"] == 1


def test_a_former_primary_says_what_became_of_its_cluster() -> None:
    world = grown(2, nodes=16, clusters=2)
    one, other = world.primaries()
    one.clusters.leave()
    one.settle()
    world.run(3)
    assert one.clusters.left
    world.sent.clear()
    assert other.clusters.cluster is not None
    for question in (Stabilise(other.clusters.cluster), Contact(other.peer.id)):
        world.send(other.peer, one.peer, question)
        world.run(0.5)
        answers = [m for s, _, m in world.sent if s == one.peer.id and isinstance(m, Moved)]
        told = answers[-1].cluster
        assert (told.key, told.primary) in [(c.key, c.primary) for c in world.arcs()]
        assert told.primary != one.peer
    world.run(5)
    world.ring_is_whole()


@pytest.mark.parametrize("clusters", [1, 2, 3, 7])
def test_the_walk_around_the_ring_finds_every_cluster_once(clusters: int) -> None:
    world = grown(3, nodes=40, clusters=clusters)
    for node in (world.primaries()[0], *list(world.nodes.values())[:3], world.add()):
        world.run(2)
        node.ring.collect()
        node.ring.collect()  # who asks meanwhile gets the same answer
        node.settle()
        world.run(5)
        answer = node.collected()[-1]
        assert len(node.collected()) == (2 if clusters == 1 and node.clusters.is_primary else 1)
        assert answer.complete
        assert list(answer.clusters) == world.arcs()
        node.events.clear()


def test_the_walk_says_so_when_a_cluster_is_missing() -> None:
    world = grown(4, nodes=40, clusters=6)
    world.crash(world.primaries()[2])
    asker = world.primaries()[0]
    asker.ring.collect()
    asker.settle()
    world.run(20)
    (answer,) = asker.collected()
    assert not answer.complete
    assert list(answer.clusters) == world.arcs()


def test_a_second_ring_is_counted_and_kept_out() -> None:
    world = grown(1, nodes=8, clusters=1)
    node = world.primaries()[0]
    ring = node.ring.id
    for _ in range(2):
        hint = RingHint("9" + ring, KEYS[0], (9, 9), Peer("f" * 16, ""))
        node.port.emit(RingHeard(hint))
        node.settle()
    assert node.ring.id == ring
    assert node.port.counters["other_ring_heard"] == 2
    noticed = [f for k, f in node.port.traces if "another ring" in f.get("reason", "")]
    assert len(noticed) == 1
    assert all(h.ring == ring for h in node.ring.place.known.hints())


def test_an_outsider_goes_over_to_the_smaller_ring() -> None:
    world = grown(1, nodes=8, clusters=1)
    outsider = world.add()
    world.run(2)
    ring = outsider.ring.id
    outsider.port.emit(RingHeard(RingHint("!" + ring, KEYS[0], (1, 0), Peer("f" * 16, ""))))
    outsider.settle()
    assert outsider.ring.id == "!" + ring
    assert [h.ring for h in outsider.ring.place.known.hints()] == ["!" + ring]


def test_fingers_are_powers_of_two_away() -> None:
    assert finger_key("f" * 40, 0) == "0" * 40
    assert finger_key("0" * 40, 159) == "8" + "0" * 39

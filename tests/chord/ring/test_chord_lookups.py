"""Lookups (P2) in small worlds of whole nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from overlay.chord.constants import LOOKUPS_MOST, LOOKUPS_WAITING_MOST, MOST_HOPS
from overlay.chord.events import OwnerFound, OwnerUnknown, RingKnown
from overlay.chord.keys import key_of
from overlay.chord.messages import (
    Find,
    FindReply,
)
from overlay.chord.ring.stabilisation import finger_key
from overlay.links.events import LinkDown
from overlay.lower_random.messages import RingHintReceived
from overlay.machine import Peer
from overlay.settings import RingSettings
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(12)]


def find(world: RingWorld, node: RingNode, *keys: str) -> None:
    for key in keys:
        node.ring.find(key)
    node.port.turn()


def messages(world: RingWorld, kind: type) -> list[object]:
    return [m for _, _, m in world.sent if isinstance(m, kind)]


@pytest.mark.parametrize("seed", seeds(3))
def test_every_node_finds_the_true_owner_of_every_key(seed: int) -> None:
    world = grown(seed, nodes=30, clusters=6)
    assert len(world.arcs()) == 6
    for node in world.members.values():
        find(world, node, *KEYS)
    world.run(5)
    for key in KEYS:
        (owner,) = world.owners(key)
        for node in world.members.values():
            (answer,) = node.answers(key)
            assert isinstance(answer, OwnerFound)
            assert answer.cluster.primary == owner.peer


def test_the_owner_answers_itself_without_a_message() -> None:
    world = RingWorld()
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
    world = RingWorld()
    founder = world.add(founder=True)
    world.cluster = world.cluster.__class__(size=1)
    outsider = world.add()
    outsider.view.neighbours.clear()
    find(world, outsider, KEYS[0])
    assert not outsider.ring.is_known()
    hint = founder.view.hint
    assert hint is not None
    outsider.port.emit(RingHintReceived(hint))
    outsider.port.turn()
    world.run(1)
    assert outsider.ring.is_known()
    assert [e.ring for e in outsider.events if isinstance(e, RingKnown)] == [hint.ring]
    assert isinstance(outsider.answers(KEYS[0])[0], OwnerFound)


def test_without_a_way_the_answer_is_unknown_in_bounded_time() -> None:
    world = RingWorld(ring=RingSettings(found_after=600.0))
    alone = world.add()
    find(world, alone, KEYS[0])
    assert alone.answers(KEYS[0]) == []
    world.run(30)
    assert alone.answers(KEYS[0]) == [OwnerUnknown(KEYS[0])]


def test_lookups_under_way_are_bounded() -> None:
    world = RingWorld(ring=RingSettings(found_after=600.0))
    alone = world.add()
    find(world, alone, *(f"{n:040x}" for n in range(LOOKUPS_MOST + 1)))
    assert alone.answers(f"{LOOKUPS_MOST:040x}") == [OwnerUnknown(f"{LOOKUPS_MOST:040x}")]
    assert alone.answers(f"{0:040x}") == []


def test_a_dead_first_step_is_replaced_by_another_way() -> None:
    world = grown(2, nodes=24, clusters=4)
    asker = next(n for n in world.members.values() if n.clusters.role == "none")
    for node in world.primaries():  # so that it knows them all
        assert node.clusters.cluster is not None
        asker.ring.learn(node.clusters.cluster)
    key = KEYS[3]
    (owner,) = world.owners(key)
    first = asker.ring.state.route(key)
    assert first == owner.peer
    world.cut_link(asker, owner)
    find(world, asker, key)
    world.run(8)
    # The way through another cluster leads there; the answer cannot cross the cut link, so what
    # counts is that the owner was asked by another node.
    passed = [s for s, to, m in world.sent if isinstance(m, Find) and to == owner.peer.id]
    assert any(sender != asker.peer.id for sender in passed)


def test_stale_knowledge_leads_forward_from_owner_to_owner() -> None:
    world = RingWorld(3, cluster=grown(0, 1, 1).cluster)
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
    late.ring.state.known.clear()
    late.ring.learn(first)
    find(world, late, *KEYS)
    world.run(3)
    for key in KEYS:
        (owner,) = world.owners(key)
        (answer,) = late.answers(key)
        assert isinstance(answer, OwnerFound)
        assert answer.cluster.primary == owner.peer
        assert late.ring.owner(key) == owner.clusters.cluster


def test_a_lookup_that_goes_in_a_loop_is_dropped() -> None:
    world = grown(1, nodes=12, clusters=2)
    outsider = next(n for n in world.members.values() if not n.clusters.is_primary)
    key = next(k for k in KEYS if not outsider.clusters.owns(k))
    world.sent.clear()
    absent = Peer("f" * 16, "")
    outsider.ring.lookups.on_find(world.primaries()[0].peer, Find(key, absent, 1, MOST_HOPS))
    assert not messages(world, Find)
    assert outsider.port.counts["lookups_dropped"] == 1


def test_only_an_owner_of_the_key_is_trusted() -> None:
    world = grown(1, nodes=12, clusters=2)
    one, other = world.primaries()
    asker = next(n for n in world.members.values() if not n.clusters.is_primary)
    key = next(k for k in KEYS if one.clusters.owns(k))
    find(world, asker, key)
    wrong = other.clusters.cluster
    assert wrong is not None
    asker.ring.lookups.on_find_reply(other.peer, FindReply(1, wrong, 1))
    asker.port.turn()
    assert asker.answers(key) == []


def test_hops_grow_with_the_logarithm_of_the_clusters() -> None:
    world = grown(5, nodes=56, clusters=16, size=1, degree=30)
    arcs = world.arcs()
    assert len(arcs) >= 14
    world.run(120)  # fingers
    asker = world.primaries()[0]
    pointers = asker.ring.state.pointers
    for node in world.primaries():  # the cache would know all clusters: only pointers and fingers
        state = node.ring.state
        own = node.clusters.cluster
        assert own is not None
        fingers = [state.known.owner(finger_key(own.key, bit)) for bit in range(150, 160)]
        state.known.clear()
        for cluster in fingers:
            if cluster is not None:
                state.learn(cluster)
    find(world, asker, *(c.key for c in arcs))
    world.run(5)
    hops = [a.hops for c in arcs for a in asker.answers(c.key) if isinstance(a, OwnerFound)]
    assert len(hops) == len(arcs)
    assert 2 < max(hops) <= 5  # log2 of 16 clusters, and one
    assert len(pointers.successors) == pointers.length


def test_a_dead_way_is_left_as_soon_as_it_is_known_to_be_dead() -> None:
    world = grown(2, nodes=24, clusters=4)
    asker = next(n for n in world.members.values() if n.clusters.role == "none")
    asker.ring.state.settings = RingSettings(lookup_timeout=2.0)
    key = KEYS[3]
    (owner,) = world.owners(key)
    for node in world.primaries():
        assert node.clusters.cluster is not None
        asker.ring.learn(node.clusters.cluster)
    other = next(n for n in world.primaries() if n is not owner)
    assert other.clusters.cluster is not None
    wrong = replace(other.clusters.cluster, primary=Peer("f" * 16, ""), version=(99, 0))
    asker.ring.state.known.clear()
    asker.ring.learn(wrong)
    asker.ring.learn(owner.clusters.cluster)  # type: ignore[arg-type]
    asker.ring.state.route = (  # type: ignore[method-assign]
        lambda key, avoid=(): owner.peer if wrong.primary.id in avoid else wrong.primary
    )
    find(world, asker, key)
    world.run(world.notice + 0.3)  # well before the time-out of the lookup
    assert asker.ring.state.settings.lookup_timeout > world.notice + 0.3
    assert len(asker.answers(key)) == 1


def test_a_lookup_waits_at_a_member_for_the_next_primary() -> None:
    world = grown(4, nodes=12, clusters=1)
    (old,) = world.primaries()
    asker = next(n for n in world.members.values() if n.clusters.role == "none")
    key = KEYS[0]
    find(world, asker, key)
    world.run(2)
    assert asker.ring.owner(key) == old.clusters.cluster
    world.crash(old)
    world.run(world.notice + 0.05)  # all members know, none is elected
    assert asker.ring.owner(key) is None
    assert not world.primaries()
    world.sent.clear()
    find(world, asker, key)
    world.run(0.9)  # less than the time-out of a lookup
    (new,) = world.primaries()
    answer = asker.answers(key)[1]
    assert isinstance(answer, OwnerFound)
    assert answer.cluster.primary == new.peer
    assert len(messages(world, Find)) <= 2  # to a member, and from there to the new primary
    assert asker.ring.owner(key) == new.clusters.cluster


def test_what_waits_for_a_primary_is_bounded() -> None:
    world = grown(4, nodes=12, clusters=1)
    (old,) = world.primaries()
    member = next(n for n in world.members.values() if n.clusters.role == "broker")
    world.cut_link(member, old)  # from this one alone: no other is elected
    world.run(world.notice + 0.05)
    asker = next(n for n in world.members.values() if n.clusters.role == "none")
    for number in range(LOOKUPS_WAITING_MOST + 3):
        member.ring.lookups.on_find(asker.peer, Find(KEYS[0], asker.peer, number, 1))
    assert member.port.counts["lookups_dropped"] == 3


def test_a_lookup_that_was_passed_to_a_dead_node_takes_another_way() -> None:
    world = grown(2, nodes=24, clusters=4)
    between = next(n for n in world.members.values() if n.clusters.role == "none")
    asker = world.primaries()[0]
    key = next(k for k in KEYS if not asker.clusters.owns(k))
    dead = Peer("f" * 16, "")
    between.port.emit(LinkDown(dead, "gone", False, (Find(key, asker.peer, 1, 3),)))
    world.sent.clear()
    between.port.turn()
    assert [m.hop for _, _, m in world.sent if isinstance(m, Find)] == [4]

"""P5: a cluster that lost its majority for good goes on, under an epoch that forks off."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from overlay.chord.cluster.messages import ClusterHeartbeatReply
from overlay.chord.epochs import above_fork, fork_count, fork_id, new_fork
from overlay.chord.events import Elected, Replanted
from overlay.chord.keys import key_of
from overlay.chord.messages import Contact, Moved
from overlay.chord.recovery.messages import RecoverRequest
from overlay.machine import Peer
from tests.support.examples import seeds
from tests.support.rings import (
    UNRECOVERED,
    RingNode,
    RingWorld,
    cluster_of,
    grown,
    middle_of,
    slow_split,
)

KEY = key_of("attr:x")


def entry(text: str) -> bytes:
    return f"{KEY}:{text}".encode()


def written(world: RingWorld, *texts: str) -> None:
    for text in texts:
        assert world.write(KEY, text)
        world.run(0.3)


def leader(world: RingWorld, key: str = KEY) -> RingNode:
    (node,) = world.owners(key)
    return node


def epoch(node: RingNode) -> int:
    assert node.clusters.cluster is not None
    return node.clusters.cluster.version[0]


def look_up(world: RingWorld) -> None:
    """Outsiders who never had to do with the cluster would not miss it."""
    for node in world.members.values():
        node.ring.find(KEY)
        node.port.turn()
    world.run(1)


def members(world: RingWorld, node: RingNode) -> list[RingNode]:
    return [world.member(peer.id) for peer in node.clusters.members()]


def test_a_forks_epoch_is_above_all_of_its_cluster_and_of_its_own() -> None:
    rng = Random(1)
    first = [new_fork(7, 5, rng) for _ in range(50)]
    assert len(set(first)) > 45
    for epoch in first:
        assert (fork_count(7), fork_count(epoch), fork_count(epoch + 30_000)) == (0, 1, 1)
        again = new_fork(epoch + 30_000, 0, rng)
        assert fork_count(again) == 2
        assert again > epoch + 30_000
    assert fork_count(new_fork(7, 1_000, rng)) == 1
    assert new_fork(1_000_000 << 32, 1_000, rng) < 1 << 53


def test_who_outlives_a_fork_goes_on_in_its_branch_and_not_in_its_lineage() -> None:
    epoch = new_fork(7, 5, Random(3))
    rng = Random(4)
    above = [above_fork(epoch + 9, rng) + 1 for _ in range(50)]
    for each in above:
        assert each > epoch + 9
        assert fork_count(each) == fork_count(epoch)
        assert fork_id(each) != fork_id(epoch + 9) == fork_id(epoch)
    assert len(set(above)) > 40, "two that outlive the same fork are two"


def test_of_two_forks_the_one_that_saw_more_nodes_is_higher() -> None:
    rng = Random(2)
    assert max(new_fork(3, 4, rng) for _ in range(99)) < min(new_fork(3, 5, rng) for _ in range(99))


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize(("size", "deaths"), [(2, 1), (3, 2), (5, 3), (5, 4)])
def test_who_is_left_of_a_cluster_goes_on_with_the_log(seed: int, size: int, deaths: int) -> None:
    world = grown(seed, nodes=size + 2 if size > 2 else 2, clusters=1, size=size)
    written(world, "a", "b", "c")
    old = leader(world)
    others = [node for node in members(world, old) if node is not old]
    for node in [old, *others[: deaths - 1]]:
        world.crash(node)
    world.run(6)
    if size == 2:
        world.run(12)  # it reaches no node that it could ask
    new = leader(world)
    assert new in others
    assert new.registry.entries == [entry("a"), entry("b"), entry("c")]
    assert fork_count(epoch(new)) == 1
    assert [type(e) for e in new.events if isinstance(e, Elected | Replanted)] == [Elected]
    written(world, "d")
    world.run(6)
    world.members_agree()
    world.copies_agree()


@pytest.mark.parametrize("seed", seeds(4))
def test_a_primary_that_lost_all_its_voters_goes_on(seed: int) -> None:
    world = grown(seed, nodes=7, clusters=1, size=5)
    written(world, "a")
    old = leader(world)
    for node in members(world, old):
        if node is not old:
            world.crash(node)
    world.run(2)
    assert world.owners(KEY) == []
    world.run(4)
    assert leader(world) is old
    written(world, "b")
    world.run(6)
    assert len(old.clusters.members()) == 3
    world.copies_agree()


@pytest.mark.parametrize("seed", seeds(6))
def test_a_primary_that_lost_the_majority_goes_on_with_who_is_left(seed: int) -> None:
    world = grown(seed, nodes=9, clusters=1, size=5)
    written(world, "a")
    old = leader(world)
    for node in [node for node in members(world, old) if node is not old][:3]:
        world.crash(node)
    world.run(8)
    assert leader(world) is old
    assert fork_count(epoch(old)) == 1
    written(world, "b")
    world.run(6)
    world.members_agree()
    world.copies_agree()


@pytest.mark.parametrize("seed", seeds(6))
def test_outsiders_begin_again_where_the_whole_cluster_is_lost(seed: int) -> None:
    world = grown(seed, nodes=10, clusters=1, size=5)
    written(world, "a")
    old = leader(world)
    ring = old.ring.id
    look_up(world)
    for node in members(world, old):
        world.crash(node)
    world.run(8)
    new = leader(world)
    assert new.registry.entries == []
    assert new.ring.id == ring
    assert [e.others for e in new.events if isinstance(e, Replanted)] == [False]
    world.run(8)
    assert leader(world).clusters.cluster is not None
    assert len(world.primaries()) == 1
    assert len(new.clusters.members()) == 5
    written(world, "b")
    world.run(2)
    world.members_agree()
    world.copies_agree()


@pytest.mark.parametrize("seed", seeds(6))
def test_the_ring_successor_takes_the_arc_of_a_cluster_that_is_lost_whole(seed: int) -> None:
    world = grown(seed, nodes=12, clusters=3, size=3)
    assert len(world.arcs()) == 3
    leading = world.primaries()
    lost = leading[1].clusters.cluster
    assert lost is not None
    for node in members(world, leading[1]):
        world.crash(node)
    world.run(10)
    new = leader(world, lost.key)
    assert new.clusters.cluster is not None
    assert new.clusters.cluster.owns(leading[2].clusters.cluster.key)  # type: ignore[union-attr]
    assert fork_count(epoch(new)) == 1
    assert [e.lost.key for e in new.events if isinstance(e, Replanted)] == [lost.key]
    world.run(8)
    assert len(world.arcs()) == 2
    world.ring_is_whole()
    world.members_agree()


@pytest.mark.parametrize("seed", seeds(6))
def test_clusters_that_took_each_others_arcs_while_cut_off_give_them_back(seed: int) -> None:
    world = grown(seed, nodes=12, clusters=3, size=3)
    world.run(10)
    leading = world.primaries()
    here = members(world, leading[1])
    there = [node for node in world.members.values() if node not in here]
    for one in here:
        for other in there:
            world.cut_link(one, other)
    world.run(12)
    assert leading[1].clusters.is_primary  # of the whole ring, as it sees it
    for one in here:
        for other in there:
            world.heal_link(one, other)
    world.run(30)
    assert world.primaries() == leading  # each has kept its own
    world.ring_is_whole()
    world.members_agree()


@pytest.mark.parametrize("seed", seeds(4))
def test_a_lost_cluster_that_comes_back_is_fenced(seed: int) -> None:
    world = grown(seed, nodes=9, clusters=1, size=5)
    written(world, "a")
    gone = members(world, leader(world))
    look_up(world)
    for node in gone:
        world.crash(node)
    world.run(10)
    new = leader(world)
    written(world, "b")
    for node in gone:
        world.restart(node)
    world.run(25)
    assert len(world.primaries()) == 1
    assert entry("b") in leader(world).registry.entries
    assert fork_count(epoch(leader(world))) == 1
    assert new.peer.id in world.members
    world.members_agree()
    world.copies_agree()


@pytest.mark.parametrize("forks", ["one", "one after the other"])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_cluster_that_was_only_out_of_sight_outlives_its_forks(seed: int, forks: str) -> None:
    """One of all who do not see it; or one of each of them, that are met one after the other, the
    one with the highest epoch last."""
    world = grown(seed, nodes=10, clusters=1, size=5)
    written(world, "a")
    old = leader(world)
    world.run(10)
    look_up(world)
    here = members(world, old)
    there = [node for node in world.members.values() if node not in here]
    ways = [(one, other) for other in there for one in here]
    if forks != "one":
        ways += [(one, other) for other in there for one in there if one is not other]
    for one, other in ways:
        world.cut_link(one, other)
    world.run(12 if forks == "one" else 30)
    leading = world.primaries()
    assert old in leading
    assert len(leading) == (2 if forks == "one" else 6)  # each side serves itself
    seen = list(here)
    for node in sorted(there, key=lambda each: epoch(each) if each in leading else 0):
        for one in seen:
            world.heal_link(one, node)
        seen.append(node)
        world.run(0 if forks == "one" else 5)
    world.run(15)
    assert world.primaries() == [old]
    assert old.registry.entries == [entry("a")]
    assert fork_count(epoch(old)) == 1  # above the forks
    world.members_agree()


def test_of_a_cluster_and_its_fork_that_has_elected_another_primary_one_goes_on() -> None:
    """Both were led all the time by who was elected, and override a fork of the fork, and then each
    other, but not for ever."""
    world = grown(1, nodes=12, clusters=1, size=5)
    old = leader(world)
    world.run(10)
    inside = members(world, old)
    there = [*inside[-2:], *(n for n in world.members.values() if n not in inside)][:6]
    here = [node for node in world.members.values() if node not in there]
    for one in there:
        for other in here:
            world.cut_link(one, other)
    world.run(20)
    (fork,) = [node for node in world.primaries() if node in there]
    assert fork_count(epoch(fork)) == 1
    world.crash(fork)
    world.run(20)
    (elected,) = [node for node in world.primaries() if node in there]
    assert fork_id(epoch(elected)) != fork_id(epoch(old))
    lone = next(n for n in there if n is not fork and n is not elected)
    for one in there:
        world.cut_link(one, lone)
    world.run(40)
    assert fork_count(epoch(lone)) == 2
    living = list(world.members.values())
    for one in living:
        for other in living:
            if one is not other:
                world.heal_link(one, other)
    world.run(30)
    assert len(world.primaries()) == 1
    world.members_agree()
    world.copies_agree()


@pytest.mark.parametrize("cut", [3.4, 4.5, 8.0])
@pytest.mark.parametrize("deposed", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_majority_that_was_led_outlives_the_fork_of_the_others(
    seed: int, deposed: bool, cut: float
) -> None:
    world = grown(seed, nodes=9, clusters=1, size=5)
    old = leader(world)
    world.run(12)
    look_up(world)
    rest = [node for node in members(world, old) if node is not old]
    idle = [n for n in world.members.values() if n.clusters.role == "none"]
    one, three = [*rest[:1], *idle[:2]], rest[1:]
    few, many = ([*one, old], three) if deposed else (one, [*three, old])
    for here in few:
        for there in (*many, *idle[2:]):
            world.cut_link(here, there)
    world.run(3.3)
    (chosen,) = [n for n in world.primaries() if n in many]
    assert chosen.registry.write(KEY, "kept")
    world.run(cut - 3.3)
    forked = [n for n in world.primaries() if fork_count(epoch(n))]
    for here in few:
        for there in (*many, *idle[2:]):
            world.heal_link(here, there)
    world.run(15)
    assert world.primaries() == [chosen]
    assert entry("kept") in chosen.registry.entries
    assert fork_count(epoch(chosen)) == 1 or not forked
    assert forked or cut < 4
    world.members_agree()
    world.copies_agree()


def test_a_fork_does_not_raise_its_epoch_above_those_who_outlived_it() -> None:
    world = grown(3, nodes=5, clusters=1, size=5)
    node = leader(world)
    world.run(12)
    assert node.clusters.cluster is not None
    fork = new_fork(1, 3, Random(1))
    node.clusters.role_changes.lead_own_log(fork)
    key = node.clusters.cluster.key
    reply = ClusterHeartbeatReply(key, fork, 1, fork + 5)
    node.clusters.role_changes.on_heartbeat_reply(node.peer, reply)
    assert epoch(node) == fork + 6, "granted by the only voter, itself"
    reply = ClusterHeartbeatReply(key, fork + 6, 1, above_fork(fork, Random(2)) + 1)
    node.clusters.role_changes.on_heartbeat_reply(node.peer, reply)
    assert epoch(node) == fork + 6


def test_one_broken_link_makes_no_fork() -> None:
    world = grown(3, nodes=8, clusters=1, size=3)
    old = leader(world)
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    world.cut_link(old, outsider)
    world.run(20)
    assert leader(world) is old
    assert fork_count(epoch(old)) == 0
    assert all(not n.port.counts.get("clusters_recovered") for n in world.members.values())


def test_what_is_ours_already_is_not_taken_from_a_lost_cluster_of_which_we_know_older_things() -> (
    None
):
    """A word of it from before it gave part of its arc to us reaches back over our own key."""
    world = grown(3, nodes=10, clusters=2, election=UNRECOVERED)
    one, two = world.primaries()
    lost, own = one.clusters.cluster, two.clusters.cluster
    assert lost is not None
    assert own is not None
    older = msgspec.structs.replace(lost, start=middle_of(own))
    for member in lost.members():
        world.crash(world.member(member.id))
    two.clusters.role_changes.take_over_arc(older, own.version[0])
    two.port.turn()
    world.run(1)
    grown_to = two.clusters.cluster
    assert grown_to is not None
    assert (grown_to.start, grown_to.key) == (own.key, own.key), "the whole ring"


def test_an_arc_that_another_fork_has_is_given_up_though_it_was_to_go_to_another_cluster() -> None:
    world = grown(4, nodes=12, clusters=1)
    (node,) = world.primaries()
    own = node.clusters.cluster
    assert own is not None
    slow_split(world, node)
    handover = node.clusters.handovers.current
    assert handover is not None
    stranger = Peer("f" * 16, "stranger")
    epoch = new_fork(own.version[0], 5, Random(1))
    other = msgspec.structs.replace(
        handover.arc, version=(epoch, 0), primary=stranger, standby=None, brokers=()
    )
    node.clusters.role_changes.fence(other)
    node.port.turn()
    assert node.clusters.handovers.current is None
    assert node.clusters.cluster is not None
    assert node.clusters.cluster.start == other.key


# --- small clusters that lose one member after the other ---


def elsewhere(world: RingWorld) -> str:
    """A key of another cluster than KEY's."""
    return next(arc.key for arc in world.arcs() if not arc.owns(KEY))


@pytest.mark.parametrize("seed", seeds(4))
def test_a_former_primary_that_is_back_does_not_pass_for_the_leader(seed: int) -> None:
    world = grown(seed, nodes=6, clusters=2, size=3)
    first = leader(world)
    world.crash(first)
    world.run(3)
    second = leader(world)
    (last,) = [node for node in members(world, second) if node is not second]
    world.crash(second)
    assert last.clusters.cluster is not None
    old = msgspec.structs.replace(last.clusters.cluster, version=(1, 0), primary=first.peer)
    for _ in range(12):  # asked who leads, it answers as it knew it
        last.port.hear(Moved(old), first.peer)
        world.run(0.5)
    assert leader(world) is last


def test_who_was_started_lately_waits_for_no_cluster_that_it_joined_since() -> None:
    world = grown(1, nodes=7, clusters=2, size=3)
    one, other = (leader(world, key) for key in (KEY, elsewhere(world)))
    late = next(node for node in members(world, other) if node is not other)
    world.crash(late)
    world.run(8)  # another takes its place
    late = world.restart(late)
    (gone,) = [node for node in members(world, one) if node is not one][:1]
    world.crash(gone)
    world.run(4)  # it takes that one's place
    assert late in members(world, leader(world))
    for node in members(world, leader(world)):
        if node is not late:
            world.crash(node)
    world.run(6)
    assert leader(world) is late


def last_one_back(seed: int, more: bool = False) -> tuple[RingWorld, RingNode, list[bytes]]:
    """A cluster is lost whole, and one member comes back a second later with its disk: what its
    log has, and whether it has `more` of that than the successor's copy."""
    world = grown(seed, nodes=8, clusters=2, size=3)
    written(world, "a", "b")
    one = leader(world)
    last = next(node for node in members(world, one) if node is not one)
    if more:
        for node in world.primaries():
            node.clusters.observed_logs.forget(one.clusters.cluster.key)  # type: ignore[union-attr]
    for node in members(world, one):
        world.crash(node)
    world.run(1)
    return world, world.restart(last), [entry("a"), entry("b")]


@pytest.mark.parametrize("seed", seeds(3, first=1))
def test_who_comes_back_alone_does_not_keep_the_successor_from_acting(seed: int) -> None:
    world, back, _ = last_one_back(seed)
    world.run(5)
    new = leader(world)
    assert new is not back
    assert len([e for e in new.events if isinstance(e, Replanted)]) == 1
    world.run(10)
    assert world.owners(KEY) == [new]
    world.members_agree()


def test_who_comes_back_with_more_of_the_log_than_the_successor_leads_when_it_has_waited() -> None:
    world, back, entries = last_one_back(1, more=True)
    world.run(5)
    assert not world.owners(KEY)
    world.run(8)
    assert leader(world) is back
    assert back.registry.entries == entries


def test_leaders_of_other_clusters_are_hardly_looked_for_while_one_cluster_is_lost() -> None:
    """Outsiders have to know whether all are lost; asked one after the other, all would ask all."""
    world = grown(0, nodes=60, clusters=4, size=3)
    lost = cluster_of(world.primaries()[0])
    others = {cluster_of(each).key for each in world.primaries()} - {lost.key}
    world.sent.clear()
    for node in members(world, world.primaries()[0]):
        world.crash(node)
    world.run(10)
    spread = [
        message
        for _, _, message in world.sent
        if isinstance(message, RecoverRequest) and message.cluster.key in others
    ]
    assert not spread, "whoever looks for them asks them alone, and gets an answer"
    asked = sum(isinstance(message, Contact) for _, _, message in world.sent)
    assert asked < 3_000, "6,700 when all asked all"
    assert world.owners(lost.key)


@pytest.mark.parametrize("signed", [False, True])
def test_an_arc_that_its_cluster_has_left_gets_an_owner_while_others_look_for_that(
    signed: bool,
) -> None:
    """The former members lead nothing and agree to nothing. As often as one of them says so, the
    others forget the cluster, and are soon asked by another node to look for it."""
    world = grown(0, nodes=10, clusters=3, size=3, signed=signed)
    gone = cluster_of(world.primaries()[0])
    for node in members(world, world.primaries()[0]):
        node.clusters.membership.leave_cluster("fenced by a fork")
        node.port.turn()
    (successor,) = (each for each in world.primaries() if cluster_of(each).start == gone.key)
    for _ in range(30):  # each second, as if each had heard of it just now
        for node in world.members.values():
            if not world.owners(gone.key) and node not in world.primaries():
                node.clusters.recovery.suspect(gone)
                node.port.turn()
        world.run(1)
    assert world.owners(gone.key) == [successor]
    world.ring_is_whole()

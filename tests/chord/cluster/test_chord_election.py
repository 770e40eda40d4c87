"""Elections (P4): a cluster survives its primary; an epoch has one primary; fenced ones stop."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from overlay.chord.cluster.election import CampaignDue
from overlay.chord.cluster.journal import Journal
from overlay.chord.cluster.messages import LogAck, LogEntries, RequestVote, VoteReply
from overlay.chord.epochs import new_fork
from overlay.chord.events import Elected
from overlay.chord.keys import key_of
from overlay.chord.messages import Rejoin
from overlay.settings import ClusterSettings, ElectionSettings
from tests.support.examples import seeds
from tests.support.rings import UNRECOVERED, RingNode, RingWorld, ServedOnce, grown, middle_of

KEY = key_of("attr:x")
SOON = 1.5
"""Seconds in which another primary has to serve."""


def primary(world: RingWorld) -> RingNode:
    (node,) = world.primaries()
    return node


def others(world: RingWorld, node: RingNode) -> list[RingNode]:
    return [world.member(p.id) for p in node.clusters.log.voters if p != node.peer]


def standby(world: RingWorld) -> RingNode:
    return next(n for n in world.members.values() if n.clusters.role == "standby")


def watch(world: RingWorld) -> dict[tuple[str, int], str]:
    """After every step: a key has one owner, an epoch one primary."""
    led: dict[tuple[str, int], str] = {}
    served_once = ServedOnce(world, [KEY])

    def one_owner_and_one_primary() -> None:
        leading = world.leading()
        served_once.look(leading)
        for node in leading:
            cluster = node.clusters.cluster
            assert cluster is not None
            who = led.setdefault((cluster.key, cluster.version[0]), node.peer.id)
            assert who == node.peer.id, "two primaries of one epoch"

    world.checks.append(one_owner_and_one_primary)
    return led


def cut_off(world: RingWorld, node: RingNode) -> None:
    for other in list(world.members.values()):
        if other is not node:
            world.cut_link(node, other)


def heal(world: RingWorld, node: RingNode) -> None:
    for other in list(world.members.values()):
        if other is not node:
            world.heal_link(node, other)


@pytest.mark.parametrize("seed", seeds(6, first=3))
def test_the_standby_takes_the_place_of_a_killed_primary_soon(seed: int) -> None:
    world = grown(seed, nodes=7, clusters=1, size=5)
    watch(world)
    old, new_primary = primary(world), standby(world)
    for n in range(5):
        world.write(KEY, f"{n}")
    world.run(1)
    committed = list(old.registry.durable)
    assert len(committed) == 5
    world.crash(old)
    world.run(SOON)
    assert world.owners(KEY) == [new_primary]
    assert new_primary.clusters.cluster is not None
    assert new_primary.clusters.cluster.version[0] == 2
    assert new_primary.registry.entries == committed
    assert [e.lost for e in new_primary.events if isinstance(e, Elected)] == [old.peer]
    assert world.write(KEY, "goes on")
    world.run(10)
    assert len(new_primary.registry.durable) == 1
    world.members_agree()
    world.copies_agree()
    assert len(new_primary.clusters.log.voters) == 5  # the lost one was voted out, another in


@pytest.mark.parametrize("seed", seeds(4))
def test_if_the_standby_dies_too_a_match_broker_nominates_itself(seed: int) -> None:
    world = grown(seed, nodes=5, clusters=1, size=5)
    watch(world)
    world.write(KEY, "kept")
    world.run(1)
    old, new_primary = primary(world), standby(world)
    world.crash(old)
    world.crash(new_primary)
    world.run(3 * SOON)
    (new,) = world.owners(KEY)
    assert new.registry.entries == [f"{KEY}:kept".encode()]


@pytest.mark.parametrize("commit", ["majority", "more"])
def test_a_majority_goes_on_without_the_primary_and_another_voter(commit: str) -> None:
    """Where one may lie four of five have to have an entry: the lost ones are voted out first, by a
    change that only the three that are left have."""
    world = grown(5, nodes=5, clusters=1, cluster=ClusterSettings(size=5, commit=commit))
    leading = primary(world)
    assert len(leading.clusters.log.voters) == 5
    for node in (leading, standby(world)):
        world.crash(node)
    world.run(12)
    assert world.write(KEY, "after")
    world.run(1)
    assert len(primary(world).clusters.log.voters) == 3
    world.copies_agree()


def test_without_a_majority_no_candidate_is_elected() -> None:
    world = grown(1, nodes=5, clusters=1, size=5, election=UNRECOVERED)
    node = primary(world)
    dead = others(world, node)[:2]
    for gone in (node, *dead):
        world.crash(gone)
    world.run(20)
    assert world.primaries() == []


def test_a_broken_link_between_primary_and_standby_makes_no_election() -> None:
    world = grown(2, nodes=5, clusters=1, size=5)
    node = primary(world)
    world.cut_link(node, standby(world))
    world.run(0.9)
    world.run(5)
    assert primary(world) is node
    assert node.clusters.cluster is not None
    assert node.clusters.cluster.version[0] == 1


@pytest.mark.parametrize("seed", seeds(6))
def test_a_primary_that_was_cut_off_stops_before_another_serves_and_is_fenced(seed: int) -> None:
    world = grown(seed, nodes=5, clusters=1, size=5)
    watch(world)
    old = primary(world)
    world.write(KEY, "before")
    world.run(1)
    cut_off(world, old)
    old.clusters.append(b"never")  # what a minority takes is not committed …
    world.run(4)
    assert old.clusters.is_primary  # it cannot know
    assert not old.clusters.owns(KEY)
    (new,) = world.owners(KEY)
    heal(world, old)
    world.run(10)
    assert old.port.counts["fenced"] == 1
    assert old.clusters.role in ("broker", "standby")  # recruited again
    assert b"never" not in new.registry.entries  # … and is gone
    world.members_agree()
    world.copies_agree()


def test_a_voter_grants_an_epoch_once_and_stores_that_before_it_answers() -> None:
    world = grown(3, nodes=5, clusters=1, size=5)
    node = primary(world)
    voter, one, two, _ = others(world, node)
    cluster = voter.clusters.cluster
    assert cluster is not None
    world.crash(node)
    voter.clusters.heartbeat._timeout_at = 0.0  # long silent
    log = voter.clusters.log
    ask = RequestVote(cluster.key, 9, log.position, False, False)
    world.sent.clear()
    voter.clusters.election.on_request_vote(one.peer, ask)
    assert Journal(voter.port, world.disks[voter.peer.id]).votes[cluster.key].epoch == 9
    voter.clusters.election.on_request_vote(two.peer, ask)
    answers = [m for s, _, m in world.sent if isinstance(m, VoteReply) and s == voter.peer.id]
    assert [m.granted for m in answers] == [True, False]


def test_a_voter_grants_nothing_to_a_log_that_is_behind_its_own() -> None:
    world = grown(3, nodes=5, clusters=1, size=5)
    node = primary(world)
    voter, one, *_ = others(world, node)
    cluster = voter.clusters.cluster
    assert cluster is not None
    world.crash(node)
    voter.clusters.heartbeat._timeout_at = 0.0
    epoch, following = voter.clusters.log.position
    world.sent.clear()
    ask = RequestVote(cluster.key, 9, (epoch, following - 1), False, False)
    voter.clusters.election.on_request_vote(one.peer, ask)
    assert [m.granted for _, _, m in world.sent if isinstance(m, VoteReply)] == [False]


def test_who_has_heard_of_a_fork_but_has_not_its_log_neither_stands_nor_is_granted() -> None:
    world = grown(3, nodes=5, clusters=1, size=5)
    node = primary(world)
    voter, one, *_ = others(world, node)
    cluster = voter.clusters.cluster
    assert cluster is not None
    fork = msgspec.structs.replace(cluster, version=(new_fork(1, 3, Random(1)), 0))
    world.crash(node)
    voter.clusters.cluster_role.adopt(fork, "named by the primary")
    voter.clusters.heartbeat._timeout_at = 0.0
    world.sent.clear()
    after = fork.version[0] + 1
    for position, granted in ((voter.clusters.log.position, False), ((after - 1, 1), True)):
        ask = RequestVote(cluster.key, after, position, True, False)
        voter.clusters.election.on_request_vote(one.peer, ask)
        answers = [m for _, _, m in world.sent if isinstance(m, VoteReply)]
        assert [m.granted for m in answers] == [granted]
        world.sent.clear()
    voter.clusters.election.suspect()
    voter.clusters.election.on_campaign_due(CampaignDue())
    assert voter.clusters.election.campaign is None


def test_a_voter_that_has_granted_takes_no_entries_of_an_older_epoch() -> None:
    world = grown(3, nodes=3, clusters=1, size=3)
    node = primary(world)
    voter, one = others(world, node)
    cluster = voter.clusters.cluster
    assert cluster is not None
    log = voter.clusters.log
    log.vote(cluster.key, 2, one.peer.id)
    world.sent.clear()
    items = node.clusters.log.voter_log.after((1, 0)) or ()  # type: ignore[union-attr]
    log.on_entries(node.peer, LogEntries(cluster.key, 1, log.position, items[:1]))
    assert not [m for _, _, m in world.sent if isinstance(m, LogAck)]
    assert voter.port.counts["log_refused"] == 1


def test_a_restarted_voter_without_its_log_grants_nothing() -> None:
    world = grown(3, nodes=3, clusters=1, size=3)
    voter, one = others(world, primary(world))
    cluster = voter.clusters.cluster
    assert cluster is not None
    voter.clusters.log.forget_log()
    world.sent.clear()
    ask = RequestVote(cluster.key, 9, (8, 99), False, True)
    voter.clusters.election.on_request_vote(one.peer, ask)
    assert not world.sent


def test_the_ring_neighbours_hear_of_a_new_primary_at_once() -> None:
    world = grown(4, nodes=40, clusters=6, size=5)
    lost = world.primaries()[2]
    before = lost.clusters.cluster
    assert before is not None
    world.crash(lost)
    world.run(SOON)
    assert [m for _, _, m in world.sent if isinstance(m, Rejoin)]
    asker = world.primaries()[0]
    asker.events.clear()
    asker.ring.find(before.key)
    asker.port.turn()
    world.run(1)
    assert len(asker.answers(before.key)) == 1
    world.run(10)
    world.ring_is_whole()


def test_the_new_owner_of_a_split_that_was_under_way_serves_the_whole_arc() -> None:
    world = grown(1, nodes=14, clusters=1, size=5)
    watch(world)
    node = primary(world)
    assert node.clusters.cluster is not None
    node.registry.slow = True
    node.clusters.request_split(middle_of(node.clusters.cluster))
    world.run(6)
    world.crash(node)
    world.run(10)
    world.ring_is_whole()
    assert len(world.owners(KEY)) == 1


@pytest.mark.parametrize("seed", seeds(16))
def test_nothing_committed_is_lost_by_kills_or_cuts(seed: int) -> None:
    """Kills, partitions and heals at random; a majority of the voters is left each time."""
    world = grown(seed, nodes=7, clusters=1, size=5)
    watch(world)
    durable: dict[bytes, None] = {}

    def look() -> None:
        for node in world.members.values():
            durable.update(dict.fromkeys(node.registry.durable))

    world.checks.append(look)
    for step in range(8):
        for n in range(3):
            world.write(KEY, f"{step}.{n}")
            world.run(0.3 * world.rng.random())
        leading = world.owners(KEY)
        victim = leading[0] if leading else world.rng.choice(list(world.members.values()))
        if step % 2:
            cut_off(world, victim)
            world.run(6 * world.rng.random())
            heal(world, victim)
        else:
            world.crash(victim)
            world.add()
        world.run(8)
    world.run(15)
    (node,) = world.owners(KEY)
    assert len(durable) > 10
    assert not [entry for entry in durable if entry not in node.registry.entries]
    world.copies_agree()
    world.members_agree()


def test_the_lease_ends_before_another_member_may_be_elected() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    node = primary(world)
    cut_off(world, node)
    world.run(0.9 * ElectionSettings().suspect_after)
    assert not node.clusters.owns(KEY)
    assert world.primaries() == [node]

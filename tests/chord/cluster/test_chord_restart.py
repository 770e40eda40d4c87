"""The log on disk (P1): a voter remembers, a cluster survives that all of it is started again."""

from __future__ import annotations

import msgspec
import pytest

from overlay.chord.cluster import journal as module
from overlay.chord.cluster.journal import Journal
from overlay.chord.cluster.messages import RequestVote
from overlay.chord.constants import RESTARTING
from overlay.chord.events import Elected
from overlay.chord.keys import key_of
from overlay.machine import Peer
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, grown, middle_of

KEY = key_of("attr:x")


def entry(text: str) -> bytes:
    return f"{KEY}:{text}".encode()


def written(world: RingWorld, *texts: str) -> list[bytes]:
    """Write these; they are committed."""
    for text in texts:
        assert world.write(KEY, text)
        world.run(0.3)
    return [entry(text) for text in texts]


def stop_all(world: RingWorld) -> list[RingNode]:
    nodes = list(world.members.values())
    for node in nodes:
        world.crash(node)
    world.run(2)
    return nodes


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("nodes", [1, 2, 3, 6])
def test_all_stopped_at_once_and_started_again_serve_with_what_they_had(
    seed: int, nodes: int
) -> None:
    world = grown(seed, nodes=nodes, clusters=1, size=5)
    kept = written(world, "a", "b", "c")
    (old,) = world.primaries()
    assert old.clusters.cluster is not None
    ring, epoch = old.clusters.cluster.ring, old.clusters.cluster.version[0]
    stopped = stop_all(world)
    world.rng.shuffle(stopped)
    for node in stopped:
        world.restart(node)
        world.run(0.2)
    world.run(8)
    (leader,) = world.owners(KEY)
    assert leader.registry.entries == kept
    assert leader.clusters.cluster is not None
    assert leader.clusters.cluster.ring == ring
    assert leader.clusters.cluster.version[0] > epoch
    assert [type(e) for e in leader.events if isinstance(e, Elected)] == [Elected]
    assert all(node.port.counts.get("founded", 0) == 0 for node in world.members.values())
    written(world, "d")
    world.run(5)
    world.members_agree()
    world.copies_agree()


def test_a_primary_that_was_started_again_does_not_ask_itself_who_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = grown(1, nodes=3, clusters=1, size=3)
    (old,) = world.primaries()
    stop_all(world)
    again = world.restart(old)
    world.run(0.1)
    own = again.clusters.cluster
    assert own is not None
    assert own.primary.id == again.port.me.id
    assert not again.clusters.is_primary
    newer = msgspec.structs.replace(
        own, version=(own.version[0] + 1_000, 0), primary=Peer("z", "z")
    )
    sent: list[str] = []
    monkeypatch.setattr(again.port, "send", lambda peer, message: sent.append(peer.id))
    monkeypatch.setattr(again.clusters.heartbeat, "is_primary_silent", lambda: False)
    again.clusters.role_changes.fence(newer)
    assert again.port.me.id not in sent


@pytest.mark.parametrize("seed", seeds(4))
def test_the_old_primary_alone_leads_nothing_and_a_majority_without_it_does(seed: int) -> None:
    world = grown(seed, nodes=3, clusters=1, size=3)
    kept = written(world, "a", "b")
    (old,) = world.primaries()
    one, two = [node for node in stop_all(world) if node.number != old.number]
    again = world.restart(old)
    world.run(10)
    assert not again.clusters.is_primary
    assert world.owners(KEY) == []
    world.crash(again)
    world.run(2)
    world.restart(one)
    world.restart(two)
    world.run(10)
    (leader,) = world.owners(KEY)
    assert leader.number != old.number
    assert leader.registry.entries == kept


def test_a_voter_that_was_started_again_has_what_it_had_and_its_vote_counts() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    written(world, "a")
    (leader,) = world.primaries()
    voters = [world.member(p.id) for p in leader.clusters.log.voters if p != leader.peer]
    world.crash(voters[0])
    world.run(1.1)  # until its silence is noticed
    written(world, "b")
    again = world.restart(voters[0])
    assert again.registry.entries == [entry("a")]
    world.run(3)
    assert again.registry.entries == [entry("a"), entry("b")]
    world.crash(leader)
    world.crash(voters[1])
    world.run(5)
    (leader,) = world.owners(KEY)  # three of five, one of which was started again
    assert leader.registry.entries == [entry("a"), entry("b")]


def test_a_node_that_lost_its_disk_grants_nothing_until_it_has_a_copy() -> None:
    world = grown(2, nodes=3, clusters=1, size=3)
    written(world, "a")
    (leader,) = world.primaries()
    cluster = leader.clusters.cluster
    assert cluster is not None
    one, two = [world.member(p.id) for p in leader.clusters.log.voters if p != leader.peer]
    stop_all(world)
    empty = world.restart(one, wiped=True)
    asking = world.restart(two)
    world.run(10)
    assert world.primaries() == []
    ask = RequestVote(cluster.key, 50, asking.clusters.log.position, False, False)
    world.sent.clear()
    empty.clusters.election.on_request_vote(asking.peer, ask)
    assert world.sent == []
    world.restart(leader)
    world.run(10)
    (again,) = world.owners(KEY)
    assert again.registry.entries == [entry("a")]


def test_a_voter_that_was_started_again_is_as_patient_as_it_has_promised() -> None:
    world = grown(3, nodes=3, clusters=1, size=3)
    (leader,) = world.primaries()
    voters = [world.member(p.id) for p in leader.clusters.log.voters if p != leader.peer]
    for voter in voters:
        voter.clusters.journal.store_election_timeout(3.0)
    asks = [world.restart(voter) for voter in voters if world.crash(voter) is None]
    world.cut_link(leader, asks[0])
    world.cut_link(leader, asks[1])
    world.run(2.9)
    assert not any(node.clusters.is_primary for node in asks)
    world.run(9)
    assert any(node.clusters.is_primary for node in asks)


def test_a_long_timeout_that_was_promised_is_forgotten_when_shorter_ones_do() -> None:
    world = grown(3, nodes=3, clusters=1, size=3)
    (leader,) = world.primaries()
    voter = next(world.member(p.id) for p in leader.clusters.log.voters if p != leader.peer)
    journal = voter.clusters.journal
    journal.store_election_timeout(8.0)
    world.run(2)  # heartbeats ask for a second
    assert journal.election_timeout == 2.0
    voter = world.restart(voter)
    assert voter.clusters.journal.election_timeout == 2.0


def test_a_promise_that_stands_is_not_forgotten_for_a_shorter_one() -> None:
    world = grown(3, nodes=3, clusters=1, size=3)
    (leader,) = world.primaries()
    voter = next(world.member(p.id) for p in leader.clusters.log.voters if p != leader.peer)
    voter.clusters.heartbeat.resume(8.0)
    voter.clusters.journal.store_election_timeout(8.0)
    world.run(1)
    assert voter.clusters.journal.election_timeout == 16.0
    world.run(8)
    assert voter.clusters.journal.election_timeout < 8.0


def test_the_last_member_leads_on_though_its_primary_had_asked_it_to_wait() -> None:
    world = grown(3, nodes=8, clusters=2, size=3)
    leader = world.primaries()[0]
    own = leader.clusters.cluster
    assert own is not None
    members = [world.member(peer.id) for peer in own.members()]
    last = next(member for member in members if member is not leader)
    last.clusters.journal.store_election_timeout(8.0)
    for member in members:
        world.crash(member)
    world.run(1)
    again = world.restart(last)
    world.run(16.0 + RESTARTING)  # the promise, as it is stored, and then as for others
    assert world.owners(own.key) == [again]


def test_the_file_grows_to_a_few_times_the_state_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOURNAL_GROWTH_LEAST", 2_000)
    world = grown(4, nodes=3, clusters=1, size=3)
    (leader,) = world.primaries()
    sizes = []
    for number in range(200):
        leader.registry.entries.clear()  # a state that stays small while its log grows
        for other in world.members.values():
            other.registry.entries.clear()
        world.write(KEY, f"{number}" * 20)
        world.run(0.2)
        sizes += [sum(map(len, disk)) for disk in world.disks.values()]
    assert max(sizes) < 10_000
    position = leader.clusters.log.position
    voted_epoch = dict(leader.clusters.journal.votes)
    assert voted_epoch
    for node in [world.restart(node) for node in stop_all(world)]:
        assert node.clusters.log.position == position
        assert node.clusters.journal.votes.keys() == voted_epoch.keys()


def test_the_new_owner_of_a_split_keeps_its_arc_and_the_others_forget_it() -> None:
    world = grown(5, nodes=8, clusters=1, size=3)
    written(world, "a")
    (old,) = world.primaries()
    assert old.clusters.cluster is not None
    old.clusters.request_split(middle_of(old.clusters.cluster))
    world.run(12)
    before = [(c.start, c.key) for c in world.arcs()]
    assert len(before) == 2
    voter_log = [list(node.registry.entries) for node in world.primaries()]
    assert sorted(voter_log) == [[], [entry("a")]]
    for node in stop_all(world):
        world.restart(node)
    world.run(10)
    assert [(c.start, c.key) for c in world.arcs()] == before
    assert [node.registry.entries for node in world.primaries()] == voter_log


def test_a_member_that_was_released_comes_back_without_a_role() -> None:
    world = grown(6, nodes=4, clusters=1, size=3)
    (leader,) = world.primaries()
    member = world.member(leader.clusters.members()[-1].id)
    member.clusters.leave()
    world.run(8)
    assert member.clusters.left
    world.crash(member)
    again = world.restart(member)
    assert again.clusters.cluster is None
    assert Journal(again.port, world.disks[again.peer.id]).take_up() is None


def test_the_last_member_takes_its_arc_with_it_and_brings_it_back() -> None:
    world = grown(7, nodes=1, clusters=1)
    kept = written(world, "a")
    (alone,) = world.primaries()
    alone.clusters.leave()
    assert alone.clusters.left
    world.crash(alone)
    again = world.restart(alone)
    world.run(1)
    assert world.owners(KEY) == [again]
    assert again.registry.entries == kept

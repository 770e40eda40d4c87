"""The log and its copies at the voters (P1): what is committed is with a majority of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overlay.chord.cluster.leader_log import snapshot_pieces
from overlay.chord.cluster.messages import LogAck, LogEntries, LogEntry, LogSnapshot
from overlay.chord.constants import SNAPSHOT_PIECE
from overlay.chord.events import ArcGone, Committed, EntryReceived, LogReset
from overlay.chord.keys import key_of
from overlay.machine import Peer
from overlay.settings import ClusterSettings
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, grown

KEY = key_of("attr:x")


def primary(world: RingWorld) -> RingNode:
    (node,) = world.primaries()
    return node


def standby(world: RingWorld) -> RingNode:
    return next(n for n in world.members.values() if n.clusters.role == "standby")


def commits(node: RingNode) -> list[int]:
    return [e.next for e in node.events if isinstance(e, Committed)]


@given(st.lists(st.integers(0, 3 * SNAPSHOT_PIECE), max_size=8))
@settings(max_examples=30)
def test_entries_are_cut_into_frames_and_none_is_lost(sizes: list[int]) -> None:
    entries = [bytes(size) for size in sizes]
    pieces = snapshot_pieces(entries)
    runs = [run for run, _, _ in pieces]
    assert [at for at, (_, first, _) in enumerate(pieces) if first] == [0]
    assert [at for at, (_, _, last) in enumerate(pieces) if last] == [len(pieces) - 1]
    assert [entry for run in runs for entry in run] == entries
    assert runs  # an empty state is said, too
    for run in runs:
        assert len(run) <= 1 or sum(map(len, run)) <= SNAPSHOT_PIECE


def test_alone_an_entry_is_committed_at_once() -> None:
    world = RingWorld()
    node = world.add(founder=True)
    index = node.clusters.append(b"a")
    assert node.clusters.append(b"b") == index + 1
    node.port.turn()
    assert commits(node)[-2:] == [index + 1, index + 2]


def voting(world: RingWorld) -> list[RingNode]:
    """The voters beside the primary."""
    node = primary(world)
    return [world.member(p.id) for p in node.clusters.log.voters if p != node.peer]


def test_three_nodes_vote_as_soon_as_there_are_three() -> None:
    world = grown(1, nodes=3, clusters=1)
    assert len(primary(world).clusters.log.voters) == 3
    world = grown(1, nodes=9, clusters=1, size=5)
    assert len(primary(world).clusters.log.voters) == 5
    assert primary(world).clusters.log.voters == standby(world).clusters.log.voters


def test_an_entry_is_committed_when_a_majority_has_it() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    node = primary(world)
    others = voting(world)
    for cut in others[:2]:
        world.cut_link(node, cut)
    node.events.clear()
    index = node.clusters.append(b"a")
    node.port.turn()
    assert commits(node) == []
    world.run(0.5)
    assert commits(node) == [index + 1]
    assert [n.registry.entries for n in others] == [[], [], [b"a"], [b"a"]]


def test_without_a_majority_nothing_is_committed_and_the_primary_stops_to_decide() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    node = primary(world)
    for cut in voting(world)[:3]:
        world.cut_link(node, cut)
    node.events.clear()
    node.clusters.append(b"a")
    node.port.turn()
    world.run(1.2)
    assert commits(node) == []
    assert not node.clusters.owns(KEY)


def test_a_new_voter_gets_the_state_and_then_what_follows() -> None:
    world = RingWorld(cluster=ClusterSettings(size=2))
    node = world.add(founder=True)
    for n in range(5):
        assert node.registry.write(KEY, f"before {n}")
    world.run(1)
    copy = world.add()
    while copy.clusters.role != "standby":
        world.run(0.01)
    for n in range(5):  # while the copy is under way
        assert node.registry.write(KEY, f"during {n}")
    world.run(1)
    assert copy.registry.entries == node.registry.entries
    assert len(copy.registry.entries) == 10
    assert node.registry.durable == node.registry.entries


def test_a_large_state_travels_in_frames_under_the_links_bound() -> None:
    world = RingWorld(cluster=ClusterSettings(size=2))
    node = world.add(founder=True)
    for n in range(150):
        node.registry.write(KEY, f"{n}" + "x" * 9_000)
    world.add()
    world.run(3)
    assert standby(world).registry.entries == node.registry.entries
    sizes = [sum(map(len, m.entries)) for _, _, m in world.sent if isinstance(m, LogSnapshot)]
    assert len(sizes) > 5
    assert max(sizes) < 200 * 1024


def test_a_lost_voter_is_voted_out_and_an_odd_number_votes_on() -> None:
    world = grown(2, nodes=5, clusters=1, size=5)
    node = primary(world)
    for voters in (3, 3, 1, 1):
        world.crash(voting(world)[0] if len(voting(world)) else standby(world))
        node.registry.write(KEY, f"{voters}")
        world.run(5)
        assert len(node.clusters.log.voters) == voters
    assert len(node.registry.durable) == 4


def test_of_two_members_one_votes_so_that_the_other_may_be_lost() -> None:
    world = grown(2, nodes=2, clusters=1, size=2)
    node = primary(world)
    assert node.clusters.log.voters == (node.peer,)
    node.registry.write(KEY, "copied")
    world.run(1)
    assert standby(world).registry.entries == node.registry.entries
    world.crash(standby(world))
    node.registry.write(KEY, "alone")
    world.run(1)
    assert len(node.registry.durable) == 2


def test_the_first_voters_beside_a_primary_come_at_once() -> None:
    world = RingWorld(cluster=ClusterSettings(size=5))
    node = world.add(founder=True)
    numbers = []
    world.checks.append(lambda: numbers.append(len(node.clusters.log.voters)))
    for _ in range(4):
        world.add()
    world.run(10)
    assert [n for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1]] in (
        [1, 3, 4, 5],
        [1, 5],
    )


def test_two_voters_of_three_lost_at_once_are_a_lost_majority() -> None:
    world = grown(2, nodes=3, clusters=1, size=3)
    node = primary(world)
    for dead in voting(world):
        world.crash(dead)
    node.clusters.append(b"waits")
    world.run(10)
    assert not node.registry.durable
    assert not node.clusters.owns(KEY)


def test_a_piece_without_its_beginning_is_refused() -> None:
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    log = node.clusters.log
    key, (epoch, following) = node.clusters.cluster.key, log.position  # type: ignore[union-attr]
    copy.events.clear()
    item = LogEntry(epoch, b"x")
    config = log.voter_log.config  # type: ignore[union-attr]
    refused = copy.clusters.log
    refused.on_entries(node.peer, LogEntries(key, epoch, (epoch, following + 9), (item,)))
    refused.on_entries(node.peer, LogEntries(key, epoch + 7, log.position, (item,)))
    refused.on_entries(copy.peer, LogEntries(key, epoch, log.position, (item,)))
    refused.on_copy(node.peer, LogSnapshot(key, epoch, (epoch, 99), config, (b"x",), False, True))
    copy.port.turn()
    assert not [e for e in copy.events if isinstance(e, EntryReceived | LogReset)]


def test_a_copy_counts_only_when_it_is_complete() -> None:
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    node.registry.write(KEY, "kept")
    world.run(1)
    log = node.clusters.log
    key, epoch = node.clusters.cluster.key, log.position[0]  # type: ignore[union-attr]
    config = log.voter_log.config  # type: ignore[union-attr]
    first = LogSnapshot(key, epoch, (epoch, 99), config, (b"x",), True, False)
    copy.clusters.log.on_copy(node.peer, first)
    copy.port.turn()
    assert copy.registry.entries == node.registry.entries
    assert copy.clusters.log.position == log.position


def test_a_copy_made_while_an_arc_was_given_away_is_without_that_arc() -> None:
    """The primary still has it then, and no later entry shows the voter that it is gone."""
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    log = node.clusters.log
    key, epoch = node.clusters.cluster.key, log.position[0]  # type: ignore[union-attr]
    config = log.voter_log.config  # type: ignore[union-attr]
    start = f"{(int(key, 16) + 2**100) % 2**160:040x}"
    copy.events.clear()
    for at, kept in ((99, config), (100, msgspec.structs.replace(config, start=start))):
        copy.clusters.log.on_copy(
            node.peer, LogSnapshot(key, epoch, (epoch, at), kept, (b"x",), True, True)
        )
    copy.port.turn()
    emitted = [e for e in copy.events if isinstance(e, EntryReceived | ArcGone)]
    assert [type(e) for e in emitted] == [EntryReceived, EntryReceived, ArcGone]
    arc = emitted[-1].arc  # type: ignore[union-attr]
    assert arc.owns(start)
    assert not arc.owns(key)
    assert not arc.owns(f"{(int(start, 16) + 1) % 2**160:040x}")


def test_an_acknowledgement_of_what_was_never_sent_commits_nothing() -> None:
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    cluster = node.clusters.cluster
    assert cluster is not None
    node.clusters.append(b"a")
    node.events.clear()
    log = node.clusters.log
    stranger = Peer("f" * 16, "")
    node.clusters.leader_log.on_ack(copy.peer, LogAck(cluster.key, 1, log.next + 1))
    node.clusters.leader_log.on_ack(copy.peer, LogAck(cluster.key, 2, log.next))
    node.clusters.leader_log.on_ack(stranger, LogAck(cluster.key, 1, log.next))
    node.port.turn()
    assert commits(node) == []
    node.clusters.leader_log.on_ack(copy.peer, LogAck(cluster.key, 1, log.next))
    node.port.turn()
    assert commits(node) == [log.next]


def test_only_the_primary_writes() -> None:
    world = grown(2, nodes=3, clusters=1)
    with pytest.raises(AssertionError):
        standby(world).clusters.append(b"a")


@pytest.mark.parametrize("seed", seeds(8))
def test_what_is_committed_is_with_a_majority_whatever_happens(seed: int) -> None:
    """Appends, recruits, lost and leaving voters, in any order, looked at after every step."""
    world = RingWorld(seed, cluster=ClusterSettings(size=3))
    node = world.add(founder=True)
    for _ in range(5):
        world.add()
    everything: dict[bytes, None] = {}

    def nothing_committed_is_missing() -> None:
        for leading in world.leading():
            log, committed = leading.clusters.log, leading.clusters.leader_log.committed
            holding = [
                world.member(p.id).clusters.log.next if p.id in world.members else log.next
                for p in log.voters
            ]
            assert sum(n >= committed for n in holding) > len(holding) // 2
        for one in world.members.values():
            everything.update(dict.fromkeys(one.registry.durable))

    world.checks.append(nothing_committed_is_missing)
    for step in range(30):
        for n in range(world.rng.randrange(4)):
            world.write(KEY, f"{step}.{n}")
            node.port.turn()
        what = world.rng.randrange(6)
        copies = [n for n in world.members.values() if n.clusters.role == "standby"]
        if what == 0 and copies:
            world.crash(copies[0])
            world.add()
        elif what == 1 and copies:
            copies[0].clusters.leave()
            copies[0].port.turn()
        world.run(3 * world.rng.random())
    world.run(15)
    world.copies_agree()
    world.members_agree()
    assert len(everything) > 10
    assert all(e in primary(world).registry.entries for e in everything)


@pytest.mark.parametrize(("floor", "copied"), [(4_096, 1), (1 << 20, 0)])
def test_a_follower_that_was_out_of_reach_gets_what_it_lacks_while_that_is_kept(
    floor: int, copied: int
) -> None:
    """The tail has what is written in an assumed disconnect (T3), and `cluster.tail_floor`."""
    chosen = ClusterSettings(size=3, tail_floor=floor, tail=floor)
    node, behind = lagging(chosen)
    assert node.port.counts.get("followers_copied", 0) == copied
    assert node.port.counts.get("followers_caught_up", 0) == 1 - copied
    assert behind.clusters.log.position == node.clusters.log.position


def test_the_tail_grows_with_what_is_written_and_keeps_its_bounds() -> None:
    chosen = ClusterSettings(size=3, tail_floor=4_096, tail=1 << 20)
    node, _ = lagging(chosen)
    assert node.port.counts.get("followers_caught_up", 0) == 1
    log = node.clusters.log
    assert log.voter_log is not None
    assert 4_096 < log.voter_log.tail_bytes <= 1 << 20
    assert log.backlog.disconnect(node.port.now) < 6.0, "the one that was seen"


def lagging(chosen: ClusterSettings) -> tuple[RingNode, RingNode]:
    """A primary, and a voter that was cut off for two seconds while 40 kB were written."""
    world = grown(1, nodes=3, clusters=1, cluster=chosen)
    node = primary(world)
    behind = voting(world)[0]
    for counter in ("followers_copied", "followers_caught_up"):
        node.port.counts.pop(counter, None)
    usual, world.notice = world.notice, 2.0
    world.cut_link(node, behind)  # what is under way is lost, and nobody notices for two seconds
    for _ in range(39):
        node.clusters.append(bytes(1_000))
        node.port.turn()
        world.run(0.05)
    world.notice = usual
    world.heal_link(node, behind)  # before it is voted out
    world.run(10)
    return node, behind

"""Replicas of a shard through crashes, cut links and bad disks."""

from __future__ import annotations

import pytest

from harness.logs import SHARD, WrongError
from overlay.consensus import ProgressState
from overlay.machine import Message, Peer
from streams.log import shard_log
from streams.log.chunk import EVENTS, ChunkId, pack
from streams.log.shard_log import SEGMENT_AGE
from streams.shard import kept_chunks
from streams.shard.leader import PIECES
from streams.shard.messages import (
    RequestShardVote,
    ShardAck,
    ShardAppend,
    ShardFetch,
    ShardVoteReply,
)
from streams.shard.replica import Replica, ShardCampaign
from streams.shard.retention import EVERYTHING, Keep
from tests.support.shards.shard_world import ShardWorld, trial

SEEDS = (0, 5, 25)
"""The first of five seeds each, at which the planted faults are found; `python -m
tests.streams.search` looks at more."""


@pytest.mark.parametrize("first", SEEDS)
def test_what_is_acknowledged_stays_and_all_replicas_have_it(first: int) -> None:
    for seed in range(first, first + 5):
        world = trial(seed)
        assert world.truth, f"seed {seed}: nothing was ever committed"


def led(nodes: int) -> tuple[ShardWorld, Replica]:
    """A world whose first node leads."""
    world = ShardWorld(1, nodes, nodes)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    leader = world.alive[world.peers[0].id]
    assert leader.leader is not None
    assert leader.committed == leader.log.end.number
    return world, leader


def cut_off(world: ShardWorld) -> None:
    world.cut.update({(a.id, b.id): None for a in world.peers for b in world.peers if a != b})


def test_the_highest_epoch_wins_and_not_the_longest_log() -> None:
    world, leader = led(3)
    campaign = ShardCampaign(leader, 9, lambda: None)
    for peer, position in zip(world.peers, ((1, 90), (2, 5), (2, 4)), strict=True):
        campaign.votes[peer.id] = (peer, ShardVoteReply(SHARD, 9, position, True))
    assert campaign.furthest()[0] == world.peers[1]


def test_a_follower_cuts_off_nothing_that_is_committed_whatever_it_is_sent() -> None:
    world, leader = led(3)
    for _ in range(3):
        world.append()
        world.run(0.5)
    follower = world.alive[world.peers[1].id]
    mine, end = follower.committed, follower.log.end
    assert mine == end.number > 3
    before = follower.log.line(mine - 2)
    assert before is not None
    after = ChunkId(before.number, before.hash)
    other = pack(
        EVENTS, leader.hard_state.epoch, after, 0, 0, 0, b""
    )  # in the place of one of these
    sent = ShardAppend(SHARD, leader.hard_state.epoch, (0, b""), 1, mine, (other.data,))
    with pytest.raises(WrongError, match="committed"):
        follower.on_append(world.peers[0], sent)
    world.run(0.5)
    assert (follower.ready, follower.log.end) == (True, end)


def test_half_of_four_intact_replicas_are_not_enough() -> None:
    """After a fourth replica was removed, of which a candidate has not heard, two of the other
    three have committed; one of them is damaged, and the other does not answer."""
    world, leader = led(4)
    campaign = ShardCampaign(leader, 9, lambda: None)
    for peer, intact in zip(world.peers, (True, False, True), strict=False):
        campaign.votes[peer.id] = (peer, ShardVoteReply(SHARD, 9, (2, 5), intact))
    assert not campaign.is_enough()
    campaign.votes[world.peers[1].id] = (world.peers[1], ShardVoteReply(SHARD, 9, (2, 5), True))
    assert campaign.is_enough()


def test_chunks_of_older_epochs_are_not_committed_by_counting() -> None:
    world, leader = led(3)
    cut_off(world)
    world.append()
    world.run(0.05)
    older, before = leader.log.end.number, leader.committed
    assert before < older
    world.cut.clear()
    leader.lead(7)
    while leader.leader is None:
        world.run(0.001)
    cut_off(world)
    for peer in world.peers[1:]:
        leader.leader.acknowledged(peer, ShardAck(SHARD, 7, older))
    assert leader.committed == before
    for peer in world.peers[1:]:
        leader.leader.acknowledged(peer, ShardAck(SHARD, 7, leader.log.end.number))
    assert leader.committed == leader.log.end.number


def test_a_commit_costs_no_message_of_its_own_and_an_idle_shard_hardly_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader = led(3)
    sent: list[Message] = []
    send = world.send
    monkeypatch.setattr(world, "send", lambda a, b, m: (sent.append(m), send(a, b, m)))
    for _ in range(20):
        world.append()
        world.run(0.01)
    assert leader.committed == leader.log.end.number
    assert len(sent) <= 20 * 4 + 4, "each chunk to two followers, and their acknowledgements"
    world.run(0.5)
    assert {r.committed for r in world.alive.values()} == {leader.log.end.number}
    sent.clear()
    world.run(60.0)
    assert len(sent) <= 2 * 4, "every thirty seconds the followers hear that there is a leader"


def test_a_follower_that_restarts_says_so_to_a_leader_that_asks_nobody() -> None:
    world, leader = led(3)
    world.append()
    world.run(5.0)
    assert leader.leader is not None
    assert leader.leader.is_quiet
    node = world.peers[1].id
    world.crash(node)
    world.boot(node)
    world.run(1.0)
    assert world.alive[node].committed == leader.committed, "its disk says less"


def test_a_follower_is_sent_more_while_it_writes_and_is_live_when_all_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_chunks, "PIECE", 2_000)
    monkeypatch.setattr(kept_chunks, "READ", 8_000)
    world, leader = led(3)
    assert leader.leader is not None
    late = world.peers[2]
    world.crash(late.id)
    for _ in range(60):
        world.append()
        world.run(0.01)
    leader.chunks.recent.clear()  # so that they are read from disk
    most = 0
    world.boot(late.id)
    follower = leader.leader.tracker.followers[late.id]
    for _ in range(5_000):
        world.run(0.001)
        most = max(most, len(follower.inflight))
        if follower.state is ProgressState.REPLICATE and most:
            break
        world.append()  # rows that come meanwhile do not keep it from catching up
    assert follower.state is ProgressState.REPLICATE
    assert most > PIECES, "messages that it has not acknowledged"
    world.run(1.0)
    assert world.alive[late.id].log.end == leader.log.end


def test_the_first_rows_are_in_the_first_segment() -> None:
    world, leader = led(3)
    world.run(2 * SEGMENT_AGE / 1e9)  # the chunks with which the leader begins have no time
    world.append()
    world.run(0.5)
    assert len(leader.log.segments) == 1
    assert leader.log.segments[0].began == leader.log.time
    world.run(2 * SEGMENT_AGE / 1e9)
    world.append()
    assert len(leader.log.segments) == 2


def test_a_vote_survives_a_restart_and_holds_against_lower_epochs() -> None:
    world, _ = led(3)
    first, second, third = world.peers
    world.alive[second.id].on_request_vote(third, RequestShardVote(SHARD, 9))
    world.run(0.1)
    world.crash(second.id)
    world.boot(second.id)
    world.run(0.1)
    replica = world.alive[second.id]
    for sender, epoch in ((first, 8), (first, 9), (third, 8)):
        replica.on_request_vote(sender, RequestShardVote(SHARD, epoch))
        world.run(0.1)
        assert (replica.hard_state.epoch, replica.hard_state.candidate) == (9, third.id)


def test_replicas_change_one_at_a_time() -> None:
    world, leader = led(5)
    assert leader.leader is not None
    cut_off(world)
    assert leader.leader.remove_replica(world.peers[4].id)
    assert not leader.leader.remove_replica(world.peers[3].id)
    world.cut.clear()
    world.run(1.0)
    assert leader.leader.remove_replica(world.peers[3].id)
    assert not leader.leader.remove_replica(world.peers[0].id)


def test_without_a_majority_nobody_leads_and_nothing_is_committed() -> None:
    world, leader = led(3)
    before = leader.committed
    cut_off(world)
    world.append()
    world.alive[world.peers[1].id].lead(5)
    world.run(2.0)
    assert leader.committed == before
    assert world.alive[world.peers[1].id].leader is None
    assert not world.acknowledged


def test_a_torn_replica_of_three_leads_only_with_both_others() -> None:
    world, leader = led(3)
    world.append()
    world.run(0.5)
    first, torn, other = (peer.id for peer in world.peers)
    world.crash(torn)
    files = world.disks[torn].durable[SHARD]
    del files[max(name for name in files if name != "promise")][-5:]
    world.crash(first)
    world.boot(torn)
    world.run(0.1)
    assert world.alive[torn].hard_state.suspect
    world.elect(torn)
    world.run(1.0)
    assert world.alive[torn].leader is None, "what it lacks may have been acknowledged"
    world.boot(first)
    world.run(1.0)
    assert world.alive[torn].leader is not None
    assert not world.alive[torn].hard_state.suspect
    world.judge(world.heal())
    assert other in world.alive
    assert leader.log.end.number <= world.alive[torn].log.end.number


@pytest.mark.parametrize("lost", [0, 1], ids=["what nobody was told of", "what was on disk"])
def test_a_write_that_failed_half_way_makes_a_log_suspect_only_if_it_took_more_along(
    lost: int,
) -> None:
    """A full disk leaves a torn chunk. A process that counted what it has on disk knows that
    nothing was acknowledged of it, and so a majority with it is enough, though the third replica
    never comes back."""
    world, _ = led(3)
    world.append()
    world.run(0.5)
    first, full, third = (peer.id for peer in world.peers)
    had = world.alive[full].durable
    world.disks[full].fail = 1.0
    world.append()
    world.run(0.1)
    for other in (first, third):
        world.crash(other)
    world.disks[full].fail = 0.0
    files = world.disks[full].durable[SHARD]
    newest = files[max(name for name in files if name != "promise")]
    last = world.alive[full].log.line(had)
    assert last is not None
    del newest[last.at + last.length - 5 * lost :]
    newest += bytes(7)
    world.run(2.0)
    replica = world.alive[full]
    assert (replica.durable, replica.hard_state.suspect) == (had - lost, bool(lost))
    assert len(newest) == last.at + last.length - (last.length if lost else 0)
    world.boot(first)
    world.run(0.5)
    world.elect(first)
    world.run(1.0)
    assert (world.alive[first].leader is None) == bool(lost)
    world.boot(third)
    world.judge(world.heal())


def test_a_leader_counts_itself_when_its_disk_has_the_chunk() -> None:
    world, leader = led(3)
    before = leader.committed
    world.crash(world.peers[2].id)
    world.disks[world.peers[0].id].slow = 1e9
    world.append()
    world.run(1.0)
    assert world.alive[world.peers[1].id].durable > before
    assert leader.committed == before


def test_a_follower_acknowledges_when_its_disk_has_the_chunk() -> None:
    world, leader = led(3)
    before = leader.committed
    for peer in world.peers[1:]:
        world.disks[peer.id].slow = 1e9
    world.append()
    world.run(1.0)
    assert leader.durable > before
    assert leader.committed == before


def test_who_promised_an_epoch_to_a_loser_follows_the_winner_under_that_epoch() -> None:
    world = ShardWorld(1)
    world.run(0.1)
    winner, loser, third = (peer.id for peer in world.peers)
    for node in (winner, third):
        world.cut.update({(node, loser): None, (loser, node): None})
    world.alive[winner].lead(1)
    world.alive[loser].lead(1)
    world.run(0.5)
    world.cut.clear()
    world.append()
    world.run(2.0)
    assert [r.hard_state.epoch for r in world.alive.values()] == [1, 1, 1]
    assert world.alive[loser].committed == world.alive[winner].committed >= 2


def grown(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> tuple[ShardWorld, Replica]:
    """A world whose first node leads a log of many segments."""
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 1_500)
    world, leader = led(3)
    world.keep = keep
    for _ in range(30):
        world.append()
        world.run(0.05)
    assert len(leader.log.segments) > 6
    return world, leader


@pytest.mark.parametrize("keep", [Keep(bytes=6_000), Keep(time=700_000_000)])
def test_segments_below_the_floor_are_deleted_at_all_replicas(
    monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    world, leader = grown(EVERYTHING, monkeypatch)
    before = len(leader.log.segments)
    world.keep = keep
    world.retain()
    world.run(0.2)
    assert 1 < len(leader.log.segments) < before
    names = sorted(world.disks[leader.port.me.id].durable[SHARD])
    assert len(names) == len(leader.log.segments) + 1
    for disk in world.disks.values():
        assert sorted(disk.durable[SHARD]) == names
    floor = leader.state.floor
    assert floor == leader.log.segments[0].offset > 0
    for node in list(world.alive):
        world.crash(node)
        world.boot(node)
    world.run(0.2)
    assert {r.state.floor for r in world.alive.values()} == {floor}
    world.judge(world.heal())


def test_rows_of_a_stream_that_rests_go_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader = grown(Keep(time=20_000_000_000), monkeypatch)
    world.run(21.0)
    world.retain()
    world.run(0.2)
    assert leader.state.floor == leader.log.next_offset
    assert len(leader.log.segments) == 1
    end = leader.log.end
    for _ in range(3):
        world.retain()
        world.run(5.0)
    assert leader.log.end == end, "there is nothing more to remove"


def test_times_of_segments_that_were_not_read_at_the_start_are_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader = grown(EVERYTHING, monkeypatch)
    world.crash(leader.port.me.id)
    world.boot(leader.port.me.id)
    world.run(0.1)
    world.elect(leader.port.me.id)
    world.run(0.5)
    leader = world.alive[leader.port.me.id]
    assert not all(segment.began for segment in leader.log.segments[1:])
    assert all(segment.size for segment in leader.log.segments)
    before = len(leader.log.segments)
    world.keep = Keep(time=20_000_000_000)
    for _ in range(before):
        world.retain()
        world.run(0.01)
    assert all(segment.began for segment in leader.log.segments[1:])
    assert len(leader.log.segments) == before


def test_a_cut_is_carried_out_when_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader = grown(EVERYTHING, monkeypatch)
    before = [segment.name for segment in leader.log.segments]
    cut_off(world)
    world.keep = Keep(bytes=4_000)
    world.retain()
    world.run(0.2)
    assert leader.state.floor
    assert leader.log.segments[0].name == before[0]
    world.cut.clear()
    world.run(1.0)
    assert leader.log.segments[0].name != before[0]


def test_a_replica_that_was_away_begins_where_the_leader_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader = grown(EVERYTHING, monkeypatch)
    late = world.peers[2].id
    world.crash(late)
    end = leader.log.end.number
    for _ in range(25):
        world.append()
        world.run(0.05)
    world.keep = Keep(bytes=3_000)
    world.retain()
    world.run(0.2)
    assert leader.log.start > end + 1
    leader.chunks.recent.clear()  # what it has in memory it still sends
    world.boot(late)
    world.run(2.0)
    assert world.ports[late].counters["shard_logs_begun_again"] == 1
    assert world.alive[late].log.start == leader.log.start
    assert not world.alive[late].hard_state.suspect
    world.append()
    world.judge(world.heal())
    late_files = [name for name in world.disks[late].durable[SHARD] if name != "promise"]
    assert len(late_files) == len(leader.log.segments)
    world.crash(world.peers[1].id)
    world.elect(late)
    world.run(1.0)
    assert world.alive[late].leader is not None


def test_a_log_that_is_slow_to_open_is_not_asked_for_again() -> None:
    world, leader = led(3)
    node = leader.port.me.id
    world.crash(node)
    world.disks[node].slow = 30.0
    world.boot(node)
    asked = world.disks[node]._ticket
    world.run(20.0)
    assert world.disks[node]._ticket == asked
    world.run(20.0)
    assert world.alive[node].ready


def test_a_candidate_whose_end_is_in_an_older_segment_gets_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who restarted has the hashes of its newest segment in memory: whether it has the candidate's
    last chunk only its disk can tell. Sent its own chunks again the candidate asked for ever."""
    world, leader = grown(EVERYTHING, monkeypatch)
    late = world.peers[2].id
    while True:  # until its log ends with a segment, whose end the others begin another with
        segments = len(leader.log.segments)
        end = world.alive[late].log.end
        world.append()
        if len(leader.log.segments) > segments:
            break
        world.run(0.05)
    world.crash(late)
    for _ in range(10):
        world.append()
        world.run(0.05)
    for peer in world.peers[:2]:
        world.crash(peer.id)
        world.boot(peer.id)
    world.boot(late)
    world.run(0.2)
    candidate = world.alive[late]
    assert candidate.log.end == end
    assert world.alive[world.peers[0].id].log.has(end) is None
    fetched: list[int] = []
    count = world.send

    def send(sender: Peer, peer: Peer, message: Message) -> None:
        fetched.extend([1] if isinstance(message, ShardFetch) else [])
        count(sender, peer, message)

    monkeypatch.setattr(world, "send", send)
    candidate.committed = end.number - 1  # as of who had not heard of the last one's commit
    world.elect(late)
    world.run(1.0)
    assert candidate.leader is not None
    assert len(fetched) < 10
    world.judge(world.heal())

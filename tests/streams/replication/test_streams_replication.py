"""Replicas of a shard through crashes, cut links and bad disks."""

from __future__ import annotations

import pytest

from streams.replication.messages import ShardAck, ShardSealed
from streams.replication.replica import Replica
from streams.replication.takeover import Takeover
from tests.support.logs import SHARD
from tests.support.shard_world import ShardWorld, trial

SEEDS = 30
"""In the suite; `python -m bench.streams.search` looks at more."""


@pytest.mark.parametrize("first", range(0, SEEDS, 5))
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
    assert leader.leading is not None
    assert leader.committed == leader.log.end.number
    return world, leader


def cut_off(world: ShardWorld) -> None:
    world.cut.update({(a.id, b.id): None for a in world.peers for b in world.peers if a != b})


def test_the_highest_epoch_wins_and_not_the_longest_log() -> None:
    world, leader = led(3)
    takeover = Takeover(leader, 9)
    for peer, position in zip(world.peers, ((1, 90), (2, 5), (2, 4)), strict=True):
        takeover.grants[peer.id] = (peer, ShardSealed(SHARD, 9, position, True))
    assert takeover.furthest()[0] == world.peers[1]


def test_chunks_of_older_epochs_are_not_committed_by_counting() -> None:
    world, leader = led(3)
    cut_off(world)
    world.append()
    world.run(0.05)
    older, before = leader.log.end.number, leader.committed
    assert before < older
    world.cut.clear()
    leader.lead(7)
    while leader.leading is None:
        world.run(0.001)
    cut_off(world)
    for peer in world.peers[1:]:
        leader.leading.acknowledged(peer, ShardAck(SHARD, 7, older))
    assert leader.committed == before
    for peer in world.peers[1:]:
        leader.leading.acknowledged(peer, ShardAck(SHARD, 7, leader.log.end.number))
    assert leader.committed == leader.log.end.number


def test_replicas_change_one_at_a_time() -> None:
    world, leader = led(5)
    assert leader.leading is not None
    cut_off(world)
    assert leader.leading.remove_replica(world.peers[4].id)
    assert not leader.leading.remove_replica(world.peers[3].id)
    world.cut.clear()
    world.run(1.0)
    assert leader.leading.remove_replica(world.peers[3].id)
    assert not leader.leading.remove_replica(world.peers[0].id)


def test_without_a_majority_nobody_leads_and_nothing_is_committed() -> None:
    world, leader = led(3)
    before = leader.committed
    cut_off(world)
    world.append()
    world.alive[world.peers[1].id].lead(5)
    world.run(2.0)
    assert leader.committed == before
    assert world.alive[world.peers[1].id].leading is None
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
    assert world.alive[torn].promise.suspect
    world.elect(torn)
    world.run(1.0)
    assert world.alive[torn].leading is None, "what it lacks may have been acknowledged"
    world.boot(first)
    world.run(1.0)
    assert world.alive[torn].leading is not None
    assert not world.alive[torn].promise.suspect
    world.judge(world.heal())
    assert other in world.alive
    assert leader.log.end.number <= world.alive[torn].log.end.number


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
    assert [r.promise.epoch for r in world.alive.values()] == [1, 1, 1]
    assert world.alive[loser].committed == world.alive[winner].committed >= 2

"""Who serves in no cluster cannot keep one from electing, whatever epochs it names."""

from __future__ import annotations

from overlay.chord.cluster.messages import ClusterHeartbeatReply, RequestVote, VoteReply
from overlay.chord.messages import Cluster
from overlay.machine import Message, Peer
from tests.support.rings import RingNode, RingWorld, cluster_of, grown

STRANGER = Peer("ffffffffffffffff", "host:99")
HUGE = 2**53
FAR = (HUGE, HUGE)


def cluster() -> tuple[RingWorld, RingNode, Cluster]:
    world = grown(3, nodes=6, clusters=1, size=5)
    (primary,) = world.primaries()
    return world, primary, cluster_of(primary)


def tell_all(world: RingWorld, message: Message) -> None:
    for node in list(world.members.values()):
        node.port.hear(message, STRANGER)


def elects_another(world: RingWorld, old: RingNode) -> None:
    """The cluster still elects when its primary dies, under the next epoch."""
    epoch = cluster_of(old).epoch
    world.crash(old)
    world.run(5)
    (new,) = world.primaries()
    assert epoch < cluster_of(new).epoch < epoch + 10


def test_a_strangers_request_for_votes_is_not_granted() -> None:
    """Attack 2: it was durably voted for, and no epoch above it was left."""
    world, primary, own = cluster()
    world.crash(primary)
    world.run(0.8)  # its voters hear no primary any more
    for pre_vote in (True, False):
        tell_all(world, RequestVote(own.key, HUGE, FAR, pre_vote, transfer=True))
    voters = [n for n in world.members.values() if n.clusters.log.is_voter(n.peer.id)]
    assert len(voters) == 4
    for node in voters:
        assert node.clusters.log.voted_epoch(own.key) <= own.epoch + 1
        assert node.port.counts["votes_refused"] == 2
    world.run(5)
    (new,) = world.primaries()
    assert cluster_of(new).epoch < own.epoch + 10


def test_a_vote_that_nobody_asked_for_is_not_believed() -> None:
    """Attack 3: its epoch counted before it was looked who had sent it."""
    world, primary, own = cluster()
    tell_all(world, VoteReply(own.key, HUGE, False, True, HUGE))
    assert primary.port.counts["votes_refused"] == 1
    elects_another(world, primary)


def test_a_heartbeat_that_a_stranger_answers_raises_no_epoch() -> None:
    world, primary, own = cluster()
    primary.port.hear(ClusterHeartbeatReply(own.key, own.epoch, 1, own.epoch + 1000), STRANGER)
    world.run(2)
    assert cluster_of(primary).epoch == own.epoch
    elects_another(world, primary)

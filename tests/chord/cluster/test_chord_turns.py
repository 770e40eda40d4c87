"""P4: who asks for an epoch when, so that on slow networks one round of an election is enough."""

from __future__ import annotations

from overlay.chord.cluster.election import CampaignTimeout
from overlay.chord.cluster.messages import ClusterHeartbeat, RequestVote, VoteReply
from overlay.chord.keys import key_of
from overlay.links.events import LocalStall
from tests.support.rings import RingNode, RingWorld, grown

KEY = key_of("attr:x")


def bereft(seed: int = 3) -> tuple[RingWorld, list[RingNode]]:
    """A cluster of five whose primary has just died; the others, the standby first. They have not
    heard it for long."""
    world = grown(seed, nodes=5, clusters=1, size=5)
    (old,) = world.owners(KEY)
    rest = [world.member(peer.id) for peer in old.clusters.members()[1:]]
    world.crash(old)
    for node in rest:
        node.clusters.heartbeat._timeout_at = 0.0
    world.sent.clear()
    return world, rest


def ask(voter: RingNode, candidate: RingNode, pre_vote: bool = True) -> VoteReply:
    """Its answer."""
    election = voter.clusters.election
    assert voter.clusters.cluster is not None
    key = voter.clusters.cluster.key
    before = len(voter.port.world.sent)
    question = RequestVote(key, 2, voter.clusters.log.position, pre_vote, False)
    election.on_request_vote(candidate.peer, question)
    (answer,) = [m for _, _, m in voter.port.world.sent[before:] if isinstance(m, VoteReply)]
    return answer


def test_a_voter_favours_one_candidate_at_a_time() -> None:
    world, (voter, one, two, _) = bereft()
    assert ask(voter, one).granted
    assert ask(voter, one).granted
    assert not ask(voter, two).granted
    world.run(voter.clusters.election._rank_wait() + 0.01)
    voter.clusters.heartbeat._timeout_at = 0.0
    assert ask(voter, two).granted


def test_who_asks_itself_favours_itself() -> None:
    _, (voter, one, *_) = bereft()
    voter.clusters.election._request_votes(pre_vote=True, transfer=False)
    assert not ask(voter, one).granted


def test_a_grant_says_for_how_long_no_other_candidate_gets_one() -> None:
    _, (voter, one, two, _) = bereft()
    voter.clusters.heartbeat._asked_timeout = 3.0
    answer = ask(voter, one, pre_vote=False)
    assert answer.granted
    assert answer.timeout == 3.0
    assert not ask(voter, two, pre_vote=False).granted


def test_grants_that_come_after_the_time_out_count() -> None:
    _, (node, one, two, _) = bereft()
    election, cluster = node.clusters.election, node.clusters.cluster
    assert cluster is not None
    election._request_votes(pre_vote=False, transfer=False)
    assert election.campaign is not None
    epoch = election.campaign.epoch
    election.on_campaign_timeout(CampaignTimeout())
    assert not election.is_asking
    for voter in (one, two):
        assert not node.clusters.is_primary
        election.on_vote_reply(voter.peer, VoteReply(cluster.key, epoch, False, True, epoch, 4.0))
    assert node.clusters.is_primary
    assert node.clusters.is_followed, "they are patient for long enough"


def test_who_hears_the_primary_again_asks_for_no_epoch() -> None:
    """It has answered the primary, which decides for a while because of that."""
    world = grown(3, nodes=5, clusters=1, size=5)
    (primary,) = world.owners(KEY)
    node, one, two, _ = [world.member(peer.id) for peer in primary.clusters.members()[1:]]
    election, cluster = node.clusters.election, node.clusters.cluster
    assert cluster is not None
    node.clusters.heartbeat._timeout_at = 0.0
    election._request_votes(pre_vote=True, transfer=False)
    node.clusters.heartbeat.on_heartbeat(
        primary.peer, ClusterHeartbeat(cluster.key, cluster.version[0], 9_999, 1.0)
    )
    for voter in (one, two):
        election.on_vote_reply(voter.peer, VoteReply(cluster.key, 2, True, True, 1))
    assert election.campaign is not None
    assert election.campaign.pre_vote


def test_when_no_majority_can_follow_the_next_turn_comes_at_once() -> None:
    _, (node, one, two, three) = bereft()
    election, cluster = node.clusters.election, node.clusters.cluster
    assert cluster is not None
    election._request_votes(pre_vote=True, transfer=False)
    assert election.campaign is not None
    epoch = election.campaign.epoch
    for voter in (one, two, three):
        assert election.is_asking
        election.on_vote_reply(voter.peer, VoteReply(cluster.key, epoch, True, False, 1))
    assert not election.is_asking


def test_on_a_slow_network_each_rank_leaves_time_for_those_before_it() -> None:
    world, (first, second, *rest) = bereft()
    for node in (first, second, *rest):
        world.cut_link(first, node)
        node.clusters.heartbeat._asked_timeout = (
            3.0  # messages take a second longer than is taken for granted
        )
        node.clusters.heartbeat._timeout_at = 0.0
        node.clusters.election.suspect()
    world.run(1.5)
    assert first.clusters.election.campaign is not None
    assert second.clusters.election.campaign is None
    world.run(1.0)
    assert second.clusters.election.campaign is not None or second.clusters.is_primary


def test_where_all_are_unhealthy_one_becomes_candidate_all_the_same() -> None:
    world, rest = bereft()
    for node in rest:
        node.clusters.election.on_local_stall(LocalStall(1.5))
        node.clusters.election.suspect()
    world.run(2.0)
    assert len(world.owners(KEY)) == 1

"""A voter that lies about who leads: its own word does not do, where nodes have keys."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.sim.world.signer import SimulatedSigner
from canopy.wire.keys.certificates import KeySigner, node_id, raw_key
from overlay.chord.cluster.messages import (
    ClusterHeartbeatReply,
    ClusterHello,
    LogAck,
    RequestVote,
    VoteReply,
)
from overlay.chord.epochs import FORK, granting, new_fork, sealing
from overlay.chord.messages import Cluster, FindReply, Membership, Moved
from overlay.links.statements import Signature
from overlay.lower_random.messages import RingHint, RingHintReceived
from overlay.machine import Message
from overlay.settings import ClusterSettings
from tests.support.rings import RingNode, RingWorld, cluster_of, grown

HUGE = 2**53 - 1


def signer(node: RingNode) -> SimulatedSigner:
    return SimulatedSigner(node.peer.id, "rings")


def sealed(node: RingNode, cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(cluster, seal=signer(node).sign(sealing(cluster)))


def cluster(seed: int = 3) -> tuple[RingWorld, RingNode, RingNode, Cluster]:
    """A world with one cluster of five voters, its primary, a voter that lies, and the
    description."""
    world = grown(seed, nodes=9, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    return world, primary, world.member(own.brokers[-1].id), own


def claim(liar: RingNode, own: Cluster, epoch: int, *grants: Signature) -> Cluster:
    """That `liar` leads under `epoch`, with its own grant and these."""
    rest = [p for p in own.members() if p.id != liar.peer.id]
    said = own.under(epoch).served_by(liar.peer, *rest)
    mine = signer(liar).sign(granting(own.ring, own.key, epoch, liar.peer.id))
    return sealed(liar, msgspec.structs.replace(said, grants=(mine, *grants)))


def tell_all(world: RingWorld, liar: RingNode, *messages: Message) -> None:
    for node in list(world.members.values()):
        if node is not liar:
            for message in messages:
                node.port.hear(message, liar.peer)


def leads_still(world: RingWorld, primary: RingNode, own: Cluster) -> None:
    """All follow the primary, and know no other."""
    for node in world.members.values():
        known = node.ring.newest(own.key)
        assert known is None or known.primary.id == primary.peer.id
        if own.has_member(node.peer.id):
            assert cluster_of(node).primary.id == primary.peer.id


@pytest.mark.parametrize("epochs", [1, FORK + 5, 3 * FORK, HUGE])
def test_a_voter_that_claims_an_epoch_leads_nobody(epochs: int) -> None:
    """By every message that carries a description. Elections and forks follow as ever."""
    world, primary, liar, own = cluster()
    said = claim(liar, own, min(own.epoch + epochs, HUGE))
    words = (Moved(said), ClusterHello(said), Membership(said), FindReply(1, said, 1))
    tell_all(world, liar, *words)
    world.run(1)
    tell_all(world, liar, *words)
    world.run(4)
    leads_still(world, primary, own)
    assert primary.registry.write("1" * 40, "kept")
    world.run(1)
    world.copies_agree()
    assert cluster_of(primary).epoch < own.epoch + 9 * FORK, "there is always a higher epoch"


def test_the_first_that_is_heard_of_a_cluster_is_corrected() -> None:
    """A node that knows nothing believes what it hears, until it hears of who leads."""
    world, primary, liar, own = cluster()
    new = world.add(degree=1)
    said = claim(liar, own, own.epoch + FORK)
    new.port.hear(Moved(said), liar.peer)
    found = new.ring.newest(own.key)
    assert found is not None
    assert found.primary.id == liar.peer.id
    world.run(2)
    for _ in range(2):
        new.port.hear(Moved(own), primary.peer)
        world.run(1)
    found = new.ring.newest(own.key)
    assert found is not None
    assert found.primary.id == primary.peer.id


def test_nor_by_gossip() -> None:
    """A hint has no proof: it drops no description of who leads."""
    world, primary, liar, own = cluster()
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    outsider.ring.find(own.key)
    world.run(1)
    hint = RingHint(own.ring, own.key, (own.epoch + 7, 0), liar.peer)
    outsider.port.hear(RingHintReceived(hint))
    assert outsider.ring.newest(own.key) is not None
    world.run(3)
    leads_still(world, primary, own)


def test_nor_when_the_primary_is_dead() -> None:
    """The others elect; what the liar says meanwhile is not believed, and it had no majority."""
    world, primary, liar, own = cluster()
    world.crash(primary)
    for _ in range(12):
        epoch = max(cluster_of(n).epoch for n in world.members.values() if n.clusters.cluster)
        tell_all(world, liar, ClusterHello(claim(liar, own, epoch + 1)))
        world.run(0.5)
    (new,) = world.primaries()
    assert cluster_of(new).grants, "it was elected"
    for node in world.members.values():
        if node.clusters.cluster is not None and node is not liar:
            assert cluster_of(node).primary.id == new.peer.id


def test_who_was_elected_is_believed_at_once() -> None:
    """By those who only hear of it, without a question."""
    world, primary, _, own = cluster()
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    outsider.ring.find(own.key)
    world.run(1)
    world.crash(primary)
    world.run(5)
    (new,) = world.primaries()
    before = outsider.port.counts["claims_doubted"]
    outsider.ring.find(own.key)
    world.run(1)
    known = outsider.ring.newest(own.key)
    assert known is not None
    assert known.primary.id == new.peer.id
    assert len(known.grants) >= 3
    assert outsider.port.counts["claims_doubted"] == before == 0


def test_grants_of_others_than_the_voters_prove_nothing() -> None:
    world, primary, liar, own = cluster()
    epoch = own.epoch + 1
    said = granting(own.ring, own.key, epoch, liar.peer.id)
    strangers = [SimulatedSigner(f"{n:016x}", "rings").sign(said) for n in range(900, 904)]
    voters = [p.id for p in own.members() if p.id != liar.peer.id]
    forged = [Signature(voter, b"", 0, b"0" * 16) for voter in voters]
    twice = [signer(liar).sign(said)] * 4
    other = [
        SimulatedSigner(voter, "rings").sign(granting(own.ring, own.key, epoch - 1, liar.peer.id))
        for voter in voters
    ]
    for grants in (strangers, forged, twice, other):
        tell_all(world, liar, ClusterHello(claim(liar, own, epoch, *grants)))
        world.run(1)
    leads_still(world, primary, own)
    assert primary.port.counts["fenced"] == 0


def test_grants_of_members_that_do_not_vote_prove_nothing() -> None:
    """Five serve and three vote: a voter has its own grant, and that of a member without a vote."""
    world = grown(3, nodes=5, clusters=1, size=3, signed=True)
    (primary,) = world.primaries()
    primary.clusters.want(5)
    world.run(5)
    own = cluster_of(primary)
    voters = [peer.id for peer in primary.clusters.log.voters]
    (other, *_) = (peer for peer in own.members() if peer.id not in voters)
    liar = world.member(voters[-1])
    assert (len(own.members()), len(voters)) == (5, 3)
    grant = signer(world.member(other.id)).sign(
        granting(own.ring, own.key, own.epoch + 1, liar.peer.id)
    )
    said = claim(liar, own, own.epoch + 1, grant)
    tell_all(world, liar, ClusterHello(said), Membership(said))
    world.run(0.5)
    leads_still(world, primary, own)
    world.run(5)
    assert cluster_of(primary).epoch == own.epoch  # no other election was needed


def test_who_passes_a_description_on_changes_nothing_in_it() -> None:
    """Members, arc and number are the primary's word."""
    world, _, liar, own = cluster()
    accomplices = own.changed(brokers=(liar.peer,) * 3)
    for said in (accomplices, own.changed(start="1" * 40), sealed(liar, accomplices)):
        tell_all(world, liar, Moved(said), Membership(said))
        world.run(1)
    for node in world.members.values():
        known = node.ring.newest(own.key)
        assert known is None or known.version == own.version
    world.members_agree()


def test_a_part_of_an_arc_goes_to_nobody_who_only_says_so() -> None:
    """As if the cluster had split; and as if it had been lost and a part of it were led."""
    world, primary, liar, own = cluster()
    outsiders = [n for n in world.members.values() if n.clusters.role == "none"]
    for node in outsiders:
        node.ring.find(own.key)
    world.run(1)
    for epoch in (own.epoch + 1, new_fork(own.epoch, 5, world.rng)):
        part = own.under(epoch, key="7" * 40, start="6" * 40).served_by(liar.peer)
        tell_all(world, liar, Moved(sealed(liar, part)), Membership(sealed(liar, part)))
        world.run(3)
    assert primary.clusters.owns("65" * 20)
    for node in outsiders:
        owner = node.ring.covering("65" * 20)
        assert owner is not None
        assert owner.primary.id == primary.peer.id


def test_a_voter_that_says_it_has_voted_moves_no_primary_again_and_again() -> None:
    world, primary, liar, _ = cluster()
    for _ in range(20):
        now = cluster_of(primary)
        reply = ClusterHeartbeatReply(now.key, now.epoch, 1, HUGE)
        primary.port.hear(reply, liar.peer)
        world.run(0.5)
    assert primary.clusters.is_primary
    assert primary.port.counts["campaigns"] <= 3
    assert cluster_of(primary).epoch < HUGE // 2


def test_there_is_always_a_higher_epoch_to_elect_in() -> None:
    """A voter that answers each candidate with the highest epoch."""
    world, primary, liar, own = cluster()
    world.crash(primary)
    for _ in range(12):
        for node in list(world.members.values()):
            campaign = node.clusters.election.campaign
            if campaign is not None and node is not liar:
                no = VoteReply(own.key, campaign.epoch, campaign.pre_vote, False, HUGE)
                node.port.hear(no, liar.peer)
        world.run(0.5)
    assert any(node is not liar for node in world.primaries())


def test_a_vote_that_is_not_signed_is_none() -> None:
    """Else an elected primary could prove its election to nobody."""
    world, primary, liar, own = cluster()
    world.crash(primary)
    world.run(0.9)
    voter = next(
        n for n in world.members.values() if n is not liar and n.clusters.log.is_voter(n.peer.id)
    )
    voter.clusters.election._request_votes(pre_vote=False, transfer=False)
    campaign = voter.clusters.election.campaign
    assert campaign is not None
    others = [p for p in own.members() if p.id not in (voter.peer.id, primary.peer.id)]
    for peer in others[:2]:
        voter.port.hear(VoteReply(own.key, campaign.epoch, False, True, 0), peer)
    assert not voter.clusters.is_primary
    assert voter.port.counts["votes_refused"] == 2


def test_one_that_says_it_has_what_it_has_not_loses_nothing() -> None:
    """With five voters an entry counts when four have it: of any three that elect one honest voter
    has it."""
    settings = ClusterSettings(size=5, commit="more")
    world = grown(3, nodes=6, clusters=1, cluster=settings, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    liar, has, *lack = (world.member(p.id) for p in own.others())
    for node in lack:
        world.cut_link(primary, node)
        world.cut_link(liar, node)
    assert primary.registry.write("1" * 40, "said to be stored")
    log = primary.clusters.log
    primary.port.hear(LogAck(own.key, own.epoch, log.next), liar.peer)
    primary.port.hear(LogAck(own.key, own.epoch, log.next), has.peer)
    assert primary.clusters.leader_log.committed < log.next, "two of them and a liar do not do"
    primary.port.hear(LogAck(own.key, own.epoch, log.next), lack[0].peer)
    assert primary.clusters.leader_log.committed == log.next


def test_of_two_primaries_that_one_vote_made_neither_goes_on_in_that_epoch() -> None:
    world, primary, liar, own = cluster()
    rival = world.member(own.others()[0].id)
    said = own.under(own.epoch).served_by(rival.peer, *own.brokers)
    text = granting(own.ring, own.key, own.epoch, rival.peer.id)
    grants = tuple(
        signer(world.member(p.id)).sign(text) for p in (rival.peer, liar.peer, own.brokers[0])
    )
    said = sealed(rival, msgspec.structs.replace(said, grants=grants))
    primary.port.hear(ClusterHello(said), rival.peer)
    assert primary.port.counts["rival_primaries"] == 1
    world.run(3)
    (new,) = world.primaries()
    assert cluster_of(new).epoch > own.epoch


def test_a_candidate_that_was_refused_asks_again_and_wins() -> None:
    """A voter votes for whoever asks, and says no to nobody: one is elected all the same."""
    world, primary, liar, own = cluster(5)
    world.crash(primary)
    world.run(0.9)
    asked = RequestVote(own.key, own.epoch + 1, liar.clusters.log.position, False, False)
    tell_all(world, liar, asked)
    world.run(5)
    (new,) = world.primaries()
    world.members_agree()
    assert cluster_of(new).epoch <= own.epoch + 4


def test_signatures_are_of_the_key_that_the_id_follows_from() -> None:
    """With the real ones."""
    mine, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    one, two = KeySigner(mine, 1), KeySigner(other, 1)
    found = one.sign(b"x")
    assert found.signer == node_id(raw_key(mine.public_key()), 1)
    assert two.holds(found, b"x")
    assert not two.holds(found, b"y")
    renamed = msgspec.structs.replace(found, signer=two.sign(b"x").signer)
    regenerated = msgspec.structs.replace(found, generation=2)
    rekeyed = msgspec.structs.replace(found, key=b"short")
    for forged in (renamed, regenerated, rekeyed):
        assert not two.holds(forged, b"x")

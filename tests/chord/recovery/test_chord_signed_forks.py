"""Lost clusters, broken links and forks where nodes have keys (P3, P5): who cannot prove that it
leads has to be believed by those whom it concerns, else some node serves nobody for ever."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from canopy.sim.world.signer import SimulatedSigner
from overlay.chord.cluster.messages import VoteRecord
from overlay.chord.constants import NOT_LOST_AFTER
from overlay.chord.epochs import ELECTION_BITS, FORK, fork_count, granting, sealing
from overlay.chord.keys import key_of
from overlay.chord.messages import Cluster, Contact, Membership, Moved, Recruit
from overlay.consensus import ProgressState
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, cluster_of, grown

KEYS = [key_of(f"attr:{number}") for number in range(8)]


def apart(world: RingWorld, here: list[RingNode]) -> None:
    """No link leads from these to the others."""
    for one in here:
        for other in list(world.members.values()):
            if other not in here:
                world.cut_link(one, other)


def together(world: RingWorld) -> None:
    nodes = list(world.members.values())
    for one in nodes:
        for other in nodes:
            if one is not other:
                world.heal_link(one, other)
    world.severed.clear()


def happened(seed: int, size: int, nodes: int, clusters: int = 1) -> RingWorld:
    """A world in which nodes crashed, were started again, and were cut off from each other, some
    times; then all live and reach each other, and it was quiet for a minute."""
    world = grown(seed, nodes=nodes, clusters=clusters, size=size, signed=True)
    rng = Random(f"{seed}/worlds")
    dead: list[RingNode] = []
    for step in range(rng.choice((3, 6, 10))):
        what = rng.random()
        alive = list(world.members.values())
        serving = [node for node in alive if node.clusters.cluster is not None]
        if what < 0.45 and len(alive) > 3:
            pool = serving if serving and rng.random() < 0.8 else alive
            most = min(rng.choice((1, 1, 2, 3, 4)), len(pool), len(alive) - 2)
            for node in rng.sample(pool, most):
                world.crash(node)
                dead.append(node)
        elif what < 0.65 and dead:
            for node in rng.sample(dead, rng.randint(1, len(dead))):
                dead.remove(node)
                world.restart(node)
        elif what < 0.85 and len(alive) > 3:
            apart(world, rng.sample(alive, rng.randint(1, len(alive) // 2)))
        else:
            together(world)
        for key in KEYS:
            if rng.random() < 0.5:
                world.write(key, str(step))
        for node in world.members.values():
            node.port.turn()
        world.run(rng.choice((0.3, 2.0, 5.0, 8.0, 15.0)))
    together(world)
    for node in dead:
        world.restart(node)
    world.run(60)
    return world


WORLDS = [
    *((seed, *kind) for seed in seeds(8, first=69) for kind in ((5, 9, 1), (3, 10, 2))),
    (4, 2, 8, 2),  # an arc had no owner
    (27, 5, 9, 1),  # two overrode each other for ever
    (96, 5, 9, 1),  # members waited for a primary that had left
    (105, 3, 10, 2),  # a cluster claimed a part of another's arc, and neither gave way
]


@pytest.mark.parametrize(("seed", "size", "nodes", "clusters"), WORLDS)
def test_whatever_was_cut_off_or_lost_all_follow_one_at_last(
    seed: int, size: int, nodes: int, clusters: int
) -> None:
    world = happened(seed, size, nodes, clusters)
    assert world.primaries()
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()
    for node in world.primaries():
        assert node.clusters.is_followed
        log = node.clusters.log
        for follower in node.clusters.leader_log.followers.values():
            assert (follower.state, follower.match) == (ProgressState.REPLICATE, log.next)


def test_who_voted_in_another_branch_gets_the_log_of_the_one_that_recruits_it() -> None:
    """It helps no epoch below its vote. The branch is no more, so nobody else raises the epoch."""
    world = grown(4, nodes=6, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    voted = own.epoch + (3 << ELECTION_BITS)
    outsider.clusters.journal.store_vote(VoteRecord(own.key, voted, "f" * 16, ()))
    world.crash(world.member(own.others()[-1].id))
    world.run(NOT_LOST_AFTER + 3)
    assert cluster_of(primary).has_member(outsider.peer.id)
    assert outsider.clusters.log.is_of(own.key)
    assert world.primaries() == [primary]
    assert cluster_of(primary).epoch > voted
    assert fork_count(cluster_of(primary).epoch) == 0
    world.members_agree()
    world.copies_agree()


def test_a_former_primary_that_remembers_its_cluster_does_not_lead_it() -> None:
    """Else its members would wait for it for ever, and refuse whoever leads instead."""
    world = grown(3, nodes=7, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    member = world.member(own.brokers[0].id)
    for node in (primary, *(n for n in world.members.values() if n is not member)):
        world.cut_link(member, node)
    world.run(6)
    assert member.clusters.recovery.misses_primary()
    member.port.hear(Moved(own, unled=True), primary.peer)
    assert member.clusters.recovery.misses_primary()
    member.port.hear(Moved(own), primary.peer)
    assert not member.clusters.recovery.misses_primary()


def test_a_claim_that_was_refused_is_believed_when_the_primary_gives_way_to_it() -> None:
    """Else subscribers would register with who leads now only when events have passed there."""
    world = grown(3, nodes=9, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    other = world.member(own.brokers[-1].id)
    said = claimed(other, own)
    outsider, *idle = [n for n in world.members.values() if n.clusters.role == "none"]
    outsider.ring.find(own.key)
    world.run(1)

    def leader() -> str:
        newest = outsider.ring.state.newest(own.key)
        assert newest is not None
        return newest.primary.id

    for sender in (other, idle[0]):
        outsider.port.hear(Moved(said, unled=True), sender.peer)
        world.run(0.5)
        assert leader() == primary.peer.id
    assert outsider.port.counts["claims_refused"]
    outsider.port.hear(Moved(said, unled=True), primary.peer)
    assert leader() == other.peer.id


def test_a_primary_that_gives_way_says_so_to_the_nodes_that_it_knows() -> None:
    world = grown(3, nodes=9, clusters=1, size=3, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    for peer in own.others():
        world.crash(world.member(peer.id))
    world.run(15)
    branch = [n for n in world.members.values() if n.clusters.role == "none"][:3]
    epoch = cluster_of(primary).epoch + (3 << ELECTION_BITS)
    text = granting(own.ring, own.key, epoch, branch[0].peer.id)
    grants = tuple(SimulatedSigner(n.peer.id, "rings").sign(text) for n in branch)
    said = own.under(epoch).served_by(*(node.peer for node in branch))
    said = msgspec.structs.replace(said, grants=grants)
    seal = SimulatedSigner(branch[0].peer.id, "rings").sign(sealing(said))
    said = msgspec.structs.replace(said, seal=seal)
    for _ in range(3):
        primary.port.hear(Moved(said), branch[0].peer)
        primary.port.turn()
        world.run(0.3)
    assert not primary.clusters.is_primary
    believed = [n.ring.state.newest(own.key) for n in world.members.values() if n is not primary]
    assert {c.primary.id for c in believed if c is not None} == {branch[0].peer.id}


def alone(world: RingWorld) -> tuple[RingNode, list[RingNode]]:
    """A cluster of six, of whom three vote, loses two voters: who is left leads alone, and the
    others, who have no vote, know the former description only."""
    (primary,) = world.primaries()
    primary.clusters.want(6)
    world.run(5)
    voters = [world.member(peer.id) for peer in primary.clusters.log.voters]
    rest = [n for n in world.members.values() if n not in voters]
    assert (len(voters), len(rest)) == (3, 3)
    for node in voters:
        if node is not primary:
            world.crash(node)
    return primary, rest


def test_who_has_no_vote_believes_who_leads_alone_when_the_others_are_lost() -> None:
    """All of them miss a primary: none of them is a reason for the others to refuse one."""
    world = grown(3, nodes=6, clusters=1, size=3, signed=True)
    primary, rest = alone(world)
    world.run(12)
    assert world.primaries() == [primary]
    assert fork_count(cluster_of(primary).epoch) == 1
    for node in rest:
        assert cluster_of(node).primary.id == primary.peer.id
        assert cluster_of(node).epoch == cluster_of(primary).epoch
    world.copies_agree()


def claimed(liar: RingNode, own: Cluster, *others: RingNode, above: int = 2 * FORK) -> Cluster:
    """That `liar` leads another branch with these, which it alone has granted."""
    epoch = own.epoch + above
    said = own.under(epoch).served_by(liar.peer, *(node.peer for node in others))
    text = granting(own.ring, own.key, epoch, liar.peer.id)
    mine = SimulatedSigner(liar.peer.id, "rings").sign(text)
    said = msgspec.structs.replace(said, grants=(mine,))
    seal = SimulatedSigner(liar.peer.id, "rings").sign(sealing(said))
    return msgspec.structs.replace(said, seal=seal)


def test_nobody_is_recruited_for_a_fork_of_a_cluster_that_is_led() -> None:
    """A voter that lies would have honest nodes vote for it, and fence the primary by that."""
    world = grown(3, nodes=9, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    liar = world.member(own.brokers[-1].id)
    idle = [n for n in world.members.values() if n.clusters.role == "none"]
    for node in idle:
        node.ring.find(own.key)
    world.run(1)
    said = claimed(liar, own, *idle[:2])

    def nobody_serves() -> None:
        assert all(node.clusters.cluster is None for node in idle)

    world.checks.append(nobody_serves)
    for _ in range(3):
        for node in idle:
            node.port.hear(Recruit(said), liar.peer)
            node.port.hear(Membership(said), liar.peer)
        world.run(2)
    for node in idle:
        assert node.port.counts["claims_refused"]
    assert world.primaries() == [primary]
    assert primary.port.counts["fenced"] == 0


def test_a_primary_that_asks_for_an_epoch_above_a_claim_is_not_fenced_by_it_meanwhile() -> None:
    """It has voted for that epoch itself, so it has no lease until the others have."""
    world = grown(3, nodes=9, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    liar = world.member(own.brokers[-1].id)
    said = claimed(liar, own)

    def votes() -> bool:
        campaign = primary.clusters.election.campaign
        return campaign is not None and not campaign.pre_vote and not campaign.over

    for _ in range(50):
        primary.port.hear(Moved(said), liar.peer)
        if votes():
            break
        world.run(0.02, gossip_every=1.0)
    assert votes()
    assert not primary.clusters.heartbeat.has_lease()
    primary.port.hear(Moved(said), liar.peer)
    world.run(2)
    assert world.primaries() == [primary]
    assert primary.port.counts["fenced"] == 0
    assert cluster_of(primary).epoch > said.epoch


@pytest.mark.parametrize("forked", [False, True])
def test_of_two_forks_that_both_have_a_majority_the_higher_goes_on(forked: bool) -> None:
    """Each primary is followed, and the members of neither believe the other. A voter that lies
    cannot show that another node has granted what it claims; and a cluster that was never lost
    gives way to nobody."""
    world = grown(3, nodes=12, clusters=1, size=3, signed=True)
    (primary,) = world.primaries()
    if forked:
        for peer in cluster_of(primary).others():
            world.crash(world.member(peer.id))
        world.run(15)
        assert world.primaries() == [primary]
        assert primary.clusters.is_followed
    assert fork_count(cluster_of(primary).epoch) == forked
    branch = [n for n in world.members.values() if n.clusters.role == "none"][:3]

    def leads_on(*granters: RingNode) -> bool:
        """Whether it does when it hears that these have granted another branch."""
        own = cluster_of(primary)
        epoch = own.epoch + (3 << ELECTION_BITS)
        text = granting(own.ring, own.key, epoch, branch[0].peer.id)
        grants = tuple(SimulatedSigner(n.peer.id, "rings").sign(text) for n in granters)
        said = own.under(epoch).served_by(*(node.peer for node in branch))
        said = msgspec.structs.replace(said, grants=grants)
        seal = SimulatedSigner(branch[0].peer.id, "rings").sign(sealing(said))
        said = msgspec.structs.replace(said, seal=seal)
        for _ in range(3):
            primary.port.hear(Moved(said), branch[0].peer)
            world.run(0.3)
            if not primary.clusters.is_primary:
                return False
        assert primary.port.counts["claims_outvoted"]
        return True

    assert leads_on(branch[0])
    assert leads_on(branch[0], branch[0])
    assert leads_on(branch[0], branch[1]) is not forked
    assert primary.port.counts["fenced"] == forked


@pytest.mark.parametrize("forked", [False, True])
def test_a_fork_that_votes_alone_gives_way_to_a_higher_one(forked: bool) -> None:
    """But a founder to which nobody has come yet does not."""
    world = grown(3, nodes=3 if forked else 1, clusters=1, size=3, signed=True)
    (primary,) = world.primaries()
    for peer in cluster_of(primary).others():
        world.crash(world.member(peer.id))
    world.run(20)
    own = cluster_of(primary)
    assert (fork_count(own.epoch), len(own.members())) == (forked, 1)
    elsewhere = RingWorld(9, signed=True)
    stranger = [elsewhere.add() for _ in range(9)][-1]
    said = claimed(stranger, own, above=3 << ELECTION_BITS)
    for _ in range(3):
        primary.port.hear(Moved(said), stranger.peer)
        world.run(3)
    assert primary.clusters.is_primary is not forked


def test_who_has_left_says_so_to_a_primary_that_takes_it_for_a_member() -> None:
    """It would stay one, and a voter, for ever."""
    world = grown(3, nodes=7, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    gone = world.member(cluster_of(primary).brokers[-1].id)
    gone.clusters.membership.leave_cluster("fenced by a fork")
    gone.port.turn()
    assert cluster_of(primary).has_member(gone.peer.id)
    world.run(10)
    world.members_agree()
    world.copies_agree()
    assert len(cluster_of(primary).members()) == 5


def test_a_node_says_whether_it_only_remembers_what_it_names() -> None:
    world = grown(3, nodes=7, clusters=1, size=5, signed=True)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    outsider.ring.find(own.key)
    world.run(1)
    member = world.member(own.brokers[0].id)

    def answers(node: RingNode) -> Moved:
        node.port.take(Moved)
        node.port.hear(Contact(outsider.peer.id), outsider.peer)
        (moved,) = node.port.take(Moved)
        return moved

    assert [answers(node).unled for node in (primary, member, outsider)] == [False, False, True]
    for peer in own.members():
        if peer.id != member.peer.id:
            world.cut_link(member, world.member(peer.id))
    world.run(1.5)
    assert not answers(member).unled, "an election may be under way"
    world.run(2.5)
    assert answers(member).unled


def test_of_a_cluster_and_its_fork_one_goes_on_though_most_members_have_no_vote() -> None:
    """Both are followed, so neither believes the other at once; and two of three voters, who have
    granted an epoch, are no majority of the members."""
    world = grown(5, nodes=10, clusters=1, size=3, signed=True)
    (primary,) = world.primaries()
    primary.clusters.want(10)
    world.run(5)
    voters = [world.member(peer.id) for peer in primary.clusters.log.voters]
    rest = [node for node in world.members.values() if node not in voters]
    assert (len(voters), len(rest)) == (3, 7)
    lost = next(node for node in voters if node is not primary)
    apart(world, [lost, *rest[:4]])
    world.run(20)
    assert {cluster_of(node).key for node in world.primaries()} == {cluster_of(primary).key}
    assert len(world.primaries()) == 2
    together(world)
    world.run(30)
    assert len(world.primaries()) == 1
    world.members_agree()
    world.copies_agree()

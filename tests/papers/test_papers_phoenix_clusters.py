"""What Phoenix claims of clusters (sections 1 and 2), one test per claim.

Each test names the claim as docs/design/clusters.md and docs/design/chord-ring.md state it, and
what is done differently here. P and Q are the paper's names for a primary and a neighbour that it
cannot reach, R for the standby that takes Q's place, S for the ring neighbour of a lost cluster.
"""

from __future__ import annotations

from math import log2

import pytest

from overlay.chord.cluster.messages import ClusterHello, ClusterHelloReply, RequestVote
from overlay.chord.events import Elected, OwnerFound, Replanted
from overlay.chord.keys import key_of
from overlay.chord.messages import Cluster, Find, Rejoin
from overlay.settings import ElectionSettings
from tests.support.rings import UNRECOVERED, RingNode, RingWorld, cluster_of, grown

KEY = key_of("attr:magnitude")
KEYS = [key_of(f"attr:{n}") for n in range(60)]


def leader(world: RingWorld, key: str = KEY) -> RingNode:
    (found,) = world.owners(key)
    return found


def two_clusters(seed: int = 3, election: ElectionSettings | None = None) -> RingWorld:
    world = grown(seed, nodes=12, clusters=2, size=3, election=election)
    assert len(world.primaries()) == 2
    return world


# --- section 1: clusters and the ring (P1, P2) ---


def test_p1_a_cluster_has_a_primary_a_standby_and_match_brokers() -> None:
    """Section 1: "a primary broker, a standby, and match brokers"."""
    world = grown(1, nodes=8, clusters=1, size=5)
    cluster = cluster_of(leader(world))
    roles = sorted(world.member(peer.id).clusters.role for peer in cluster.members())
    assert roles == ["broker", "broker", "broker", "primary", "standby"]


def test_p1_state_is_persisted_and_copied_with_quorum_consensus() -> None:
    """Section 2: state is copied with quorum consensus. Committed is what a majority of the voters
    has on disk, and not before."""
    world = grown(1, nodes=5, clusters=1, size=5, election=UNRECOVERED)
    primary = leader(world)
    others = [world.member(p.id) for p in primary.clusters.log.voters if p != primary.peer]
    for other in others[:2]:
        world.crash(other)
    assert world.write(KEY, "three of five")
    world.run(0.5)
    assert primary.registry.durable, "a majority is left"
    durable = len(primary.registry.durable)
    world.crash(others[2])
    primary.registry.write(KEY, "two of five")
    world.run(5)
    assert len(primary.registry.durable) == durable, "no majority"
    left = [primary, others[3]]
    for node in left:
        world.crash(node)
    again = [world.restart(node) for node in (*left, others[2])]
    world.run(10)
    assert any(n.clusters.is_primary for n in again)
    text = f"{KEY}:three of five".encode()
    assert all(text in n.registry.entries for n in again), "it was on their disks"


def test_p2_the_key_of_an_event_type_belongs_to_its_successor_on_the_ring() -> None:
    """Section 1: primaries form a Chord ring; a type's SHA-1 key belongs to its successor."""
    world = grown(2, nodes=24, clusters=5, size=3)
    arcs = world.arcs()
    assert len(arcs) >= 4
    for key in KEYS:
        successor = min(arcs, key=lambda c: (int(c.key, 16) - int(key, 16)) % 2**160)
        assert [n.peer for n in world.owners(key)] == [successor.primary]


def test_p2_a_lookup_takes_a_logarithmic_number_of_hops() -> None:
    """Section 1: finger tables route in O(log n)."""
    world = grown(2, nodes=30, clusters=8, size=3)
    clusters = len(world.primaries())
    outside = next(n for n in world.members.values() if n.clusters.cluster is None)
    for key in KEYS:
        outside.ring.find(key)
    outside.port.turn()
    world.run(3)
    found = [e for key in KEYS for e in outside.answers(key) if isinstance(e, OwnerFound)]
    assert len(found) == len(KEYS)
    assert max(e.hops for e in found) <= log2(clusters) + 2


# --- section 2: link failure (P3) ---


def test_p3_if_others_reach_q_only_the_link_is_down_and_q_stays_in_service() -> None:
    """Section 2, link failure: P cannot reach Q and asks others; Q answers them. The others are all
    voters, asked for a pre-vote."""
    world = grown(3, nodes=5, clusters=1, size=5)
    q = leader(world)
    p = world.member(cluster_of(q).brokers[0].id)
    epoch = cluster_of(q).version[0]
    world.sent.clear()
    world.cut_link(p, q)
    world.run(10)
    asked = [m for sender, _, m in world.sent if isinstance(m, RequestVote) and sender == p.peer.id]
    assert asked, "P has asked"
    assert all(m.pre_vote for m in asked), "and no voter would elect it"
    assert leader(world) is q
    assert cluster_of(q).version[0] == epoch


# --- section 2: broker failure (P4) ---


def test_p4_messages_for_q_are_kept_and_go_to_r() -> None:
    """Section 2, broker failure: P keeps what is for Q in bufferMessageList and flushes it to R.
    Here lookups wait at the members of Q's cluster."""
    world = two_clusters()
    q = leader(world)
    outside = next(n for n in world.members.values() if n.clusters.cluster is None)
    world.run(1)
    world.crash(q)
    outside.ring.find(KEY)
    outside.port.turn()
    world.run(8)
    (answer,) = outside.answers(KEY)
    assert isinstance(answer, OwnerFound)
    assert answer.cluster.primary == leader(world).peer != q.peer


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_p4_the_first_candidate_that_is_left_takes_qs_place(dead: int) -> None:
    """Section 2, broker failure: a bully election among the candidates of slaveIdList. The rank
    nominates (standby, then match brokers); what elects is a majority of votes."""
    election = ElectionSettings(rank_wait=1.0)
    world = grown(3, nodes=5, clusters=1, size=5, election=election)
    q = leader(world)
    ranked = cluster_of(q).members()
    for peer in ranked[: dead + 1]:
        world.crash(world.member(peer.id))
    world.run(6)
    if dead < 2:
        assert leader(world).peer == ranked[dead + 1]
        assert cluster_of(leader(world)).version[0] == 2
    else:  # two of five voters: none is elected, and recovery (P5) is what follows
        assert not [n for n in world.primaries() if cluster_of(n).version[0] == 2]


def test_p4_r_says_hello_to_the_match_brokers_which_answer() -> None:
    """Section 2, broker failure: HELLO and HELLO_REPLY."""
    world = grown(3, nodes=5, clusters=1, size=5)
    q = leader(world)
    brokers = {peer.id for peer in cluster_of(q).brokers}
    world.crash(q)
    world.sent.clear()
    world.run(5)
    r = leader(world).peer.id
    greeted = {to for sender, to, m in world.sent if isinstance(m, ClusterHello) and sender == r}
    replied = {
        sender for sender, to, m in world.sent if isinstance(m, ClusterHelloReply) and to == r
    }
    assert brokers - {r} <= greeted
    assert brokers - {r} <= replied


def test_p4_r_enters_the_ring_and_sends_rejoin_to_p() -> None:
    """Section 2, broker failure: R enters the ring in Q's place and sends REJOIN to P."""
    world = two_clusters()
    q = leader(world)
    (p,) = [n for n in world.primaries() if n is not q]
    world.crash(q)
    world.sent.clear()
    world.run(8)
    r = leader(world)
    assert [e.lost for e in r.events if isinstance(e, Elected)] == [q.peer]
    rejoined = [to for sender, to, m in world.sent if isinstance(m, Rejoin) and sender == r.peer.id]
    assert p.peer.id in rejoined
    world.ring_is_whole()


# --- section 2: cluster failure (P5) ---


def lose_the_cluster(world: RingWorld) -> tuple[Cluster, RingNode]:
    """All members of KEY's cluster crash. Returns what it was, and the ring neighbour S."""
    lost = cluster_of(leader(world))
    (s,) = [n for n in world.primaries() if n.peer != lost.primary]
    world.run(3)
    for peer in lost.members():
        world.crash(world.member(peer.id))
    return lost, s


def test_p5_the_ring_neighbour_takes_over_the_lost_clusters_keys() -> None:
    """Section 2, cluster failure: S serves in the place of a cluster that is gone. Here its own
    majority grants it, and its arc grows by the lost one."""
    world = two_clusters()
    lost, s = lose_the_cluster(world)
    world.run(20)
    assert leader(world) is s
    assert cluster_of(s).owns(lost.key)
    assert [e.lost.start for e in s.events if isinstance(e, Replanted)] == [lost.start]
    assert len(s.clusters.log.voters) >= 3


def test_p5_s_knows_what_the_lost_cluster_knew() -> None:
    """Section 2, cluster failure: S reads the lost cluster's state from a database. Here S has a
    copy of its log, as an observer."""
    world = two_clusters()
    assert world.write(KEY, "registered")
    world.run(2)
    lost, s = lose_the_cluster(world)
    assert f"{KEY}:registered".encode() in s.registry.observed[lost.key]
    world.run(3)
    assert s.clusters.is_whole(lost.key)


def test_p5_messages_for_the_lost_cluster_are_answered_by_s() -> None:
    """Section 2, cluster failure: S buffers messages for the lost cluster and flushes them. Here
    who asks meanwhile asks again, and finds S."""
    world = two_clusters()
    outside = next(n for n in world.members.values() if n.clusters.cluster is None)
    _, s = lose_the_cluster(world)
    for _ in range(10):
        outside.ring.find(KEY)
        outside.port.turn()
        world.run(2)
    last = outside.answers(KEY)[-1]
    assert isinstance(last, OwnerFound)
    assert last.cluster.primary == s.peer
    assert any(isinstance(m, Find) and to == s.peer.id for _, to, m in world.sent)


def test_p5_as_many_machines_as_are_missing_are_requested() -> None:
    """Section 2, cluster failure: S requests as many machines as are missing. Here a cluster of
    whose members one is left recruits idle nodes up to its size."""
    world = grown(4, nodes=10, clusters=1, size=5)
    members = cluster_of(leader(world)).members()
    for peer in members[:-1]:
        world.crash(world.member(peer.id))
    world.run(25)
    cluster = cluster_of(leader(world))
    assert len(cluster.members()) == 5
    assert not {p.id for p in members[:-1]} & {p.id for p in cluster.members()}

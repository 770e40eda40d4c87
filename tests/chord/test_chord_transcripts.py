"""A lookup, an election, a split and a recovery, message by message.

Each test compares what was said with the text that it expects: docs/design/chord-ring.md has the
lookup, docs/design/clusters.md the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import dedent

from overlay.chord.cluster.election import CampaignDue
from overlay.chord.cluster.heartbeat import PrimarySilent
from overlay.chord.cluster.messages import (
    ClusterHello,
    ClusterHelloReply,
    LogAck,
    LogEntries,
    LogSnapshot,
    RequestVote,
    VoteReply,
)
from overlay.chord.keys import key_of
from overlay.chord.messages import ArcGiven, Find, FindReply, Rejoin, TakenOver, TakeOver
from overlay.chord.recovery.messages import RecoverReply, RecoverRequest
from overlay.machine import NodeId
from overlay.settings import ElectionSettings
from tests.support.rings import RingNode, RingWorld, cluster_of, grown, middle_of
from tests.support.transcript import Transcript

KEY = key_of("attr:x")
ONE_BY_ONE = ElectionSettings(rank_wait=0.5)
"""So long that candidates never meet."""


def by_role(node: RingNode) -> dict[NodeId, str]:
    """The members of a node's cluster: primary, standby, broker a, broker b …"""
    cluster = cluster_of(node)
    names = ["primary", "standby", *(f"broker {letter}" for letter in "abc")]
    return {peer.id: name for peer, name in zip(cluster.members(), names, strict=False)}


def crash(world: RingWorld, nodes: Iterable[NodeId]) -> None:
    for node in nodes:
        world.crash(world.member(node))


def test_a_lookup_is_passed_on_until_the_owner_answers_the_origin_itself() -> None:
    world = grown(1, nodes=24, clusters=4, size=3)
    (owner,) = world.owners(KEY)
    origin = next(n for n in world.members.values() if n.clusters.cluster is None)
    names = dict.fromkeys(world.members, "a closer primary")
    names |= {origin.peer.id: "origin", owner.peer.id: "owner"}
    said = Transcript(world, names, (Find, FindReply))
    origin.ring.find(KEY)
    world.run(1, gossip_every=10)
    assert said.text() == dedent("""\
            -> a closer primary: Find (hop 1)
        a closer primary <- origin: Find (hop 1)
            -> owner: Find (hop 2)
        owner <- a closer primary: Find (hop 2)
            -> origin: FindReply (after 2 hops)
        origin <- owner: FindReply (after 2 hops)""")


def test_an_election() -> None:
    """A pre-vote, a vote, HELLO and HELLO_REPLY, REJOIN, and an entry of the new epoch that is
    committed."""
    world = grown(0, nodes=8, clusters=2, size=3, election=ONE_BY_ONE)
    old, other = world.primaries()
    kinds = (PrimarySilent, CampaignDue, RequestVote, VoteReply, Rejoin)
    log = (ClusterHello, ClusterHelloReply, LogEntries, LogAck)
    said = Transcript(world, by_role(old) | {other.peer.id: "ring neighbour"}, (*kinds, *log))
    world.crash(old)
    world.run(1.75, gossip_every=10)
    assert said.text() == dedent("""\
        standby: timer PrimarySilent
        broker a: timer PrimarySilent
        standby: timer CampaignDue
            -> primary: RequestVote (pre-vote)
            -> broker a: RequestVote (pre-vote)
        broker a <- standby: RequestVote (pre-vote)
            -> standby: VoteReply (pre-vote: yes)
        standby <- broker a: VoteReply (pre-vote: yes)
            -> primary: RequestVote (epoch 2)
            -> broker a: RequestVote (epoch 2)
        broker a <- standby: RequestVote (epoch 2)
            -> standby: VoteReply (epoch 2: yes)
        standby <- broker a: VoteReply (epoch 2: yes)
            -> broker a: ClusterHello (epoch 2)
            -> primary: ClusterHello (epoch 2)
            -> ring neighbour: Rejoin (epoch 2)
        broker a <- standby: ClusterHello (epoch 2)
            -> standby: ClusterHelloReply (has 4 entries)
        ring neighbour <- standby: Rejoin (epoch 2)
        standby <- broker a: ClusterHelloReply (has 4 entries)
            -> broker a: LogEntries (configuration after 4)
        broker a <- standby: LogEntries (configuration after 4)
            -> standby: LogAck (has 5 entries)
        standby <- broker a: LogAck (has 5 entries)""")


def test_a_split() -> None:
    """The state goes over and is confirmed; the log says that the arc is gone; only then is the
    new primary allowed to serve."""
    world = grown(0, nodes=6, clusters=1, size=3)
    (primary,) = world.primaries()
    middle = middle_of(cluster_of(primary))
    primary.registry.slow = True
    assert world.write(middle, "moves with its arc")
    primary.clusters.request_split(middle)
    while primary.registry.departing is None:
        world.run(0.5)
    arc = primary.registry.departing
    names = {node: name for node, name in by_role(primary).items() if "broker" not in name}
    names[arc.primary.id] = "new primary"
    said = Transcript(
        world, names, (TakeOver, TakenOver, ArcGiven, LogSnapshot, LogEntries, LogAck)
    )
    primary.registry.go_on()
    primary.port.turn()
    world.run(0.6, gossip_every=10)
    assert said.text() == dedent("""\
            -> new primary: LogSnapshot (1 entries)
            -> standby: LogEntries (configuration after 3)
            -> new primary: LogEntries (configuration after 3)
        standby <- primary: LogEntries (configuration after 3)
            -> primary: LogAck (has 4 entries)
        new primary <- primary: LogSnapshot (1 entries)
        new primary <- primary: LogEntries (configuration after 3)
            -> primary: LogAck (has 4 entries)
        primary <- standby: LogAck (has 4 entries)
            -> new primary: TakeOver (1 entries, epoch 2)
        new primary <- primary: TakeOver (1 entries, epoch 2)
            -> primary: TakenOver (yes)
        primary <- new primary: LogAck (has 4 entries)
        primary <- new primary: TakenOver (yes)
            -> standby: LogEntries (configuration after 4)
            -> new primary: LogEntries (configuration after 4)
        standby <- primary: LogEntries (configuration after 4)
            -> primary: LogAck (has 5 entries)
        primary <- another node: LogAck (has 5 entries)
            -> new primary: ArcGiven (yes)
        new primary <- primary: LogEntries (configuration after 4)
            -> primary: LogAck (has 5 entries)
        new primary <- primary: ArcGiven (yes)
        primary <- standby: LogAck (has 5 entries)
        primary <- new primary: LogAck (has 5 entries)""")
    assert [n.peer for n in world.owners(middle)] == [arc.primary]


def test_a_recovery() -> None:
    """Three of five voters are gone for good: no election can help. The two that are left agree,
    and one of them goes on under a fork."""
    world = grown(12, nodes=5, clusters=1, size=5, election=ONE_BY_ONE)
    (primary,) = world.primaries()
    names = by_role(primary)
    left = {node: name for node, name in names.items() if name in ("standby", "broker a")}
    said = Transcript(world, left, (RecoverRequest, RecoverReply, ClusterHello, ClusterHelloReply))
    crash(world, [node for node in names if node not in left])
    world.run(7, gossip_every=10)
    assert said.text() == dedent("""\
        standby: timer RecoveryRound
            -> broker a: RecoverRequest (look)
        broker a <- standby: RecoverRequest (look)
        broker a: timer RecoveryRound
            -> standby: RecoverRequest (look)
        standby <- broker a: RecoverRequest (look)
        standby: timer RecoveryRound
            -> broker a: RecoverRequest (may I lead it?)
        broker a <- standby: RecoverRequest (may I lead it?)
            -> standby: RecoverReply (yes)
        standby <- broker a: RecoverReply (yes)
        broker a: timer RecoveryRound
            -> standby: RecoverRequest (may I lead it?)
        standby <- broker a: RecoverRequest (may I lead it?)
            -> broker a: RecoverReply (yes)
        broker a <- standby: RecoverReply (yes)
        broker a: timer RecoveryAnswersDue
            -> standby: ClusterHello (fork 1)
        standby <- broker a: ClusterHello (fork 1)
            -> broker a: ClusterHelloReply (has 4 entries)
        broker a <- standby: ClusterHelloReply (has 4 entries)""")

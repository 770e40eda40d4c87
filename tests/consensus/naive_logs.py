"""A world of replicated logs so plain that it shows what is wrong: each node's log is a list, a
message is an assignment, and what was ever committed is a list as well.

It knows nothing of majorities or votes: it asks the rules of `overlay.consensus` what each node may
do, does that in a random order with crashes in between, and holds the lists against one another
(Ongaro and Ousterhout, *In search of an understandable consensus algorithm*, figure 3: election
safety, leader completeness, state machine safety).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from overlay import consensus
from overlay.consensus import Progress, Tracker
from overlay.machine import NodeId, Peer, Version

ALL = tuple(Peer(name, "") for name in "ABCDE")


class WrongError(AssertionError):
    """A rule let something happen that must not."""


class Entry(NamedTuple):
    epoch: int
    number: int
    """Of all that were ever appended anywhere."""
    voters: tuple[Peer, ...]


class Voted(NamedTuple):
    epoch: int
    candidate: NodeId


class Leader:
    """One node's leading in one epoch."""

    def __init__(self, node: Node, epoch: int) -> None:
        self.epoch = epoch
        self.tracker = Tracker[Progress](node.peer.id, len(node.log) + 1)
        self.tracker.follow({p.id: p for p in ALL if p is not node.peer}, Progress)
        self.committed = 0


class Node:
    def __init__(self, peer: Peer, voters: tuple[Peer, ...]) -> None:
        self.peer = peer
        self.log: list[Entry] = []
        self.founders = voters
        self.durable = 0
        self.vote: Voted | None = None
        self.leader: Leader | None = None

    @property
    def voters(self) -> tuple[Peer, ...]:
        return self.log[-1].voters if self.log else self.founders

    @property
    def position(self) -> Version:
        return (self.log[-1].epoch, len(self.log)) if self.log else (0, 0)


class NaiveLogs:
    """Five nodes, of which some vote at first; steps are chosen by `rng`."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        founders = ALL[: rng.choice((1, 3, 3, 4))]
        self.nodes = {peer.id: Node(peer, founders) for peer in ALL}
        self.truth: list[Entry] = []
        self.led: dict[int, NodeId] = {}
        self.appended = 0

    def run(self, steps: int) -> None:
        does = (self.campaign, self.crash, self.append, self.replicate, self.sync, self.change)
        for step in self.rng.choices(does, weights=(3, 1, 3, 14, 5, 2), k=steps):
            nodes = list(self.nodes.values())
            if step not in (self.campaign, self.crash):
                nodes = [node for node in nodes if node.leader is not None] or nodes
            step(self.rng.choice(nodes))

    # -- what nodes do ---------------------------------------------------------------------------

    def campaign(self, node: Node) -> None:
        """A node asks some of the others for their votes; those who vote answer at once."""
        seen = max((self.nodes[peer.id].vote or Voted(0, "")).epoch for peer in node.voters)
        epoch = max(1, seen + self.rng.choice((0, 1, 1, 1)))
        if not consensus.may_vote(node.vote, epoch, node.peer.id) or node.peer not in node.voters:
            return
        node.vote, node.leader = Voted(epoch, node.peer.id), None
        granted = {node.peer.id}
        for peer in self.rng.sample(node.voters, self.rng.randint(1, len(node.voters))):
            voter = self.nodes[peer.id]
            if consensus.may_vote(voter.vote, epoch, node.peer.id) and consensus.is_up_to_date(
                node.position, voter.position
            ):
                voter.vote = Voted(epoch, node.peer.id)
                granted.add(peer.id)
        if consensus.has_majority(node.voters, granted):
            self.lead(node, epoch)

    def lead(self, node: Node, epoch: int) -> None:
        if self.led.setdefault(epoch, node.peer.id) != node.peer.id:
            raise WrongError(f"two leaders of epoch {epoch}")
        if node.log[: len(self.truth)] != self.truth:
            raise WrongError(f"the leader of epoch {epoch} lacks what is committed")
        node.leader = Leader(node, epoch)
        self.add(node, node.voters)
        node.leader.tracker.change(len(node.log))

    def add(self, node: Node, voters: tuple[Peer, ...]) -> None:
        assert node.leader is not None
        self.appended += 1
        node.log.append(Entry(node.leader.epoch, self.appended, voters))

    def append(self, node: Node) -> None:
        if node.leader is not None:
            self.add(node, node.voters)

    def replicate(self, node: Node) -> None:
        """A leader's log, up to some entry, comes to another node, which stores and acknowledges
        it."""
        other = self.nodes[self.rng.choice(ALL).id]
        if node.leader is None or other is node:
            return
        if consensus.is_fenced(other.vote, node.leader.epoch):
            return
        other.vote, other.leader = Voted(node.leader.epoch, node.peer.id), None
        end = self.rng.randint(0, len(node.log))
        if other.log[:end] != node.log[:end]:
            other.log = node.log[:end]
        other.durable = len(other.log)
        node.leader.tracker.followers[other.peer.id].acknowledge(end, 0.0)
        self.commit(node)

    def sync(self, node: Node) -> None:
        """A node's disk has all that it was asked to write."""
        node.durable = len(node.log)
        self.commit(node)

    def commit(self, node: Node) -> None:
        leader = node.leader
        if leader is None or consensus.is_fenced(node.vote, leader.epoch):
            return
        number = leader.tracker.committable(node.voters, node.durable)
        if number <= leader.committed:
            return
        leader.committed = number
        for at, entry in enumerate(node.log[:number]):
            if at == len(self.truth):
                self.truth.append(entry)
            elif self.truth[at] != entry:
                raise WrongError(f"entry {at + 1} was committed twice")

    def crash(self, node: Node) -> None:
        """What is not on disk is lost; a leader leads no more."""
        del node.log[node.durable :]
        node.leader = None

    def change(self, node: Node) -> None:
        """A leader votes one in or out; one that votes alone takes in two, durably at once."""
        leader = node.leader
        if leader is None or not leader.tracker.may_change(leader.committed):
            return
        before = node.voters
        outside = [peer for peer in ALL if peer not in before]
        others = [peer for peer in before if peer is not node.peer]
        if outside and (len(before) < 3 or self.rng.random() < 0.5):
            after = (*before, *outside[: 2 if before == (node.peer,) else 1])
        elif others:
            out = self.rng.choice(others)
            after = tuple(peer for peer in before if peer is not out)
        else:
            return
        leader.tracker.check_change(before, after)
        self.add(node, after)
        leader.tracker.change(len(node.log))
        if before == (node.peer,):
            node.durable = len(node.log)

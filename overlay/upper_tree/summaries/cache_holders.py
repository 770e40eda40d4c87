"""Who may believe something that an owner of this arc told, also one that is lost (C5, P4).

What publishers are told of trees (`beliefs.py`) is in no log: it changes too often. But a new
primary must not give a SUBACK that a belief has no room for, or an event that is published after it
could miss its registration. So the log says *who* was told anything at all, which changes seldom:

* Nobody is told anything before a majority has in the log that it may believe something (`Told`).
* A new primary asks all of them (`AskBeliefs`). Each answers what it believes of which trees, and
  from then on believes no answer of an older epoch that is still on its way. What it believes is
  taken back like the new primary's own words. A SUBACK waits for those who have not answered until
  what they were told is over for certain: one `tree.nobody_term`.
* Whoever believes nothing any more leaves the log (`over`) when its link is down, or after a while.

Some are in no log: whom a cluster told that forked off, or lost its log (P5) without a whole copy
(adopting.py). Then nobody knows whom to ask, and SUBACKs wait for the term; the log says that as
well (`others`).

A primary that asks itself believes its own answer no longer than its lease to decide, so that a
lost one need not be asked what it told itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from overlay.chord.events import Elected, Replanted, RoleChanged
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH
from overlay.upper_tree.events import BeliefEnded, BeliefsLearned
from overlay.upper_tree.invalidation_table import InvalidationTable
from overlay.upper_tree.messages import AskBeliefs, Believed
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import HOLDERS_PER_ENTRY, CacheHoldersChanged

BELIEVERS_MOST = 16_384
"""Peers that the log names; more are told nothing that lasts. About 1 MiB of a log's copy. Wild
guess."""

KEEP = 60.0
"""Seconds that one stays in the log who believes nothing any more, since whoever publishes now and
then would be put in and taken out all the time. Wild guess."""

SWEEP_SHARE = 0.5
"""Of the term: the time between two looks for those who believe nothing any more. Wild guess."""


class BelieversDue(Timer, frozen=True):
    """Somebody believes nothing any more."""


class FormerHolders(Protocol):
    """What a restored arc's former owner is known to have told (owner/restoration.py)."""

    @property
    def former_holders(self) -> tuple[Peer, ...] | None:
        """Publishers that it may have given summaries; None: it is not known who."""


class CacheHolders(Machine):
    """At the primary: keeps the log's list, and asks it when it is inherited."""

    def __init__(
        self, port: Port, settings: Settings, owner: Owner, restoration: FormerHolders
    ) -> None:
        super().__init__(port)
        self.longest = settings.tree.nobody_term
        self.table = InvalidationTable(settings.tree.nobody_term)
        self.owner = owner
        self.clusters = owner.clusters
        self.trees = owner.trees
        self.hosts = owner.hosts
        self.restoration = restoration
        self._epoch = 0  # under which this node leads; 0: it does not
        self._index: dict[NodeId, int] = {}  # of the entry that named it, if it is this node's own
        self._until: dict[NodeId, float] = {}  # when the last that it was told is over
        self._unknown: dict[NodeId, Peer] = {}  # who has not said yet what it believes
        self._unknown_until = 0.0
        self._unheard: dict[NodeId, None] = {}  # of those, who may have lost the question
        self._due = Alarm(port, BelieversDue())

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            RoleChanged: self.on_role_changed,
            Elected: self.on_elected,
            Replanted: self.on_replanted,
            Believed: self.on_believed,
            LinkUp: self.on_link_up,
            LinkDown: self.on_link_down,
            BelieversDue: self.on_due,
        }

    # --- before somebody is told ---

    def admit(self, peer: Peer) -> int | None:
        """Number of the log entry that has to be committed before `peer` may be told something that
        lasts (-1: none); None: it may not be, since there is no room for it."""
        if peer.id == self.port.me.id:
            return -1
        believers = self.owner.state.cache_holders
        if believers.get(peer.id) != peer:
            if peer.id not in believers and len(believers) >= BELIEVERS_MOST:
                self.port.count("believers_refused")
                return None
            self._index[peer.id] = self._log((peer,))
        self.told(peer)
        return self._index.get(peer.id, 0)

    def told(self, peer: Peer) -> float:
        """It is being told something now: for how many seconds it may believe that."""
        if peer.id == self.port.me.id:
            return min(self.longest, self.clusters.lease_left)
        self._until[peer.id] = self.port.now + self.longest
        self._due.within(self.longest * SWEEP_SHARE)
        return self.longest

    def all_known(self) -> bool:
        """Whether whatever is believed is in the `ToldTable` (or waited for: `blind_until`)."""
        return not self._unknown or self._unknown_until <= self.port.now

    # --- inheriting ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """Ask the believers of the former primary, under each new epoch once."""
        if event.role != "primary" or event.cluster is None:
            self._epoch = 0
            self._forget()
        elif self._epoch != event.cluster.version[0]:
            self._epoch = event.cluster.version[0]
            self._forget()
            self._ask_all(event.cluster)

    def _forget(self) -> None:
        self._index.clear()
        self._until.clear()
        self._unknown.clear()
        self._unheard.clear()
        self._due.cancel()

    def _ask_all(self, cluster: Cluster) -> None:
        state = self.owner.state
        self._ask(cluster, state.cache_holders)
        if state.has_unknown_holders:
            self._be_blind()

    def _ask(self, cluster: Cluster, peers: Mapping[NodeId, Peer]) -> None:
        self._unknown |= peers
        self._unknown_until = self.port.now + self.longest
        for peer in peers.values():
            self.port.send(peer, AskBeliefs(cluster))
        if self._unknown:
            self._due.within(self.longest)

    def on_elected(self, event: Elected) -> None:
        """Under a fork's epoch: its log may lack whom the other branch told."""
        if event.forked:
            self._be_blind()

    def on_replanted(self, event: Replanted) -> None:
        """Of an arc whose log is lost nobody knows whom its owner told, if no copy says so."""
        found, cluster = self.restoration.former_holders, self.clusters.cluster
        known = len(self.owner.state.cache_holders)
        if found is None or cluster is None or known + len(found) > BELIEVERS_MOST:
            self._be_blind()
            return
        for first in range(0, len(found), HOLDERS_PER_ENTRY):
            self._log(found[first : first + HOLDERS_PER_ENTRY])
        self._ask(cluster, {peer.id: peer for peer in found})

    def _be_blind(self) -> None:
        table = self.table
        table.blind_until = max(table.blind_until, self.port.now + self.longest)
        if not self.owner.state.has_unknown_holders:
            self._log((), others=True)
        self._due.within(self.longest)

    def on_believed(self, sender: Peer, message: Believed) -> None:
        """What one of them believes."""
        cluster, left = self.clusters.cluster, self._unknown_until - self.port.now
        if cluster is None or sender.id not in self._unknown or left <= 0.0:
            return
        if (message.key, message.epoch) != (cluster.key, self._epoch):
            return
        if len(message.beliefs) > MAX_BATCH:
            raise ProtocolError("too many beliefs in one message")
        for attribute, digest in message.beliefs:
            self.table.tell(attribute, sender, self.port.now, left, digest)
        self._until[sender.id] = max(self._until.get(sender.id, 0.0), self._unknown_until)
        if message.beliefs:
            self.port.emit(BeliefsLearned(tuple(name for name, _ in message.beliefs)))
        if message.last:
            self._learnt(sender.id)

    def on_link_up(self, event: LinkUp) -> None:
        """It may not have got the question."""
        cluster = self.clusters.cluster
        if event.peer.id in self._unheard and cluster is not None:
            del self._unheard[event.peer.id]
            self.port.send(event.peer, AskBeliefs(cluster))

    def on_link_down(self, event: LinkDown) -> None:
        """Who has left believes nothing; who is only silent may."""
        if event.left:
            self._learnt(event.peer.id)
        elif event.peer.id in self._unknown:
            self._unheard[event.peer.id] = None

    def _learnt(self, node: NodeId) -> None:
        """Nothing is unknown of it any more."""
        self._unheard.pop(node, None)
        if self._unknown.pop(node, None) is not None and not self._unknown:
            self._ease()

    def _ease(self) -> None:
        """SUBACKs wait for nobody unknown any more."""
        for attribute, owned in self.trees.items():
            if owned.pending:
                self.port.emit(BeliefEnded(attribute))

    # --- those who believe nothing any more ---

    def on_due(self, timer: BelieversDue) -> None:
        """What former primaries told may be over; and what this one did."""
        self._due.rang()
        now, owner = self.port.now, self.owner
        if self._unknown and self._unknown_until <= now:
            self.port.count("believers_waited_out", len(self._unknown))
            self._unknown.clear()
            self._unheard.clear()
            self._ease()
        believers = owner.state.cache_holders
        over = tuple(node for node in believers if self._is_over(node, now))
        others = owner.state.has_unknown_holders and self.table.blind_until > now
        if (over or others != owner.state.has_unknown_holders) and not owner.is_handing_over:
            for node in over:
                self._until.pop(node, None)
                self._index.pop(node, None)
            self._log((), over, others)
        if believers or others:
            self._due.within(self.longest * SWEEP_SHARE)

    def _is_over(self, node: NodeId, now: float) -> bool:
        until = self._until.get(node, self._unknown_until)
        gone = not self.hosts.is_reachable(node) or node == self.port.me.id
        return until <= now if gone else until + KEEP <= now

    def _log(
        self, peers: tuple[Peer, ...], over: tuple[NodeId, ...] = (), others: bool | None = None
    ) -> int:
        known = self.owner.state.has_unknown_holders if others is None else others
        return self.owner.append(CacheHoldersChanged(peers, over, known))

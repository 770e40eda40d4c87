"""Restores the trees of a lost cluster, from an observer's replica of its log (P5), and those of a
cluster that merged with this one, from the state that it handed over (P1).

Replicas of other clusters' logs are applied here as they come, entry by entry, as at a voter. When
this node leads the lost cluster's arc, every tree of it that has registrations is written into the
own log, with the same cuts and other hosts, and with all its registrations; the hosts are given
everything at the next scan (rebalance.py), as after an election.

A replica may be a little out of date, and its subscribers may be dead. What it has too much ends
with its lease, or when its subscriber claims another set (`RegistrationLeases`). What it lacks is
registered again by subscribers whose claims are refused.

The same holds for a cluster that leads on after another branch of it has led: what that one
registered is not in its log, and its subscribers register again.

Until that is done, an event that came to a tree would find it half empty. So the arc's trees are
*withheld* from publishers meanwhile: events wait where they were published, as they do for any
owner that does not answer, and go on together. That ends when no registration has come for a
moment, and for a tree that was restored when its hosts serve. Where the replica is complete, all
that was acknowledged is in it, and who was given a summary (summaries/cache_holders.py): then
no subscriber has to register again, and new registrations need not wait for unknown summaries."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from overlay.chord.events import (
    ArcArrived,
    ArcTaken,
    Elected,
    EntryObserved,
    ObservedArc,
    ObservedEnded,
    ObservedReset,
    Replanted,
)
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.messages import Cluster
from overlay.machine import Key, Machine, Peer, Port
from overlay.upper_tree.owner.constants import RESTORE_LEAST, RESTORE_MOST, RESTORE_QUIET
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import (
    ClusterState,
    DirectoryChanged,
    MapChanged,
    Operation,
    RegistrationAdded,
    Tree,
    decode,
)


class TreeRestoration(Machine):
    """Replicas of other clusters' trees, and what becomes of them. Times are the Port's seconds."""

    def __init__(self, port: Port, owner: Owner) -> None:
        super().__init__(port)
        self._owner = owner
        self._clusters = owner.clusters
        self._trees = owner.trees
        self._hosts = owner.hosts
        self.replicas: dict[Key, ClusterState] = {}
        """By cluster; as many as overlay/chord keeps."""
        self.former_holders: tuple[Peer, ...] | None = None
        """Publishers that the lost owner may have given summaries; None: it is not known who."""
        self._arc: Cluster | None = None  # of the lost cluster, or of all
        self._until = 0.0  # then its registrations are taken to be complete, …
        self._latest = 0.0  # … at the latest
        self._restoring: dict[str, OwnedTree] = {}  # those whose hosts may not serve yet

    # --- replicas ---

    def on_observed_reset(self, event: ObservedReset) -> None:
        """A snapshot of another cluster's state follows."""
        self.replicas[event.key] = ClusterState()

    def on_entry_observed(self, event: EntryObserved) -> None:
        """Apply one more entry of another cluster's log."""
        self.replicas[event.key].apply(decode(event.entry))

    def on_observed_arc(self, event: ObservedArc) -> None:
        """Another cluster's arc may have shrunk; no entry takes away the trees that went with
        it."""
        self.replicas[event.key].drop_keys(lambda key: not in_arc(key, event.start, event.key))

    def on_observed_ended(self, event: ObservedEnded) -> None:
        """Drop the replica of a cluster that this node no longer observes."""
        self.replicas.pop(event.key, None)

    # --- restoring ---

    def on_replanted(self, event: Replanted) -> None:
        """Restore the known state of the arcs of lost clusters which this node now leads."""
        now = self.port.now
        self._arc = self._clusters.cluster if event.others else event.lost
        self._until, self._latest = now + RESTORE_LEAST, now + RESTORE_MOST
        self._restoring.clear()
        self.former_holders = None
        for key, state in list(self.replicas.items()):
            if not self._clusters.owns(key):
                continue
            lost = [tree for tree in state.trees.values() if self._is_wanted(tree)]
            complete = self._clusters.is_whole(key)
            self.port.count("trees_restored", len(lost))
            extent = "a whole" if complete else "an older"
            reason = f"{len(lost)} trees from {extent} copy"
            self.port.trace("cluster", name=key, epoch=self._owner.epoch, reason=reason)
            self._restore(lost)
            self._take_directory(state)
            if complete and key == event.lost.key and not event.others:
                self._until = now
                if not state.has_unknown_holders:
                    self.former_holders = tuple(state.cache_holders.values())
            self._clusters.forget_log(key)

    def on_elected(self, event: Elected) -> None:
        """Expect registrations to be made again after another branch of the cluster has led. This
        node continues with its own log, which lacks the registrations made in that branch."""
        if event.forked:
            now = self.port.now
            self._arc = event.cluster
            self._until, self._latest = now + RESTORE_LEAST, now + RESTORE_MOST

    # --- the arc of a cluster that merged with this one ---

    def on_arc_arrived(self, event: ArcArrived) -> None:
        """Write the trees into the own log, with other hosts. They are not decided about before
        that is committed."""
        state = ClusterState()
        for entry in event.entries:
            state.apply(decode(entry))
        for tree in state.trees.values():
            if tree.registrations and tree.attribute not in self._owner.state.trees:
                self._owner.append_all(self._operations(tree))
        self._take_directory(state)
        self._clusters.arc_stored()

    def on_arc_taken(self, event: ArcTaken) -> None:
        """The trees are this node's to decide about: have their hosts serve them. What the other
        owner knew is complete, and no publisher has a summary from it."""
        now = self.port.now
        self._arc, self._until, self._latest = event.arc, now, now + RESTORE_MOST
        self._restoring.clear()
        taken = [
            attribute
            for attribute in self._owner.state.trees
            if event.arc.owns(attribute_key(attribute)) and attribute not in self._trees
        ]
        self.port.count("trees_taken_in", len(taken))
        self._adopt(taken, self._owner.committed - 1)

    # --- parts ---

    def _take_directory(self, state: ClusterState) -> None:
        """Write what that cluster's directory had into the own log, unless there is something of
        that name."""
        known = self._owner.state.directory
        new = [DirectoryChanged(n, v) for n, v in state.directory.items() if n not in known]
        if new:
            self._owner.append_all(new)

    def _is_wanted(self, tree: Tree) -> bool:
        is_ours = self._owner.decides(tree.attribute) and tree.attribute not in self._trees
        return is_ours and bool(tree.registrations)

    def _restore(self, lost: list[Tree]) -> None:
        """Into log and state at once."""
        index = 0
        for tree in lost:
            index = self._owner.append_all(self._operations(tree))
        self._adopt([tree.attribute for tree in lost], index)

    def _adopt(self, attributes: list[str], index: int) -> None:
        """Decide about these trees, which the log has up to entry `index`; their hosts are given
        everything at the next scan."""
        for attribute in attributes:
            owned = self._owner.adopt(attribute)
            owned.doubt_acknowledgements(restored_index=index)
            for host in owned.tree.map.hosts().values():
                owned.mark_stale(host)
            self._restoring[attribute] = owned
        self._owner.hosts.leases.grant_soon()
        self._hosts.watch()
        self._owner.rebalance_soon(0.0)

    def _operations(self, tree: Tree) -> Iterator[Operation]:
        """Yield the operations that make the same tree with other hosts."""
        hosts = self._owner.selector.hosts_for_new_tree()
        entries = tuple(msgspec.structs.replace(e, hosts=hosts) for e in tree.map.entries)
        yield MapChanged(tree.attribute, self._owner.next_version(), entries)
        for id_, registration in tree.registrations.items():
            yield RegistrationAdded(tree.attribute, registration, tree.incarnations[id_])

    # --- withholding ---

    def registered(self, attribute: str, now: float) -> None:
        """Note a registration for a tree that is being restored: wait longer, since others of its
        arc may follow."""
        if self._is_incomplete(attribute, now):
            self._until = min(max(self._until, now + RESTORE_QUIET), self._latest)

    def withholds(self, attribute: str, now: float) -> bool:
        """Whether no publisher may be sent the attribute's tree yet."""
        owned = self._restoring.get(attribute)
        if owned is not None and (now >= self._latest or self._is_served(owned)):
            del self._restoring[attribute]
        return attribute in self._restoring or self._is_incomplete(attribute, now)

    def _is_incomplete(self, attribute: str, now: float) -> bool:
        arc = self._arc
        return now < self._until and arc is not None and arc.owns(attribute_key(attribute))

    def _is_served(self, owned: OwnedTree) -> bool:
        """Whether each virtual node has a host that has everything, and serves."""
        serves = self._owner.hosts.leases.serves
        return not (owned.is_changing or self._hosts.has_reachable_stale(owned)) and all(
            any(serves(host.id) for host in entry.hosts) for entry in owned.tree.map.entries
        )

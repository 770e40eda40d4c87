"""Trees of a lost cluster are planted from the copy that an observer has of its log (P5).

The copies are applied here as they come, entry by entry, like a voter's. When this node leads the
lost cluster's arc, every tree of it that has registrations is written into the own log, with the
same cuts and other hosts, and with all its registrations; the hosts get everything at the next look
(balance.py), as after an election. Until they serve, nobody is told of the tree.

A copy may be a little out of date, and its subscribers may be dead. What it has too much ends with
its lease, or when its subscriber claims another set (leases.py). What it lacks is registered anew
by subscribers whose claims are refused; for that, publishers are told nothing for a while
(replanting.py), unless the copy is whole: then all that was acknowledged is in it, and who was told
something (believers.py), so that new registrations need not wait for a term either.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from overlay.chord.events import EntryObserved, ObservedEnded, ObservedReset, Replanted
from overlay.machine import Handlers, Key, Machine, Port
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import (
    Added,
    ClusterState,
    MapChanged,
    Operation,
    Tree,
    decode,
    encode,
)


class Adopting(Machine):
    """Copies of other clusters' trees, and what becomes of them."""

    def __init__(self, port: Port, owner: Owner) -> None:
        super().__init__(port)
        self.owner = owner
        self.copies: dict[Key, ClusterState] = {}  # by cluster; as many as overlay/chord keeps

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            ObservedReset: self.on_observed_reset,
            EntryObserved: self.on_entry_observed,
            ObservedEnded: self.on_observed_ended,
            Replanted: self.on_replanted,
        }

    def on_observed_reset(self, event: ObservedReset) -> None:
        """A whole new copy follows."""
        self.copies[event.key] = ClusterState()

    def on_entry_observed(self, event: EntryObserved) -> None:
        """One entry more."""
        self.copies[event.key].apply(decode(event.entry))

    def on_observed_ended(self, event: ObservedEnded) -> None:
        """It is needed no more."""
        self.copies.pop(event.key, None)

    def on_replanted(self, event: Replanted) -> None:
        """This node leads the arc of a lost cluster, or of several: plant what is known of it."""
        for key, state in list(self.copies.items()):
            if not self.owner.clusters.owns(key):
                continue
            lost = [tree for tree in state.trees.values() if self._is_wanted(tree)]
            whole = self.owner.clusters.is_whole(key)
            self.port.count("trees_adopted", len(lost))
            extent = "a whole" if whole else "an older"
            reason = f"{len(lost)} trees from {extent} copy"
            self.port.trace("cluster", name=key, epoch=self.owner.epoch, reason=reason)
            self._plant(lost)
            if whole and key == event.lost.key:
                believers = None if state.others else tuple(state.believers.values())
                self.owner.replanting.knows_all(believers, self.port.now)
            self.owner.clusters.forget_log(key)

    def _is_wanted(self, tree: Tree) -> bool:
        owner = self.owner
        is_ours = owner.owns(tree.attribute) and tree.attribute not in owner.trees
        return is_ours and bool(tree.registrations)

    def _plant(self, lost: list[Tree]) -> None:
        """Into log and state at once; the hosts get it at the next look."""
        owner = self.owner
        for tree in lost:
            operations = list(self._operations(tree))
            at = owner.clusters.append_all([encode(operation) for operation in operations])
            for operation in operations:
                owner.state.apply(operation)
            owned = owner.adopt(tree.attribute)
            owned.unsure, owned.adopted_at = True, at
            for host in owned.tree.map.hosts().values():
                owned.stray(host)
            owner.replanting.plant(tree.attribute, partial(self._is_served, owned))
        owner.leases.hurry()
        owner.watch_hosts()
        owner.balance_alarm.within(0.0)

    def _operations(self, tree: Tree) -> Iterator[Operation]:
        """The tree told again, with other hosts."""
        hosts = self.owner.homes.home()
        entries = tuple(msgspec.structs.replace(e, hosts=hosts) for e in tree.map.entries)
        yield MapChanged(tree.attribute, self.owner.next_version(), entries)
        for id_, registration in tree.registrations.items():
            yield Added(tree.attribute, registration, tree.incarnations[id_])

    def _is_served(self, owned: OwnedTree) -> bool:
        """Whether each virtual node has a host that has everything, and serves."""
        owner = self.owner
        return not (owned.changing or owner.live_strays(owned)) and all(
            any(owner.leases.serves(host.id) for host in entry.hosts)
            for entry in owned.tree.map.entries
        )

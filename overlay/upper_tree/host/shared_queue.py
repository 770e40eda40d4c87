"""What waits at a host when its virtual node gets more hosts is divided among them (C6).

A burst finds few hosts. Until the owner has given a virtual node more of them, seconds of work may
wait at the first ones, while publishers wait for their acceptance and admit no more (PendingWindow
in publisher/). The new hosts have all registrations as well. So of what came before they were
there, each host gets its turn, this one among them: a visit costs the price of a frame more, and
what waited is done n times as soon. What came later is passed on to nobody: publishers choose.

A visit is passed on once, and only if all that it visits here has several hosts. (What is not
served here any more goes along the tree, see visit_handler.py. Values that are cut into shards are
left to shard_gatherings.py.)
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from matching import place
from overlay.machine import NodeId, Peer, Port
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import Visit, value_in
from overlay.upper_tree.visits import groups_of, trees_of


class QueueSharing:
    """Passes visits on to other hosts while too few hosts do the work. `trees` are the host's
    trees. Copies that are sent are counted in the budget `copies`."""

    def __init__(self, port: Port, trees: Mapping[str, HostedTree], copies: CopyBudget) -> None:
        self._port = port
        self._trees = trees
        self._copies = copies
        self._turn = 0

    def pass_on(self, visit: Visit, came: float) -> bool:
        """Whether the visit, which came at this time (the Port's seconds), was sent to another host
        instead of being matched here."""
        if visit.hop > 1 or visit.part is not None or not self._waited(visit, came):
            return False
        hosts = self._common_hosts(visit)
        self._turn += 1
        if len(hosts) < 2:
            return False
        to = hosts[sorted(hosts)[self._turn % len(hosts)]]
        if to.id == self._port.me.id:
            return False
        hop = visit.hop + 1
        self._copies.spend(visit.events)
        for event in self._port.sampled(visit.events):
            self._port.trace(
                "visit", event=event.identity, attribute=visit.attributes[0], hop=hop, peer=to.id
            )
        self._port.count("visits_shared", len(visit.events))
        # `to` knows this host by its slice of the tree, as it serves the same.
        self._port.send(to, msgspec.structs.replace(visit, hop=hop, tokens=()))
        return True

    def _waited(self, visit: Visit, came: float) -> bool:
        """Whether it came before each of the trees that it visits was given more hosts."""
        for attribute in trees_of(visit):
            tree = self._trees.get(attribute)
            if tree is None or came >= tree.hosts_grew_at:
                return False
        return True

    def _common_hosts(self, visit: Visit) -> dict[NodeId, Peer]:
        """The hosts that serve all that the visit's events ask for here."""
        found: dict[NodeId, Peer] | None = None
        for trees, events in groups_of(visit):
            for attribute in trees:
                tree = self._trees[attribute]
                for event in events:
                    value = value_in(event, attribute)
                    span = None if value is None or tree.shards else tree.span(place(value))
                    there = {host.id: host for host in tree.hosts[span]} if span else {}
                    kept = there if found is None else found
                    found = {node: host for node, host in kept.items() if node in there}
                    if len(found) < 2:
                        return {}
        return found or {}

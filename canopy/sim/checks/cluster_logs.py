"""Invariants of clusters' logs and primaries that hold at every moment, whatever fails (P1, P4).

* A *ledger* of committed entries: the first primary that calls entry n of a cluster's log committed
  fixes it for ever. If a later primary has another entry there, or its log ends before, it took
  over without the entries of a majority, or a minority acknowledged the entry.
* An entry that a primary calls committed is on the disks of a majority of the voters of its log. A
  dead voter counts as having it: its disk has it, and is checked when the voter starts again.
* At most one primary decides about a key (`owns`), whatever epochs exist. (A paused process decides
  nothing; its clock continues before it does anything again.)

A cluster that has merged into another has ended: one that is split off under its key later begins a
log of its own.

A fork (P5) continues without a majority, so these invariants hold within each fork_id of epochs;
other checks verify that one of two forks is left at rest (`check_arcs`).

Once the world is at rest, every voter has applied the entries of its primary, and every copy
outside the cluster is the same (`check_voters`).

Everything is read from the machines; the product does not take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from canopy.sim.checks import Violation
from canopy.sim.world.world import World
from overlay.chord.epochs import fork_id
from overlay.chord.keys import attribute_key
from overlay.machine import NodeId

Note = Callable[[str, str], None]
"""Reports the kind of a violation, and its text."""


class LogWatch:
    """Compares the logs of all primaries, each time that `look` is called."""

    def __init__(self, world: World, note: Note) -> None:
        self.world = world
        self.note = note
        self._ledger: dict[tuple[str, int], dict[int, tuple[int, bytes]]] = {}  # ring/key
        self._seen: dict[tuple[NodeId, int, str, int], int] = {}

    def look(self) -> None:
        """Check the logs and primaries of all running nodes at this virtual time."""
        running = {name: self.world.node(name) for name in self.world.names()}
        nodes = {self.world.drivers[name].disk.node: name for name in running}
        leading = {name: node for name, node in running.items() if node.clusters.is_primary}
        self._forget_merged([node.clusters for node in leading.values()])
        for name, node in leading.items():
            self._compare(name, node)
            if not self._is_replaced(node.clusters, leading.values()):
                self._count(name, node, nodes)
        members = [
            (name, node.clusters, name in leading)
            for name, node in running.items()
            if node.clusters.cluster is not None and not self.world.drivers[name].is_paused
        ]
        for attribute in dict.fromkeys(a for node in running.values() for a in node.owner.trees):
            self._check_owners(attribute, members)

    def _check_owners(self, attribute: str, members: list[tuple[str, Any, bool]]) -> None:
        """Check that at most one of `members` (each with whether it leads its cluster) decides
        about an attribute. Whether a member leads is asked only if another one may decide as well,
        since that is expensive."""
        key = attribute_key(attribute)
        within = [
            (name, clusters)
            for name, clusters, leads in members
            if clusters.cluster.owns(key) and (leads or clusters.owns(key))
        ]
        if len(within) < 2:
            return
        by_lineage: dict[tuple[str, int], list[str]] = {}  # rings that do not know each other
        for name, clusters in within:
            if clusters.owns(key):
                branch = (clusters.cluster.ring, fork_id(clusters.cluster.version[0]))
                by_lineage.setdefault(branch, []).append(name)
        for owners in by_lineage.values():
            if len(owners) > 1:
                self.note("primary", f"{' and '.join(owners)} decide about {attribute}")

    def _is_replaced(self, clusters: Any, leading: Iterable[Any]) -> bool:
        """Return whether another cluster has taken its place under a later fork, perhaps with its
        voters: its last commits are then no longer promises (P5), which it has not heard yet."""
        mine = clusters.cluster
        return any(
            fork_id(other.clusters.cluster.version[0]) > fork_id(mine.version[0])
            and other.clusters.owns(mine.key)
            for other in leading
        )

    def _forget_merged(self, leading: list[Any]) -> None:
        """Forget the ledgers of clusters that nobody leads and whose key another one owns in the
        same fork: these have merged."""
        led = {f"{clusters.cluster.ring}/{clusters.cluster.key}" for clusters in leading}
        for which, fork in list(self._ledger):
            ring, _, key = which.partition("/")
            if which not in led and any(
                clusters.cluster.ring == ring
                and fork_id(clusters.cluster.version[0]) == fork
                and clusters.owns(key)
                for clusters in leading
            ):
                del self._ledger[which, fork]

    def _compare(self, name: str, node: Any) -> None:
        log, cluster = node.clusters.log, node.clusters.cluster
        committed = node.clusters.leader_log.committed
        if log.voter_log is None:
            return
        if len(log.voters) == 1 and self.world.drivers[name].disk.waiting:
            # The only voter commits a change of who votes in the turn that appends it. Nothing of
            # it has left before the disk has it, so a crash until then takes nothing back.
            return
        which = f"{cluster.ring}/{cluster.key}"
        reign = (node.me.id, node.incarnation, which, cluster.version[0])
        ledger = self._ledger.setdefault((which, fork_id(cluster.version[0])), {})
        known = max(ledger, default=-1)
        if reign not in self._seen and log.next <= known:
            self.note("log", f"{name} leads with {log.next} entries, {known + 1} were committed")
        if self._seen.get(reign, -1) == committed:
            return
        first, items = log.voter_log.tail()
        start = max(first, self._seen.get(reign, 0))
        for index in range(start, committed):
            item = items[index - first]
            entry = (item.epoch, item.body)
            if ledger.setdefault(index, entry) != entry:
                text = f"{name} has another entry {index} than the committed one of {cluster.key}"
                self.note("log", text)
        self._seen[reign] = max(start, committed)

    def _count(self, name: str, node: Any, nodes: dict[NodeId, str]) -> None:
        log, committed = node.clusters.log, node.clusters.leader_log.committed
        holding = 0
        for voter in log.voters:
            if voter.id not in nodes:
                holding += 1
                continue
            held = self.world.node(nodes[voter.id]).clusters.log
            holding += held.is_of(log.voter_log.key) and held.durable >= committed
        if log.voters and holding < log.majority():
            text = f"{name} calls {committed} entries committed, {holding} voters have them"
            self.note("log", text)


def check_voters(world: World) -> list[Violation]:
    """Check, at rest, that each voter and each observer that the primary waits for has the
    primary's trees and registrations."""
    nodes = {world.drivers[name].disk.node: world.node(name) for name in world.names()}
    violations = []
    for node in nodes.values():
        if not node.clusters.is_primary:
            continue
        wanted = _logged(node.owner.state)
        for observer, known in node.clusters.observers.observers.items():
            if known.awaited and observer in nodes:
                copy = nodes[observer].restoration.replicas.get(node.clusters.cluster.key)
                if copy is None or _logged(copy) != wanted:
                    text = f"{observer} has another copy of the log of {node.me.id}"
                    violations.append(Violation("log", text))
        for voter in node.clusters.log.voters:
            if voter.id in nodes and _logged(nodes[voter.id].owner.state) != wanted:
                text = f"{voter.id} holds another state than {node.me.id}, for which it votes"
                violations.append(Violation("log", text))
    return violations


def _logged(state: Any) -> dict[str, tuple[Any, ...]]:
    return {
        attribute: (tree.map.version, tree.map.entries, sorted(tree.registrations))
        for attribute, tree in state.trees.items()
    }

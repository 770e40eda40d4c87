"""What must be true of clusters' logs and primaries at every moment, whatever goes wrong (P1, P4).

* A *ledger* of what was committed: the first primary that calls entry n of a cluster's log
  committed fixes it for ever. A later primary that has something else there, or an end before it,
  took over without what a majority had, or a minority acknowledged it.
* What a primary calls committed is on the disks of a majority of the voters of its log. One that
  died counts as one that holds it: its disk has it, and is looked at when it starts again.
* A key is decided about by one primary at most (`owns`), whatever epochs are about. (One that
  stands still decides nothing; its clock goes on before it does anything again.)

A fork (P5) goes on without a majority, so all of this holds within each fork_id of epochs; that one
of two is left at rest is seen by other checks (`check_arcs`).

Once the world is at rest, every voter has applied what its primary has, and every copy outside of
the cluster is the same (`check_voters`).

All of it is read from the machines; nothing in the product takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from canopy.sim.checks.violation import Violation
from canopy.sim.world.world import World
from overlay.chord.epochs import fork_id
from overlay.chord.keys import attribute_key
from overlay.machine import NodeId

Note = Callable[[str, str], None]
"""Takes the kind of a violation, and its text."""


class LogWatch:
    """Compares what all primaries hold, look by look."""

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
        """Of `members`, each with whether it leads its cluster, one decides about an attribute at
        most. Who leads is asked only where another one may decide as well, since that is dear."""
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
        """Whether another has taken its place under a later fork, with its voters perhaps: what it
        committed last is no promise any more (P5), it just has not heard so yet."""
        mine = clusters.cluster
        return any(
            fork_id(other.clusters.cluster.version[0]) > fork_id(mine.version[0])
            and other.clusters.owns(mine.key)
            for other in leading
        )

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
    """At rest: the trees and registrations of each voter, and of each observer that the primary
    waits for, are those of the primary."""
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

"""Invariants of the machines' state once a world is at rest: trees, hosts, ring, bounds.

Deliveries alone reveal a broken state late: a registration that one host lacks is noticed only when
an event with the right value arrives, a short successor list when the next node dies. So all state
that two places have to agree about is compared here, through the machines' public state:

* a subscriber's registrations are at its owner, and at every host whose virtual node they overlap;
  no place has further ones (C6),
* a host serves the virtual nodes that the map assigns to it, at the map's version, and its slice is
  that map's (C7),
* Chord's three (P2; Zave, "How to make Chord correct", IEEE TSE 2017): successor lists of full
  length, each of its members alive, and enough principals, nodes that no list skips,
* every queue, cache and table is within its bound, and an epoch of an arc never had more than one
  primary; these two, and logs (`cluster_logs`), are also checked while faults last (`Watch`).
"""

from __future__ import annotations

from typing import Any

from canopy.sim.checks import Violation
from canopy.sim.checks.cluster_logs import LogWatch
from canopy.sim.world.world import World
from matching import Cut
from overlay.chord.constants import OBSERVED_LOGS_MOST
from overlay.chord.epochs import FORK
from overlay.chord.keys import attribute_key
from overlay.links.constants import MAX_ACTIVE_SESSIONS, MAX_DORMANT_SESSIONS
from overlay.links.messages import BATCH_OVERHEAD, MAX_BODY
from overlay.lower_random.constants import DETOURS_MOST, MAX_OPEN_WALKS
from overlay.machine import Key
from overlay.upper_tree.batches import ITEM_MOST
from overlay.upper_tree.delivery.constants import LOST_PEERS_MOST as DELIVERIES_UNREACHABLE_MOST
from overlay.upper_tree.event_history import NOTES
from overlay.upper_tree.host.constants import EVENTS_MOST
from overlay.upper_tree.owner.constants import LOST_NODES_MOST, MAX_STALE_HOSTS
from overlay.upper_tree.publisher.constants import MAX_ATTRIBUTES, PUBLISH_TOGETHER
from overlay.upper_tree.shards import lies_in
from overlay.upper_tree.sliced_inbox import WAITING_MOST

WATCH_EVERY = 0.25
"""Virtual seconds between two checks of `Watch`: less than the time in which two primaries could
lead one cluster after an election (a lease, 0.8 s)."""

BOUNDS_AT_ONCE = 64
"""The most nodes whose bounds are checked at once: in a larger world they take turns, since
checking all of 10,000 nodes four times a second takes longer than running them; 256 at once took a
tenth of the time of 1,000 nodes (measured)."""

LEASES = 2.0
"""The number of leases after which a dead subscriber's registrations must be gone: one, and the
time until the sweep."""


def check_trees(world: World, calm_since: float = 0.0) -> list[Violation]:
    """Check that subscribers, owners and hosts agree about registrations and maps.

    `calm_since`: when the last primary began, which grants a full lease to every subscriber.
    """
    ends = [s.ended for s in world.clients.subscriptions if s.ended is not None]
    forgotten_at = max([calm_since, *ends]) + LEASES * world.settings.tree.lease
    violations: list[Violation] = []
    nodes = {world.drivers[name].disk.node: world.node(name) for name in world.names()}
    owned = {
        attribute: (name, tree)
        for name in world.names()
        if world.node(name).clusters.is_primary
        for attribute, tree in world.node(name).owner.trees.items()
    }
    for attribute, (name, tree) in owned.items():
        violations += _check_hosts(attribute, name, tree, nodes)
        violations += _check_subscribers(
            attribute, name, tree, nodes, lapsed=world.now > forgotten_at
        )
    for node, machine in nodes.items():
        for attribute, id_ in machine.registrar.registrations:
            found = owned.get(attribute)
            if found is None or id_ not in found[1].tree.registrations:
                text = f"the owner of {attribute} does not know {id_} of {node}"
                violations.append(Violation("registration", text))
        for attribute in machine.hosting.trees:
            if attribute not in owned:
                text = f"{node} hosts {attribute}, which no primary owns"
                violations.append(Violation("host", text))
    return violations


def _check_hosts(attribute: str, name: str, owned: Any, nodes: dict[str, Any]) -> list[Violation]:
    violations = []
    tree = owned.tree
    for host in tree.map.hosts():
        machine = nodes.get(host)
        hosted = None if machine is None else machine.hosting.trees.get(attribute)
        where = f"{attribute} of {name} at its host {host}"
        if hosted is None:
            violations.append(Violation("host", f"{where} is not served"))
            continue
        if hosted.version != tree.map.version:
            text = f"{where} has version {hosted.version}, not {tree.map.version}"
            violations.append(Violation("host", text))
        if hosted.served.intervals != tree.map.hosted_by(host):
            violations.append(Violation("host", f"{where} serves other intervals than the map's"))
        if dict(tree.map.slice_for(host)) != dict(hosted.served.slice.known):
            violations.append(Violation("host", f"{where} routes by another map"))
        wanted = {
            id_
            for id_, registration in tree.registrations.items()
            if any(lies_in(registration, interval) for interval in hosted.served.intervals)
        }
        has = {id_ for id_ in (*tree.registrations, *hosted.registrations) if hosted.finds(id_)}
        for what, ids in (("lacks", wanted - has), ("still has", has - wanted)):
            if ids:
                text = f"{where} {what} {', '.join(sorted(ids)[:3])}"
                violations.append(Violation("registration", text))
    for host, machine in nodes.items():
        if host not in tree.map.hosts() and attribute in machine.hosting.trees:
            text = f"{host} hosts {attribute}, but the map of {name} does not name it"
            violations.append(Violation("host", text))
    return violations


def _check_subscribers(
    attribute: str,
    name: str,
    owned: Any,
    nodes: dict[str, Any],
    lapsed: bool,
) -> list[Violation]:
    """`lapsed`: whether all leases of dead subscribers have ended. Before that, a cluster that
    replaced a lost one may have a log without their ends: these were reported to a primary on the
    other side."""
    violations = []
    forked = owned.tree.map.version[0] >= FORK
    for id_, registration in owned.tree.registrations.items():
        subscriber = nodes.get(registration.subscriber.id)
        if subscriber is not None and (attribute, id_) in subscriber.registrar.registrations:
            continue
        incarnation = owned.tree.incarnations[id_]
        unsubscribed = subscriber is not None and subscriber.incarnation == incarnation
        if (unsubscribed and not forked) or lapsed:
            text = f"{name} keeps {id_} in {attribute}, which {registration.subscriber.id} has not"
            violations.append(Violation("registration", text))
    return violations


# --- the ring ---


def check_ring(world: World) -> list[Violation]:
    """Check the ring pointers of all primaries: complete, alive, none skipped."""
    primaries = {
        world.node(name).clusters.cluster.key: world.node(name)
        for name in world.names()
        if world.node(name).clusters.is_primary
    }
    keys = sorted(primaries)
    violations = []
    for number, key in enumerate(keys):
        place = primaries[key].ring.state
        around = keys[number + 1 :] + keys[:number]
        wanted = around[: place.pointers.length]
        found = [cluster.key for cluster in place.pointers.successors]
        if found != wanted and not (len(keys) == 2 and place.pointers.first() is not None):
            violations.append(
                Violation(
                    "ring",
                    f"{_short(key)} lists {_all(found)} for {_all(wanted)} as its successors",
                )
            )
        for cluster in place.pointers.successors:
            leader = primaries.get(cluster.key)
            if leader is not None and leader.me.id != cluster.primary.id:
                text = f"{_short(key)} takes {cluster.primary.id} for a primary that it is not"
                violations.append(Violation("ring", text))
        before = place.pointers.predecessor
        if around and (before is None or before.key != around[-1]):
            text = f"{_short(key)} does not know its predecessor {_short(around[-1])}"
            violations.append(Violation("ring", text))
    for name in world.names():
        node = world.node(name)
        for attribute in node.owner.trees:
            cluster = node.clusters.cluster
            if cluster is None or not cluster.owns(attribute_key(attribute)):
                text = f"{name} decides about {attribute} outside its arc"
                violations.append(Violation("ring", text))
    return violations


def _short(key: Key) -> str:
    return key[:8]


def _all(keys: list[Key]) -> str:
    return "[" + ", ".join(map(_short, keys)) + "]"


def led(world: World) -> bool:
    """Return whether every cluster that has members has exactly one primary that a majority of its
    voters follows."""
    leading: dict[Key, int] = {}
    for name in world.names():
        clusters = world.node(name).clusters
        if clusters.cluster is not None:
            serves = clusters.is_primary and clusters.heartbeat.has_lease()
            leading[clusters.cluster.key] = leading.get(clusters.cluster.key, 0) + serves
    return all(count == 1 for count in leading.values())


# --- while things go wrong ---


class Watch:
    """Checks epochs and logs several times a second, and the bounds of as many nodes as it can
    afford."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: dict[str, Violation] = {}
        """The violations by their text, so that a lasting one is reported once."""
        self.calm_since = 0.0
        """When the last new primary was first seen."""
        self._primaries: dict[tuple[str, Key, int], str] = {}  # by ring, key, and epoch
        self._logs = LogWatch(world, self._note)
        self._turn = 0  # how many bounds were looked at
        world.after(WATCH_EVERY, self.look)

    def look(self) -> None:
        """Check all nodes' epochs and some nodes' bounds now, and schedule the next check."""
        self._logs.look()
        names = self.world.names()
        for name in names:
            self._epochs(name, self.world.node(name))
        for _ in range(min(len(names), BOUNDS_AT_ONCE)):
            self._turn += 1
            self._bounds(names[self._turn % len(names)])
        self.world.after(WATCH_EVERY, self.look)

    def _bounds(self, name: str) -> None:
        for what, size, bound in bounds(self.world.node(name)):
            if size > bound:
                self._note("bound", f"{name}: {what} holds more than {bound}")

    def _epochs(self, name: str, node: Any) -> None:
        if node.clusters.is_primary:
            cluster = node.clusters.cluster
            arc = (cluster.ring, cluster.key, cluster.version[0])
            if arc not in self._primaries:
                self.calm_since = self.world.now
            other = self._primaries.setdefault(arc, name)
            if other != name:
                text = f"{other} and {name} led {_short(cluster.key)} in epoch {arc[2]}"
                self._note("epoch", text)

    def _note(self, kind: str, text: str) -> None:
        self.violations.setdefault(text, Violation(kind, text))


def bounds(node: Any) -> list[tuple[str, int, int]]:
    """Return (name, present size, bound) of every bounded structure of a node.

    A publisher admits while it has room, so the attributes of one more event may exceed the bound.
    """
    settings, held = node.settings, node.holding.held
    way = max(settings.links.window, MAX_BODY + BATCH_OVERHEAD)  # larger messages go alone
    active, dormant = node.links.session_counts()
    found = [
        ("view", len(node.view.peers()), settings.view.size),
        ("access points", node.access_points.cached, settings.view.access_points),
        ("seen events", len(node.receiver.seen), settings.tree.dedupe),
        ("half-counted events", len(node.receiver.partial_matches), settings.tree.dedupe),
        ("located trees", node.finder.locations.unheld, settings.tree.locations),
        ("absent trees", len(node.finder.locations._absent), settings.tree.locations),
        ("summaries", len(node.finder.locations.summaries), settings.tree.locations),
        ("clusters", len(node.ring.state.known), settings.ring.known_clusters),
        ("copies of logs", len(node.clusters.observed_logs.copies), OBSERVED_LOGS_MOST),
        ("history", len(node.clients.history), NOTES * settings.tree.history),
        ("open walks", node.crawl.open_walks, MAX_OPEN_WALKS + 1),
        ("unreachable hosts", node.owner.hosts.unreachable, LOST_NODES_MOST),
        (
            "pending pairs",
            node.publisher.pending.pairs,
            settings.tree.pending + MAX_ATTRIBUTES,
        ),
        (
            "bytes of pending events",
            node.publisher.pending.bytes,
            settings.tree.pending_bytes + PUBLISH_TOGETHER * ITEM_MOST,
        ),
        ("sessions", active, MAX_ACTIVE_SESSIONS),
        ("dormant sessions", dormant, MAX_DORMANT_SESSIONS),
        ("connections by way of others", len(node.relaying), DETOURS_MOST),
        ("events to be matched", node.hosting.scheduler.queue.events, EVENTS_MOST),
        ("held deliveries", held.events, settings.tree.held_events),
        ("bytes of held deliveries", held.bytes, settings.tree.held),
        ("gap notices", len(node.notices), DELIVERIES_UNREACHABLE_MOST),
        ("registrations to be taken", len(node.registry.inbox), WAITING_MOST),
        ("registrations to be installed", len(node.hosting.assigned.inbox), WAITING_MOST),
    ]
    found += [
        (f"{what} to {peer}", size, bound)
        for peer, queued, in_flight in node.links.queues()
        for what, size, bound in (
            ("queue", queued, settings.links.queue),
            ("bytes under way", in_flight, way),
        )
    ]
    found += [
        (f"stale hosts of {attribute}", len(owned.stale_hosts), MAX_STALE_HOSTS)
        for attribute, owned in node.owner.trees.items()
    ]
    return found


# --- what must be true of the way to a virtual node, once a world is at rest (C7) ---
#
# From every host of a tree an event gets to a host that serves its value, from slice to slice, in
# no more steps than the tree is high. Deliveries do not show it: what a host cannot help comes back
# to its publisher, who asks the owner, and arrives all the same. So the steps are taken here, value
# by value, by what the hosts say; how a tree follows from its list (`upper_tree/partition.py`) is
# used nowhere, only that it is balanced.


def check_routes(world: World) -> list[Violation]:
    """Check the route from every host to every virtual node of its tree."""
    nodes = {world.drivers[name].disk.node: world.node(name) for name in world.names()}
    violations = []
    for name in world.names():
        node = world.node(name)
        if not node.clusters.is_primary:
            continue
        for attribute, owned in node.owner.trees.items():
            hosts = [host for host in owned.tree.map.hosts() if host in nodes]
            trees = {host: nodes[host].hosting.trees.get(attribute) for host in hosts}
            for host in hosts:
                if trees[host] is None:
                    continue  # reported by `check_trees`
                for entry in owned.tree.map.entries:
                    text = _way(trees, host, entry.interval.lo, len(owned.tree.map.entries))
                    if text:
                        where = f"{attribute} of {name} from {host} to {entry.interval}"
                        violations.append(Violation("route", f"{where}: {text}"))
    return violations


def _way(trees: dict[str, Any], host: str, spot: Cut, size: int) -> str:
    """Follow the slices. Returns the fault of the route, or ""."""
    height = size.bit_length()  # of a balanced tree of so many
    for _ in range(height + 1):
        tree = trees.get(host)
        if tree is None:
            return f"leads to {host}, who does not serve it"
        # Of a value that is cut into shards the host of one knows all. (A side of 1 is no shard but
        # what follows the value.)
        if tree.served.serves_some((*spot[:2], 0) if 0 < spot[2] < 1 else spot):
            return ""
        entry = tree.served.slice.route(spot)
        if entry is None or any(each.id == host for each in entry.hosts):
            return f"{host} does not know the way on"
        host = entry.hosts[0].id
    return f"not in {height} steps"

"""What must be true of a world, whatever happened in it.

Deliveries are held against the oracle once the world is quiet. The maps and arcs of those nodes
that lead are read through their machines' public read-only methods: an attribute has one map, whose
virtual nodes are adjacent and cover the whole value space (C6); the ring's arcs are disjoint and
cover all keys (P2).
"""

from __future__ import annotations

import msgspec

from canopy.sim.checks.oracle import GRACE, Expectation, Pair, expectation
from canopy.sim.world.clients import Clients, Publication, Shown
from canopy.sim.world.world import World
from matching import EVERYTHING, compile_selector
from overlay.chord.messages import Cluster


class Violation(msgspec.Struct, frozen=True):
    """Something that must not be. `about` are identities that a story can be told of."""

    kind: str  # missing, spurious, duplicate, altered, late, unanswered, map, arc
    text: str
    about: tuple[str, ...] = ()


def check_deliveries(
    world: World, expected: Expectation | None = None, grace: float = GRACE
) -> list[Violation]:
    """Nothing spurious, altered or shown twice or after the end; everything expected is there."""
    clients = world.clients
    if expected is None:
        expected = expectation(clients, grace)
    violations, seen = _check_shown(clients, expected)
    names = {s.identity: s for s in clients.subscriptions}
    for subscription, event in expected.expected:
        if (subscription, event) not in seen:
            which = names[subscription]
            violations.append(
                Violation(
                    "missing",
                    f"{event} did not reach {subscription} at {which.node}: {which.selector}",
                    (event, subscription),
                )
            )
    violations.extend(_check_answers(world))
    return violations


def _check_shown(
    clients: Clients, expected: Expectation
) -> tuple[list[Violation], dict[Pair, None]]:
    events = {event.identity: event for event in clients.publications if event.identity}
    subscriptions = {s.identity: s for s in clients.subscriptions if s.identity}
    violations: list[Violation] = []
    seen: dict[Pair, None] = {}
    for shown in clients.deliveries:
        delivery = shown.delivery
        pair = (delivery.subscription, delivery.event.identity)
        about = (pair[1], pair[0])
        where = f"{pair[1]} for {pair[0]} at {shown.node}, {shown.time:.3f} s"
        event, subscription = events.get(pair[1]), subscriptions.get(pair[0])
        if pair in seen:
            violations.append(Violation("duplicate", f"shown twice: {where}", about))
        seen[pair] = None
        if event is None or subscription is None:
            if not _early(clients, shown, event):
                violations.append(Violation("spurious", f"nobody knows {where}", about))
            continue
        if dict(delivery.event.attributes) != event.attributes:
            violations.append(Violation("altered", f"not as it was published: {where}", about))
        if (subscription.node, subscription.client) != (shown.node, shown.client):
            violations.append(Violation("spurious", f"shown to another client: {where}", about))
        if subscription.ended is not None and shown.time > subscription.ended:
            violations.append(Violation("late", f"shown after the end: {where}", about))
        if pair not in expected.expected and pair not in expected.allowed:
            text = f"does not match {subscription.selector}: {where} {event.attributes}"
            violations.append(Violation("spurious", text, about))
    return violations, seen


def _early(clients: Clients, shown: Shown, event: Publication | None) -> bool:
    """Whether it may be shown although its event or subscription has no identity here: the answer
    that tells it was still under way when the node ended, or never came."""
    attributes = shown.delivery.event.attributes
    if event is None and not any(
        p.attributes == attributes and not p.identity for p in clients.publications
    ):
        return False
    at = (shown.node, shown.client)
    return any(
        (s.node, s.client) == at
        and s.identity in ("", shown.delivery.subscription)
        and compile_selector(s.selector).matches(attributes)
        for s in clients.subscriptions
    )


def _check_answers(world: World) -> list[Violation]:
    """Every command of a client whose node lives was answered."""
    violations = []
    living = world.names()
    for s in world.clients.subscriptions:
        if s.node in living and s.acknowledged is None and s.ending is None and not s.failed:
            text = f"no SUBACK at {s.node} for {s.selector!r}, asked at {s.asked:.3f} s"
            violations.append(Violation("unanswered", text))
    for p in world.clients.publications:
        crashed = any(node == p.node and at >= p.published for node, at in world.clients.crashes)
        if not p.identity and not p.refused and not crashed and p.node in living:
            text = f"publication at {p.node} at {p.published:.3f} s was not answered"
            violations.append(Violation("unanswered", text))
    return violations


# --- maps and arcs ---


def check_arcs(world: World) -> list[Violation]:
    """The arcs of all primaries are disjoint and cover the ring, once it is at rest."""
    arcs: list[tuple[Cluster, str]] = []
    for name in world.names():
        clusters = world.node(name).clusters
        if clusters.is_primary:
            assert clusters.cluster is not None
            arcs.append((clusters.cluster, name))
    return arc_violations(arcs) if world.names() else []


def arc_violations(arcs: list[tuple[Cluster, str]]) -> list[Violation]:
    """The same for given descriptions and who claims them."""
    if not arcs:
        return [Violation("arc", "nobody owns anything")]
    arcs = sorted(arcs, key=lambda arc: (arc[0].key, arc[1]))
    violations = []
    for index, (cluster, name) in enumerate(arcs):
        before, other = arcs[index - 1]
        if index and cluster.key == before.key:
            violations.append(Violation("arc", f"{name} and {other} both own {cluster.key[:8]}"))
        if cluster.start != before.key:
            text = (
                f"{name} owns ({cluster.start[:8]}, {cluster.key[:8]}], "
                f"but {other} before it ends at {before.key[:8]}"
            )
            violations.append(Violation("arc", text))
        if cluster.ring != before.ring:
            violations.append(Violation("arc", f"{name} and {other} are in different rings"))
    return violations


def check_maps(world: World) -> list[Violation]:
    """One map per attribute, adjacent and total; every host runs."""
    violations = []
    owners: dict[str, str] = {}
    living = {world.drivers[name].disk.node for name in world.names()}
    for name in world.names():
        node = world.node(name)
        if not node.clusters.is_primary:
            continue
        for attribute, owned in node.owner.trees.items():
            found = owned.tree.map
            other = owners.setdefault(attribute, name)
            if other != name:
                violations.append(Violation("map", f"{name} and {other} both own {attribute}"))
            place = EVERYTHING.lo
            for entry in found.entries:
                if entry.interval.lo != place:
                    text = f"{attribute} at {name}: {entry.interval} does not begin at {place}"
                    violations.append(Violation("map", text))
                place = entry.interval.hi
                for host in entry.hosts:
                    if host.id not in living:
                        text = f"{attribute} at {name}: {host.id} serves it, but does not run"
                        violations.append(Violation("map", text))
            if place != EVERYTHING.hi:
                violations.append(Violation("map", f"{attribute} at {name} ends at {place}"))
    return violations

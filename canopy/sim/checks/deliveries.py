"""Checks deliveries against the oracle, once the world is quiet.

No delivery is spurious, altered, duplicate or late, no expected one is missing, no owed one is
missing without a report, and every client command was answered.
"""

from __future__ import annotations

from canopy.sim.checks import Violation
from canopy.sim.checks.oracle import GRACE, Expectation, Pair, ReportedGaps, expectation
from canopy.sim.world.clients import Clients, Publication, Shown
from canopy.sim.world.world import World
from matching import compile_selector


def check_deliveries(
    world: World, expected: Expectation | None = None, grace: float = GRACE
) -> list[Violation]:
    """Return a violation for each delivery that is spurious, altered, late or a duplicate, for each
    expected one that is missing, and for each command without an answer."""
    clients = world.clients
    if expected is None:
        expected = expectation(clients, grace)
    violations, seen = _check_shown(clients, expected)
    names = {s.identity: s for s in clients.subscriptions}
    reported = reported_gaps(world, expected)
    missing = [pair for pair in (*expected.expected, *expected.owed) if pair not in seen]
    unreported = [pair for pair in missing if pair not in reported]
    for subscription, event in unreported:
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


def reported_gaps(world: World, expected: Expectation) -> dict[Pair, None]:
    """Return the owed deliveries that are missing and covered by a notice to the client."""
    clients = world.clients
    shown = {(s.delivery.subscription, s.delivery.event.identity) for s in clients.deliveries}
    missing = [pair for pair in expected.owed if pair not in shown]
    if not missing:
        return {}
    names = world.identities
    reported = ReportedGaps(
        clients,
        [
            (names.get(record.fields["peer"], ""), record.fields["event"])
            for record in world.recorder.records
            if record.kind == "drop" and "event" in record.fields
        ],
    )
    subscriptions = {s.identity: s for s in clients.subscriptions if s.identity}
    events = {event.identity: event for event in clients.publications if event.identity}
    return {
        pair: None for pair in missing if reported.covers(subscriptions[pair[0]], events[pair[1]])
    }


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
                violations.append(Violation("spurious", f"unknown: {where}", about))
            continue
        if dict(delivery.event.attributes) != event.attributes:
            violations.append(Violation("altered", f"not as it was published: {where}", about))
        if (subscription.node, subscription.client) != (shown.node, shown.client):
            violations.append(Violation("spurious", f"shown to another client: {where}", about))
        if subscription.ended is not None and shown.time > subscription.ended:
            violations.append(Violation("late", f"shown after the end: {where}", about))
        if not expected.matches(pair):
            text = f"does not match {subscription.selector}: {where} {event.attributes}"
            violations.append(Violation("spurious", text, about))
    return violations, seen


def _early(clients: Clients, shown: Shown, event: Publication | None) -> bool:
    """Return whether a delivery is allowed although its event or subscription has no identity here,
    since the node ended before it had answered `Publish` or `Subscribe`."""
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
    """Check that every command of a client whose node lives was answered."""
    violations = []
    living = world.names()
    for s in world.clients.subscriptions:
        if s.node in living and s.acknowledged is None and s.ending is None and not s.failed:
            text = f"no SUBACK at {s.node} for {s.selector!r}, asked at {s.asked:.3f} s"
            violations.append(Violation("unanswered", text))
    for p in world.clients.publications:
        crashed = any(c.node == p.node and c.time >= p.published for c in world.clients.crashes)
        if not p.identity and not p.refused and not crashed and p.node in living:
            text = f"publication at {p.node} at {p.published:.3f} s was not answered"
            violations.append(Violation("unanswered", text))
    return violations

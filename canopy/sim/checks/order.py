"""Checks that each publisher's events come to each subscription in the order of publication.

That is promised where nothing fails, and where different ways differ by less than `tree.order_hold`
(docs/design/promises.md). So the check is for worlds of which that is true.
"""

from __future__ import annotations

from canopy.sim.checks.violation import Violation
from canopy.sim.world.clients import Clients


def check_order(clients: Clients, since: float = 0.0) -> list[Violation]:
    """One violation for each event that was shown to a subscription after a later one of its
    publisher. `since`: only of events that were published from then on, in virtual seconds."""
    published = {event.identity: event.published for event in clients.publications}
    last: dict[tuple[str, str, int], int] = {}
    violations: list[Violation] = []
    for shown in clients.deliveries:
        event, subscription = shown.delivery.event, shown.delivery.subscription
        if published.get(event.identity, -1.0) < since:
            continue
        flow = (subscription, event.publisher, event.incarnation)
        before = last.get(flow, 0)
        if event.sequence < before:
            text = f"{event.identity} came to {subscription} after number {before}"
            violations.append(Violation("order", text, (event.identity, subscription)))
        last[flow] = max(before, event.sequence)
    return violations

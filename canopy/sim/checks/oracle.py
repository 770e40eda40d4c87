"""What should have been delivered, by brute force: every event against every selector.

No index, no tree, no network: `predicate.matches` for each pair whose times leave no doubt.

* **expected**: the event was published after the SUBACK, and the subscription did not end within
  `grace` after it was admitted, in which all nodes were in reach;
* **owed**: as expected, but some nodes were out of reach meanwhile, for they stood still or the
  network was divided. It is delivered, or its client later gets a gap notice that covers it
  (`ReportedGaps`);
* **allowed**: it matches, and the subscription was there for a part of the time: registered but not
  yet acknowledged, or about to end, or a process died that had the event for this subscription's
  node while it may have been under way (a live event is lost only in flight through a node that
  dies, and by those only to whom that node was to bring it);
* anything else that is shown is **spurious**.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from canopy.sim.world.clients import (
    IN_FLIGHT,
    Clients,
    Crash,
    GapNotice,
    Publication,
    SimulatedSubscription,
)
from matching import Predicate, compile_selector

GRACE = IN_FLIGHT
"""Seconds for which an event may be under way."""

ROUNDING = 1e-6
"""Seconds by which a time of a wall clock may differ that was encoded."""

Pair = tuple[str, str]
"""Identity of a subscription, identity of an event."""


@dataclass
class Expectation:
    """Every pair that matches, by what is expected of it. Dicts are used as ordered sets."""

    expected: dict[Pair, None] = field(default_factory=dict)
    owed: dict[Pair, None] = field(default_factory=dict)
    allowed: dict[Pair, None] = field(default_factory=dict)
    interested: dict[str, dict[str, None]] = field(default_factory=dict)
    """Per event: the nodes that have an expected delivery of it."""

    def matches(self, pair: Pair) -> bool:
        """Whether the event may be shown to the subscription."""
        return pair in self.expected or pair in self.owed or pair in self.allowed

    @property
    def lower_bound(self) -> int:
        """Data-plane messages that no routing can do without: one for each event to enter, and
        one for each interested node."""
        return sum(1 + len(nodes) for nodes in self.interested.values())


def expectation(clients: Clients, grace: float = GRACE) -> Expectation:
    """Judge all events against all subscriptions of a world."""
    found = Expectation()
    compiled: dict[str, Predicate] = {}
    subscriptions = []
    for subscription in clients.subscriptions:
        if subscription.identity:
            selector = subscription.selector
            compiled.setdefault(selector, compile_selector(selector))
            subscriptions.append((subscription, compiled[selector]))
    for event in clients.publications:
        if not event.identity:
            continue
        nodes = found.interested.setdefault(event.identity, {})
        over = arrived_by(clients, event, grace)
        crashes = meanwhile(clients, event, over)
        absent = disturbed(clients, event, grace)
        verdicts: dict[str, bool] = {}
        for subscription, predicate in subscriptions:
            selector = subscription.selector
            if selector not in verdicts:
                verdicts[selector] = predicate.matches(event.attributes)
            if not verdicts[selector] or not _present(subscription, event):
                continue
            pair = (subscription.identity, event.identity)
            divided = [
                division
                for division in clients.divisions
                if division.parts(subscription.node, event.node, event.published)
            ]
            risky = any(crash.may_have_lost(event, subscription.node) for crash in crashes)
            certain = not risky and _certain(subscription, event, over)
            if not certain or not all(division.healed for division in divided):
                found.allowed[pair] = None
            elif divided or absent:
                found.owed[pair] = None
            else:
                found.expected[pair] = None
                nodes[subscription.node] = None
    return found


def arrived_by(clients: Clients, event: Publication, grace: float) -> float:
    """When the event is no longer under way: `grace` seconds after its publication or admission,
    in which all nodes were in reach."""
    at, left = event.published if event.admitted is None else event.admitted, grace
    for since, to in sorted(clients.cuts):
        if since > at + left:
            break
        if to > at:
            left -= max(0.0, since - at)
            at = to
    return at + left


def meanwhile(clients: Clients, event: Publication, until: float) -> list[Crash]:
    """The crashes while the event may have been under way, from its publication until then."""
    return [crash for crash in clients.crashes if event.published <= crash.time <= until]


def disturbed(clients: Clients, event: Publication, grace: float) -> bool:
    """Whether some node was out of reach within `grace` seconds of the event's publication or
    admission."""
    end = (event.published if event.admitted is None else event.admitted) + grace
    return any(since <= end and event.published - grace <= to for since, to in clients.absences)


class ReportedGaps:
    """Which missing deliveries were reported to clients: a notice reached the client, and, where
    the notice names a count, there is a `drop` trace record of the event."""

    def __init__(self, clients: Clients, dropped: Iterable[Pair]) -> None:
        """`dropped`: (node that did not get the event, the event's identity) of each `drop`
        record."""
        self._dropped = dict.fromkeys(dropped)
        self._notices: dict[tuple[str, int], list[GapNotice]] = {}
        for notice in clients.notices:
            self._notices.setdefault((notice.node, notice.client), []).append(notice)

    def covers(self, subscription: SimulatedSubscription, event: Publication) -> bool:
        """Whether some notice to the subscription's client is about this event."""
        notices = self._notices.get((subscription.node, subscription.client), ())
        traced = (subscription.node, event.identity) in self._dropped
        return any(
            event.published <= notice.time
            if notice.since is None or notice.until is None
            else traced and notice.since - ROUNDING <= event.stamped <= notice.until + ROUNDING
            for notice in notices
        )


def _present(subscription: SimulatedSubscription, event: Publication) -> bool:
    """Whether the event may be shown at all. (It may be published shortly before the subscription
    is requested, and still be under way when that is registered.)"""
    return subscription.ended is None or event.published <= subscription.ended


def _certain(subscription: SimulatedSubscription, event: Publication, over: float) -> bool:
    """Whether the subscription was acknowledged before the event, and ended after it had come.
    (What waits for a node that is out of reach may come after the end.)"""
    acknowledged, ending = subscription.acknowledged, subscription.ending
    return (
        acknowledged is not None
        and acknowledged < event.published
        and (ending is None or ending > over)
    )

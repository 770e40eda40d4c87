"""The expected deliveries, by brute force: every event against every selector.

No index, no tree, no network: `predicate.matches` for each pair whose times leave no doubt.

* **expected**: the event was published after the SUBACK, and the subscription did not end within
  `grace` seconds, with all nodes reachable, after the event was admitted;
* **owed**: as expected, but some nodes were unreachable meanwhile, since they were paused or the
  network was divided, or several came back whose cluster may have been replaced. It is delivered,
  or its client later gets a gap notice that covers it (`ReportedGaps`);
* **allowed**: it matches, and the subscription existed for a part of the time: registered but not
  yet acknowledged, or about to end; or a process died that had the event for this subscription's
  node while it may have been under way (a live event is lost only in flight through a node that
  dies, and only for subscribers to which that node was to bring it);
* any other delivery is **spurious**.
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
"""The rounding error of an encoded wall clock time, in seconds."""

Pair = tuple[str, str]
"""The identities of a subscription and an event."""


@dataclass
class Expectation:
    """All matching pairs, by the class of their delivery. Dicts are used as ordered sets."""

    expected: dict[Pair, None] = field(default_factory=dict)
    owed: dict[Pair, None] = field(default_factory=dict)
    allowed: dict[Pair, None] = field(default_factory=dict)
    interested: dict[str, dict[str, None]] = field(default_factory=dict)
    """By event: the nodes with an expected delivery of it."""

    def matches(self, pair: Pair) -> bool:
        """Whether the event may be shown to the subscription."""
        return pair in self.expected or pair in self.owed or pair in self.allowed

    @property
    def lower_bound(self) -> int:
        """The least number of data-plane messages of any routing: one for each event to enter, and
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
    """Return when the event is no longer under way: `grace` seconds, with all nodes reachable,
    after its publication or admission."""
    at, left = event.published if event.admitted is None else event.admitted, grace
    for since, to in sorted(clients.cuts):
        if since > at + left:
            break
        if to > at:
            left -= max(0.0, since - at)
            at = to
    return at + left


def meanwhile(clients: Clients, event: Publication, until: float) -> list[Crash]:
    """Return the crashes while the event may have been under way, from its publication to
    `until`."""
    return [crash for crash in clients.crashes if event.published <= crash.time <= until]


def disturbed(clients: Clients, event: Publication, grace: float) -> bool:
    """Return whether some node was unreachable within `grace` seconds of the event's publication or
    admission."""
    end = (event.published if event.admitted is None else event.admitted) + grace
    return any(since <= end and event.published - grace <= to for since, to in clients.absences)


class ReportedGaps:
    """Finds the missing deliveries that were reported to clients: a notice reached the client, and
    if the notice has a count, there is a `drop` trace record of the event."""

    def __init__(self, clients: Clients, dropped: Iterable[Pair]) -> None:
        """`dropped`: (node that did not get the event, the event's identity) of each `drop`
        record."""
        self._dropped = dict.fromkeys(dropped)
        self._notices: dict[tuple[str, int], list[GapNotice]] = {}
        for notice in clients.notices:
            self._notices.setdefault((notice.node, notice.client), []).append(notice)

    def covers(self, subscription: SimulatedSubscription, event: Publication) -> bool:
        """Return whether a notice to the subscription's client covers this event."""
        notices = self._notices.get((subscription.node, subscription.client), ())
        traced = (subscription.node, event.identity) in self._dropped
        return any(
            event.published <= notice.time
            if notice.since is None or notice.until is None
            else traced and notice.since - ROUNDING <= event.stamped <= notice.until + ROUNDING
            for notice in notices
        )


def _present(subscription: SimulatedSubscription, event: Publication) -> bool:
    """Return whether the event may be delivered at all. (It may be published shortly before the
    subscription is requested, and still be under way when that is registered.)"""
    return subscription.ended is None or event.published <= subscription.ended


def _certain(subscription: SimulatedSubscription, event: Publication, over: float) -> bool:
    """Return whether the subscription was acknowledged before the event, and ended after its
    arrival. (An event that waits for an unreachable node may arrive after the end.)"""
    acknowledged, ending = subscription.acknowledged, subscription.ending
    return (
        acknowledged is not None
        and acknowledged < event.published
        and (ending is None or ending > over)
    )

"""The programs that use the nodes of a world, with their observations.

A client uses its node through the commands and replies of the control socket. It keeps the facts
for the oracle: when a subscription was acknowledged and ended, when an event was published, and
every delivery as it was received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from matching import Value
from overlay.client import (
    CompleteUntil,
    Delivered,
    Delivery,
    Done,
    Draft,
    Dropped,
    Failed,
    Publish,
    Published,
    Reply,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

IN_FLIGHT = 10.0
"""Seconds for which an event may be under way: several retries of the default settings (3 s)."""

CARRIED_FOR = 60.0
"""Seconds before the end of a process in which its trace records are searched for events:
`IN_FLIGHT`, and longer than nodes cannot reach each other. The oracle decides which of these events
were under way (canopy/sim/checks/oracle.py)."""


@dataclass(eq=False)
class SimulatedSubscription:
    """A subscription of a client. Times are virtual seconds; None: not, or not yet."""

    node: str
    client: int
    selector: str
    name: str
    asked: float
    level: int = 0  # its latency level
    identity: str = ""
    acknowledged: float | None = None
    ending: float | None = None  # unsubscribe was sent, or the client or its node went
    ended: float | None = None  # … and was answered: nothing may be shown any more
    failed: str = ""


@dataclass(eq=False)
class Publication:
    """An event that a client published."""

    node: str
    attributes: dict[str, Value | None]
    published: float
    identity: str = ""
    admitted: float | None = None  # answered: back-pressure may hold it up for long
    refused: str = ""
    stamped: float = 0.0  # when it was published, by its node's wall clock: seconds since 1970
    receipt: bool = False  # answered when all trees that it visits have accepted it


@dataclass(frozen=True, eq=False)
class Shown:
    """A delivery as a client received it."""

    time: float
    node: str
    client: int
    delivery: Delivery


@dataclass(frozen=True, eq=False)
class GapNotice:
    """A notice that a client's deliveries have a gap. `since` and `until`: the publication times of
    the missing events, by the publishers' wall clocks in seconds since 1970; None if the node does
    not tell."""

    time: float
    node: str
    client: int
    code: str
    since: float | None
    until: float | None


@dataclass(frozen=True)
class Crash:
    """The end of a process without draining, with the identities of its events by the trace records
    of all nodes until then; dicts are used as sets."""

    node: str
    time: float
    sent: Mapping[str, None]
    """Events that its programs published and it sent on."""
    carried: Mapping[str, None]
    """Events that it had for others, as a host or a delegate, and those under way to it."""
    received: Mapping[str, None]
    """Events that reached it as an interested node."""

    def may_have_lost(self, event: Publication, node: str) -> bool:
        """Return whether the crashed node may have had the only copy of the event for the programs
        of `node`. An event with a receipt is at the hosts, and events that the crashed node
        received for its own programs are not missing elsewhere."""
        with_hosts = event.receipt and event.admitted is not None and event.admitted < self.time
        identity = event.identity
        return (
            identity in self.carried
            or (identity in self.sent and not with_hosts)
            or (node == self.node and identity in self.received)
        )


@dataclass(frozen=True)
class Division:
    """From `since` until `until`, only nodes of the same side are expected to reach each other; a
    node without a side reaches none. Virtual seconds.

    `healed`: they were one overlay before, so missing events have to be reported.
    """

    since: float
    until: float
    sides: Mapping[str, int]
    healed: bool = False

    def parts(self, one: str, other: str, at: float) -> bool:
        """Return whether these two cannot be expected to reach each other then."""
        side = self.sides.get(one)
        return self.since <= at < self.until and (side is None or side != self.sides.get(other))


@dataclass
class Clients:
    """All clients of a world, their actions and what they received."""

    subscriptions: list[SimulatedSubscription] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    deliveries: list[Shown] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    """Processes that ended without draining, in order."""
    divisions: list[Division] = field(default_factory=list)
    """The times in which the overlay was divided."""
    absences: list[tuple[float, float]] = field(default_factory=list)
    """Times (from, to) in which a live node was not heard by others for so long that links
    ended."""
    cuts: list[tuple[float, float]] = field(default_factory=list)
    """All times (from, to) in which a live node was not heard by others, even if links survived."""
    notices: list[GapNotice] = field(default_factory=list)
    """Notices to clients of missing deliveries, in order."""
    failures: list[str] = field(default_factory=list)
    """Commands that a node refused."""
    on_suback: Callable[[SimulatedSubscription], None] = lambda subscription: None
    """Called with each subscription when it is acknowledged."""
    answers: dict[int, Reply] = field(default_factory=dict)
    """Replies to requests of `World.ask`."""
    _requests: int = 0
    _waiting: dict[int, SimulatedSubscription | list[Publication]] = field(default_factory=dict)

    def request(self) -> int:
        """Return the next request number."""
        self._requests += 1
        return self._requests

    def subscribe(self, subscription: SimulatedSubscription) -> Subscribe:
        """Note a subscription, and return the command to send."""
        request = self.request()
        self.subscriptions.append(subscription)
        self._waiting[request] = subscription
        return Subscribe(request, subscription.selector, subscription.name, subscription.level)

    def unsubscribe(self, subscription: SimulatedSubscription, now: float) -> Unsubscribe:
        """Note that a subscription ends, and return the command to send."""
        request = self.request()
        subscription.ending = now
        self._waiting[request] = subscription
        return Unsubscribe(request, subscription.identity)

    def publish(
        self,
        node: str,
        events: list[Mapping[str, Value | None]],
        now: float,
        wall: float,
        receipt: bool,
    ) -> tuple[list[Publication], Publish]:
        """Note the events, and return the command to send."""
        request = self.request()
        made = [
            Publication(node, dict(attributes), now, stamped=wall, receipt=receipt)
            for attributes in events
        ]
        self.publications.extend(made)
        self._waiting[request] = made
        drafts = tuple(Draft(event.attributes, time=wall) for event in made)
        return made, Publish(request, drafts, receipt)

    def crashed(self, crash: Crash) -> None:
        """Note that a node's process ended without draining, and its clients with it."""
        self.crashes.append(crash)
        self.ended(crash.node, crash.time)

    def ended(self, node: str, now: float, client: int | None = None) -> None:
        """Note that a node's process serves clients no longer, or that this client of it closed its
        connection: their subscriptions end."""
        for one in self.subscriptions:
            if one.node == node and client in (None, one.client) and one.ended is None:
                one.ending = one.ending or now
                one.ended = now

    def leaving(self, node: str, now: float) -> None:
        """Note that the node is asked to leave: its clients can expect nothing more."""
        for subscription in self.subscriptions:
            if subscription.node == node:
                subscription.ending = subscription.ending or now

    def replied(self, node: str, client: int, reply: Reply, now: float) -> None:
        """Note a node's reply to a client."""
        if isinstance(reply, Delivered):
            self.deliveries.extend(Shown(now, node, client, d) for d in reply.deliveries)
            return
        if isinstance(reply, CompleteUntil):
            return
        if reply.request == 0 and isinstance(reply, Failed):
            since = until = None
            if isinstance(reply, Dropped) and reply.code != "lapsed":
                since, until = reply.since, reply.until
            self.notices.append(GapNotice(now, node, client, reply.code, since, until))
            return
        waiting = self._waiting.pop(reply.request, None)
        if waiting is None:
            self.answers[reply.request] = reply
        elif isinstance(waiting, list):
            self._published(waiting, reply, now)
        elif isinstance(reply, Subscribed):
            waiting.identity = reply.subscription
            waiting.acknowledged = now
            self.on_suback(waiting)
        elif isinstance(reply, Done):
            waiting.ended = now
        elif isinstance(reply, Failed):
            waiting.failed = f"{reply.code}: {reply.reason}"
            self.failures.append(waiting.failed)

    def _published(self, publications: list[Publication], reply: Reply, now: float) -> None:
        if isinstance(reply, Failed):
            self.failures.append(f"{reply.code}: {reply.reason}")
            for publication in publications:
                publication.refused = reply.reason
            return
        assert isinstance(reply, Published), reply
        for publication, identity in zip(publications, reply.identities, strict=True):
            publication.identity = identity
            publication.admitted = now
        for place, reason in reply.refused:
            publications[place].refused = reason

"""The programs that use the nodes of a world, and what they saw.

A client talks to its node through the same commands and replies as the control socket carries. It
keeps what the oracle has to know: when a subscription was acknowledged and ended, when an event was
published, and every delivery as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from canopy.sim.world.recorder import EPOCH
from matching import Value
from overlay.client import (
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


@dataclass(eq=False)
class SimulatedSubscription:
    """A subscription of a client. Times are virtual seconds, None: not (yet)."""

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


@dataclass(frozen=True, eq=False)
class Shown:
    """A delivery as a client received it."""

    time: float
    node: str
    client: int
    delivery: Delivery


@dataclass(frozen=True, eq=False)
class GapNotice:
    """News that a client's deliveries have a gap. `since` and `until` in virtual seconds: when what
    was given up was published; the first is None where the node does not say, and the second is
    then the time of the notice."""

    time: float
    node: str
    client: int
    code: str
    since: float | None
    until: float


@dataclass(frozen=True)
class Division:
    """From `since` until `until` only nodes of the same side are expected to reach each other; a
    node without a side reaches none. Virtual seconds.

    `healed`: they were one overlay before, so that what does not arrive has to be reported."""

    since: float
    until: float
    sides: Mapping[str, int]
    healed: bool = False

    def parts(self, one: str, other: str, at: float) -> bool:
        """Whether these two can not be expected to hear of each other then."""
        side = self.sides.get(one)
        return self.since <= at < self.until and (side is None or side != self.sides.get(other))


@dataclass
class Clients:
    """All clients of a world, what they did and what they received."""

    subscriptions: list[SimulatedSubscription] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    deliveries: list[Shown] = field(default_factory=list)
    crashes: list[tuple[str, float]] = field(default_factory=list)
    """Which process ended without draining, and when."""
    divisions: list[Division] = field(default_factory=list)
    """When the overlay was more than one."""
    absences: list[tuple[float, float]] = field(default_factory=list)
    """From when to when some node that lived was not heard by others."""
    notices: list[GapNotice] = field(default_factory=list)
    """What clients heard of missing deliveries, in order."""
    failures: list[str] = field(default_factory=list)
    """Commands that a node refused."""
    on_suback: Callable[[SimulatedSubscription], None] = lambda subscription: None
    """Called with each subscription when it is acknowledged."""
    answers: dict[int, Reply] = field(default_factory=dict)
    """Replies to requests that nothing here follows (`World.ask`)."""
    _requests: int = 0
    _waiting: dict[int, SimulatedSubscription | list[Publication]] = field(default_factory=dict)

    def request(self) -> int:
        """The next number for a command."""
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
        made = [Publication(node, dict(attributes), now) for attributes in events]
        self.publications.extend(made)
        self._waiting[request] = made
        drafts = tuple(Draft(event.attributes, time=wall) for event in made)
        return made, Publish(request, drafts, receipt)

    def crashed(self, node: str, now: float, *, orderly: bool = False) -> None:
        """The node's process ended, and its clients with it."""
        if not orderly:
            self.crashes.append((node, now))
        for subscription in self.subscriptions:
            if subscription.node == node and subscription.ended is None:
                subscription.ending = subscription.ending or now
                subscription.ended = now

    def leaving(self, node: str, now: float) -> None:
        """The node is asked to leave: its clients can expect nothing more."""
        for subscription in self.subscriptions:
            if subscription.node == node:
                subscription.ending = subscription.ending or now

    def client_gone(self, node: str, client: int, now: float) -> None:
        """A client closed its connection: its subscriptions end."""
        for subscription in self.subscriptions:
            if (subscription.node, subscription.client) == (node, client):
                subscription.ending = subscription.ending or now
                subscription.ended = subscription.ended or now

    def replied(self, node: str, client: int, reply: Reply, now: float) -> None:
        """Note a node's reply to a client."""
        if isinstance(reply, Delivered):
            self.deliveries.extend(Shown(now, node, client, d) for d in reply.deliveries)
            return
        if reply.request == 0 and isinstance(reply, Failed):
            since, until = None, now
            if isinstance(reply, Dropped) and reply.code != "lapsed":
                since, until = reply.since - EPOCH, reply.until - EPOCH
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

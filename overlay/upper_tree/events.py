"""Events by which the machines of the trees inform each other and the node's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from matching import Cut, Interval
from overlay.client import Event
from overlay.machine import LocalEvent, NodeId, Peer
from overlay.upper_tree.messages import DeliveriesGivenUp, SentBefore


class TreeFound(LocalEvent, frozen=True):
    """The finder knows an entry into the attribute's tree."""

    attribute: str


class TreeAbsent(LocalEvent, frozen=True):
    """The owner says that the attribute has no subscribers; true of events published until
    `until`, which is past if the answer was slow."""

    attribute: str
    until: float


class TreesFound(LocalEvent, frozen=True):
    """The trees that were searched for in this turn are located: send events to them together."""


class SubscriptionsCame(LocalEvent, frozen=True):
    """Clients have subscribed, all that they did in this turn."""


class RegistrationsCame(LocalEvent, frozen=True):
    """Registrations of new subscriptions wait to be sent, all of this turn together."""


class SubscriptionsReady(LocalEvent, frozen=True):
    """All conjunctions of these subscriptions are registered: SUBACK."""

    subscriptions: tuple[str, ...]


class SubscriptionLapsed(LocalEvent, frozen=True):
    """A cluster had lost registrations of this node; they are being registered again. Events may
    have been missed for these seconds, and until they are registered (docs/design/promises.md)."""

    attribute: str
    subscriptions: tuple[str, ...]
    seconds: float


class HostsReplaced(LocalEvent, frozen=True):
    """This node stalled, and hosts of these trees, which may have held events for it, were lost in
    the meantime: events of the last `seconds` may be missing."""

    trees: tuple[str, ...]
    seconds: float


class DeliveriesMissed(LocalEvent, frozen=True):
    """Another node has given up deliveries to this one, or has ended its registrations."""

    notice: DeliveriesGivenUp


class MatchingInterrupted(LocalEvent, frozen=True):
    """At an owner: events were perhaps not matched for this subscriber for a while, for `reason` in
    words. `attributes`: of the trees in which they were not, empty: perhaps in any; `since`: when
    that began, in the Port's seconds, None if it is not known."""

    subscriber: Peer
    reason: str
    attributes: tuple[str, ...] = ()
    since: float | None = None


class EventsAccepted(LocalEvent, frozen=True):
    """All trees that these events of this node visit have accepted them (receipts). `hosts`: of
    each for which a receipt was asked, the hosts that accepted it by their trees' attributes."""

    sequences: tuple[int, ...]
    hosts: Mapping[int, Mapping[str, NodeId]] = {}


class PublicationsRefused(LocalEvent, frozen=True):
    """A host has refused these events of this node, by its policy or a quota. A following
    `EventsAccepted` only means that nothing more is awaited for them."""

    sequences: tuple[int, ...]
    reason: str


class PublicationsCame(LocalEvent, frozen=True):
    """Clients have published, all that they did in this turn."""


class RoomAgain(LocalEvent, frozen=True):
    """The publisher may admit events again."""


class MapSettled(LocalEvent, frozen=True):
    """At the owner: no change of this tree's map is under way any more."""

    attribute: str


class LeasesOver(LocalEvent, frozen=True):
    """At the owner: some host may no longer serve (owner/lease_grants.py)."""


class CopyInvalidated(LocalEvent, frozen=True):
    """At the owner: a publisher has no copy of this tree's summary any more, or copies expired."""

    attribute: str


class CopiesReported(LocalEvent, frozen=True):
    """At a new owner: publishers have copies of these trees' summaries from a former one."""

    attributes: tuple[str, ...]


class OwnerRefused(LocalEvent, frozen=True):
    """A node that was taken for the owner of these attributes answered that it is not. The true
    owner, if it named one, is in the ring's cache already."""

    attributes: tuple[str, ...]


class Served(Protocol):
    """The parts of a tree that a host serves at some moment, from which a receiver derives through
    which virtual node an event came."""

    @property
    def is_whole(self) -> bool:
        """Whether every value is served here."""

    def span(self, spot: Cut) -> Interval | None:
        """The part of the value space that is served here, around this place."""


class Visited(LocalEvent, frozen=True):
    """Events that visit trees in which only this node has registered: not matched yet, which this
    node's receiver does."""

    origin: Peer
    hop: int
    events: Sequence[Event]
    trees: Mapping[str, Served]
    """The served parts of the trees that the events visit."""
    before: tuple[SentBefore, ...] = ()
    through: int = 0  # as in `Deliver`

"""What a program may ask of its node, and what it hears back.

One vocabulary for the control socket (canopy/wire/control/server), the terminal UI, the simulator
and tests: `Node.command(client, command)` takes any `Command`; answers and deliveries leave through
`Driver.reply(client, reply)`. A client is a number that the driver gives to each connection; when
it goes, `Node.client_gone(client)` ends its subscriptions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

import msgspec

from matching import Value
from overlay.info import (
    ClientInfo,
    ClusterInfo,
    Incident,
    PeerInfo,
    Reason,
    SubscriptionInfo,
    VirtualNodeInfo,
)
from overlay.machine import NodeId

LEVELS = 5
"""Latency levels (P6); Phoenix 3 leaves L open. Five, as in most scales that people use."""


CREDIT = 1 << 20
"""Bytes of deliveries that may be under way to a client that has granted nothing yet, and the most
that may be whatever it grants. A quarter of what a link has (`links.window`): at 100,000 events of
200 bytes per second it lasts 50 ms, in which a program that keeps up has its turn. Wild guess."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event under way. Identity is (publisher, incarnation, sequence) (V7); a user's `id` is an
    attribute. `time` is the publisher's wall clock in seconds, for people and latency only. (`gc`:
    attributes are plain values, so that the garbage collector need not look at events.)"""

    publisher: NodeId
    incarnation: int
    sequence: int
    time: float
    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""

    @property
    def identity(self) -> str:
        """``publisher.incarnation.sequence``, as traces and `canopy why` name it."""
        return f"{self.publisher}.{self.incarnation}.{self.sequence}"


class Draft(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event before the node has given it its identity."""

    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""
    time: float = 0.0  # 0: stamped by the node's driver on arrival


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request; `request` is the client's own number and comes back in the reply."""

    request: int


class Subscribe(Command, frozen=True):
    """Answered by Subscribed once every event that is published from then on will be found.

    `latency_level`: how urgent the events are where a host is behind, 1 (most) to LEVELS; 0: no
    matter (P6).
    """

    selector: str
    name: str = ""
    latency_level: Annotated[int, msgspec.Meta(ge=0, le=LEVELS)] = 0


class Gather(Command, frozen=True):
    """From now on this client's new subscriptions are told together: an event comes once, however
    many of them it matches, in Gathered. Answered by Done."""


class Unsubscribe(Command, frozen=True):
    """Answered by Done."""

    subscription: str


class Publish(Command, frozen=True):
    """Answered by Published: at once after admission, or, with `receipt`, when every tree that the
    events visit has accepted them. Admission waits while too much is pending."""

    events: tuple[Draft, ...]
    receipt: bool = False


class GetStatus(Command, frozen=True):
    """Answered by Status."""


class GetPeers(Command, frozen=True):
    """Answered by Peers."""


class GetRing(Command, frozen=True):
    """Answered by Ring: all clusters, collected by a walk around the ring."""


class GetIncidents(Command, frozen=True):
    """Answered by Incidents: what happened around this node lately."""


class GetAttributes(Command, frozen=True):
    """Answered by Attributes: names seen lately, for completion."""


class GetSubscriptions(Command, frozen=True):
    """Answered by Subscriptions: those of all clients of this node."""


class Where(Command, frozen=True):
    """Answered by Located: the cluster that owns the attribute and its tree."""

    attribute: str


class Why(Command, frozen=True):
    """Answered by Explained: why `event` (identity, or a user's id) reached a subscription or not;
    without a subscription all those of this node are explained."""

    event: str
    subscription: str = ""


class Feed(Command, frozen=True):
    """Start (period > 0) or stop (0) publishing a built-in feed, "telemetry". Handled by the
    process (canopy/wire/), not by the node. Answered by Done."""

    name: str
    period: float


class Drain(Command, frozen=True):
    """Leave the overlay in order and end the process. Answered by Done when it begins."""


class Grant(Command, frozen=True):
    """This client's program has consumed `consumed` bytes of frames of deliveries (Delivered,
    Gathered; each with its four bytes of length) since the connection began, and `credit` more may
    be under way, at most CREDIT. Handled by the control socket
    (canopy/wire/control/credit_window.py), not by the
    node. Not answered; its request number is no matter."""

    consumed: int
    credit: int


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An answer, or news (request 0)."""

    request: int


class Failed(Reply, frozen=True):
    """The command was not carried out. `code`: usage, selector, refused, time-out, unknown.

    With request 0 it is bad news: Dropped, or gap (a subscription was lost for a while).
    """

    code: str
    reason: str


class Dropped(Failed, frozen=True):
    """Bad news (request 0, code overflow): this client consumes too slowly, and `count` deliveries
    were dropped. It comes once for each gap, behind what came before the gap and before what came
    after it. A delivery is one event for one subscription; where the client gathers, one event."""

    count: int
    first: str  # identity of the first event that is missing, and …
    last: str  # … of the last
    since: float  # `Event.time` of the first, and …
    until: float  # … of the last


class Done(Reply, frozen=True):
    """Carried out, nothing to tell."""


class Subscribed(Reply, frozen=True):
    """SUBACK."""

    subscription: str


class Published(Reply, frozen=True):
    """The drafts are events now, with numbers one after the other, but for those that were refused:
    `refused` has the place of each, in order, and the reason."""

    count: int  # of the drafts
    publisher: NodeId
    incarnation: int
    first: int  # sequence number
    refused: tuple[tuple[int, str], ...] = ()

    @staticmethod
    def of(
        request: int, events: Sequence[Event], refused: tuple[tuple[int, str], ...] = ()
    ) -> Published:
        """The answer for drafts that became these events."""
        count = len(events) + len(refused)
        if not events:
            return Published(request, count, "", 0, 0, refused)
        one = events[0]
        return Published(request, count, one.publisher, one.incarnation, one.sequence, refused)

    @property
    def identities(self) -> tuple[str, ...]:
        """Of the events, in the order of the drafts; a refused one has ""."""
        refused, number = dict(self.refused), itertools.count(self.first)
        return tuple(
            "" if place in refused else f"{self.publisher}.{self.incarnation}.{next(number)}"
            for place in range(self.count)
        )


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """One event for one subscription, with what is known of its way."""

    subscription: str
    event: Event
    attribute: str  # the tree that it came through (first one that completed it)
    lo: str  # the virtual node's interval, as text
    hi: str
    hops: int  # messages from publisher to here, along the path that completed it
    latency_ms: float = 0.0  # filled by the driver: wall clock now - event.time


class Delivered(Reply, frozen=True):
    """News for the client that subscribed (request is 0)."""

    deliveries: tuple[Delivery, ...]


class Gathered(Reply, frozen=True):
    """News for a client that gathers (request is 0): events that some of its subscriptions match,
    each once."""

    events: tuple[Event, ...]

    @staticmethod
    def of(events: Sequence[Event], places: Sequence[int]) -> Gathered:
        """Those at these places."""
        return Gathered(0, tuple([events[place] for place in places]))


class Status(Reply, frozen=True):
    """One node. `counters` are totals since its start."""

    node: NodeId
    address: str
    ready: bool
    draining: bool
    incarnation: int
    role: str  # primary, standby, broker, none
    cluster: str  # key of its cluster or ""
    ring: str  # id of its ring or ""
    neighbours: int
    links: int
    subscriptions: int
    pending: int  # (event, tree) pairs not yet accepted + deliveries under way + queued publishes
    trees: int  # attribute trees in which it hosts virtual nodes
    routing: str
    seeds: dict[str, str]  # address of the peer list -> "reached", or why not
    counters: dict[str, int]
    pid: int = 0  # filled by the process
    uptime: float = 0.0  # seconds; filled by the process
    name: str = ""
    replaced: str = ""  # its id before its state file was damaged; filled by the process
    clients: tuple[ClientInfo, ...] = ()  # filled by the process


class Peers(Reply, frozen=True):
    """Neighbours and other links of this node."""

    peers: tuple[PeerInfo, ...]


class Ring(Reply, frozen=True):
    """Clusters in ring order. `complete` is False if the way around was not closed in time."""

    clusters: tuple[ClusterInfo, ...]
    complete: bool


class Incidents(Reply, frozen=True):
    """The newest first."""

    incidents: tuple[Incident, ...]


class Located(Reply, frozen=True):
    """The owner of an attribute, and its tree (no virtual nodes: nobody subscribes to it)."""

    attribute: str
    cluster: ClusterInfo
    version: tuple[int, int]
    virtual_nodes: tuple[VirtualNodeInfo, ...]


class Subscriptions(Reply, frozen=True):
    """All subscriptions of this node's clients."""

    subscriptions: tuple[SubscriptionInfo, ...]


class Attributes(Reply, frozen=True):
    """Names of attributes, most recent first."""

    names: tuple[str, ...]


class Explained(Reply, frozen=True):
    """What the overlay knows of an event. `path` tells its way, one step a line."""

    event: str
    id: str
    attributes: dict[str, Value | None]
    path: tuple[str, ...]
    reasons: tuple[Reason, ...]


COMMANDS = (
    Subscribe | Gather | Unsubscribe | Publish | GetStatus | GetPeers | GetRing | GetIncidents
    | GetAttributes | GetSubscriptions | Where | Why | Feed | Drain | Grant
)  # fmt: skip
"""What the control socket decodes; nothing else comes in."""

REPLIES = (
    Failed | Dropped | Done | Subscribed | Published | Delivered | Gathered | Status | Peers | Ring
    | Incidents | Located | Subscriptions | Attributes | Explained
)  # fmt: skip
"""What it sends."""

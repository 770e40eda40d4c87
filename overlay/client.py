"""What a program may ask of its node, and what it hears back.

One vocabulary for the control socket (wire/control), the terminal UI, the simulator and tests:
`Node.command(client, command)` takes any `Command`; answers and deliveries leave through
`Driver.reply(client, reply)`. A client is a number that the driver gives to each connection; when
it goes, `Node.client_gone(client)` ends its subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from matching import Value
from overlay.machine import Key, NodeId

LEVELS = 5
"""Latency levels (P6); Phoenix 3 leaves L open. Five, as in most scales that people use."""


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
    process (wire/), not by the node. Answered by Done."""

    name: str
    period: float


class Drain(Command, frozen=True):
    """Leave the overlay in order and end the process. Answered by Done when it begins."""


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An answer, or news (request 0)."""

    request: int


class Failed(Reply, frozen=True):
    """The command was not carried out. `code`: usage, selector, refused, time-out, unknown.

    With request 0 it is bad news: overflow (this client reads too slowly, deliveries were dropped)
    or gap (a subscription was lost for a while).
    """

    code: str
    reason: str


class Done(Reply, frozen=True):
    """Carried out, nothing to tell."""


class Subscribed(Reply, frozen=True):
    """SUBACK."""

    subscription: str


class Published(Reply, frozen=True):
    """Identities in the order of the drafts; an event that was refused has "" there and its place
    and reason in `refused`."""

    identities: tuple[str, ...]
    refused: tuple[tuple[int, str], ...] = ()


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


class PeerInfo(msgspec.Struct, frozen=True):
    """One neighbour or link."""

    node: NodeId
    address: str
    state: str  # of the link
    age: int  # in shuffles; -1 if it is no neighbour
    neighbour: bool
    sent: int  # messages
    received: int


class Peers(Reply, frozen=True):
    """Neighbours and other links of this node."""

    peers: tuple[PeerInfo, ...]


class ClusterInfo(msgspec.Struct, frozen=True):
    """One cluster as `canopy ring --json` shows it."""

    key: Key
    start: Key  # it owns the keys after this one, up to and including `key`
    epoch: int
    primary: NodeId
    standby: NodeId  # "" if it has none
    brokers: tuple[NodeId, ...]
    attributes: tuple[str, ...]
    addresses: dict[NodeId, str]
    led_for: float = -1.0
    """Seconds that its primary has led it; -1: not told."""
    silent: tuple[NodeId, ...] = ()
    """Members that its primary does not hear."""


class Ring(Reply, frozen=True):
    """Clusters in ring order. `complete` is False if the way around was not closed in time."""

    clusters: tuple[ClusterInfo, ...]
    complete: bool


class Incident(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened. `what`: lost, back (a peer); silent (a primary), elected, fenced;
    joined, member lost (at the primary); role (of this node)."""

    ago: float  # seconds
    what: str
    node: NodeId
    cluster: Key  # "" if it is about no cluster
    epoch: int
    text: str


class Incidents(Reply, frozen=True):
    """The newest first."""

    incidents: tuple[Incident, ...]


class VirtualNodeInfo(msgspec.Struct, frozen=True):
    """One virtual node of a tree."""

    lo: str
    hi: str
    host: NodeId
    registrations: int
    others: tuple[NodeId, ...] = ()  # replicas beside `host`


class Located(Reply, frozen=True):
    """The owner of an attribute, and its tree (no virtual nodes: nobody subscribes to it)."""

    attribute: str
    cluster: ClusterInfo
    version: tuple[int, int]
    virtual_nodes: tuple[VirtualNodeInfo, ...]


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription of this node."""

    subscription: str
    name: str
    selector: str
    acknowledged: bool
    delivered: int  # where its client gathers: events that are put down to this one
    pivots: tuple[str, ...]  # per conjunction: the attribute tree(s) it is registered in


class Subscriptions(Reply, frozen=True):
    """All subscriptions of this node's clients."""

    subscriptions: tuple[SubscriptionInfo, ...]


class Attributes(Reply, frozen=True):
    """Names of attributes, most recent first."""

    names: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """One line of an explanation, indented by `depth`."""

    depth: int
    text: str  # of the sub-expression
    verdict: str  # true, false, unknown
    seen: str  # the value(s) seen, as text; "" if none


class Reason(msgspec.Struct, frozen=True):
    """Why one subscription got the event or not."""

    subscription: str
    name: str
    selector: str
    delivered: bool
    summary: str  # one sentence
    verdicts: tuple[Verdict, ...]
    attribute: str = ""  # pivot, or the tree that completed it
    lo: str = ""
    hi: str = ""
    hops: int = 0


class Explained(Reply, frozen=True):
    """What the overlay knows of an event. `path` tells its way, one step a line."""

    event: str
    id: str
    attributes: dict[str, Value | None]
    path: tuple[str, ...]
    reasons: tuple[Reason, ...]


COMMANDS = (
    Subscribe | Gather | Unsubscribe | Publish | GetStatus | GetPeers | GetRing | GetIncidents
    | GetAttributes | GetSubscriptions | Where | Why | Feed | Drain
)  # fmt: skip
"""What the control socket decodes; nothing else comes in."""

REPLIES = (
    Failed | Done | Subscribed | Published | Delivered | Gathered | Status | Peers | Ring
    | Incidents | Located | Subscriptions | Attributes | Explained
)  # fmt: skip
"""What it sends."""

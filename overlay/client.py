"""The vocabulary between a program and its node: commands, replies and news.

One vocabulary for the control socket (canopy/wire/control/server), the terminal UI, the simulator
and tests: `Node.commands(client, commands)` takes any `Command`s; answers and deliveries leave
through `Driver.reply(client, reply)`. A client is a number that the driver gives to each
connection; when it goes, `Node.client_gone(client)` ends its subscriptions. A client with a session
keeps its number for a while without a connection, and on the next one (M5)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from matching import Value
from overlay.info import (
    AcceptedEvents,
    AppendReceipt,
    ClientInfo,
    ClusterInfo,
    EventRecipients,
    HeldShard,
    Incident,
    PeerInfo,
    Reason,
    StreamInfo,
    SubscriptionInfo,
    VirtualNodeInfo,
)
from overlay.machine import NodeId, Uint53, WallClock

LEVELS = 5
"""Latency levels (P6). The Phoenix paper (section 3) leaves L open; five, as in most scales."""

CREDIT = 1 << 20
"""Bytes of deliveries that may be under way to a client that has granted nothing yet, and the most
that may be whatever it grants. A quarter of what a link has (`links.window`): at 100,000 events of
200 bytes per second it lasts 50 ms, in which a program that keeps up has its turn. Guess; to be
measured by the deliveries per second of one program on a loaded machine."""

DRY_RUN_MOST = 100
"""Events of one DryRun: more than a person looks through. Not measured; would be measured by the
longest turn of a host that matches this many."""

DRY_RUN_ATTRIBUTES = 1_000
"""Attributes of all events of one DryRun, each looked up: as many as one event may have."""

FULL = "full"
"""Code of the `Failed` that a program gets for which the node has no room."""

DENIED = "denied"
"""Code of the `Failed` for what a program's token does not allow, or for a bad token."""

GAP, LAPSED = "gap", "lapsed"
"""Codes of the notices that one subscription, or a node, was not registered for a while."""

ENDED = "ended"
"""Code of the notice that another program has ended a subscription."""

LEAVING = "leaving"
"""Code of the `Failed` that a program gets whose node is leaving the overlay."""

NO_MAJORITY = "no-majority"
"""Code of the `Failed` for what needs a majority of a stream's replicas, while fewer answer.
Nothing was carried out; to be repeated after a while."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A published event. Its identity is (publisher, incarnation, sequence) (V7); a user's `id` is
    an attribute. `time` is the publisher's wall clock in seconds, for people and for latency only;
    `proof`: that its node has signed it (upper_tree/event_proofs), None: it has not. `traced`:
    whether nodes write records of it, as its publisher has decided. (`gc=False`: attributes are
    plain values, which no garbage collector need look at.)"""

    publisher: NodeId
    incarnation: Uint53
    sequence: Uint53
    time: WallClock
    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""
    proof: Annotated[bytes, msgspec.Meta(max_length=1_024)] | None = None
    traced: bool = True

    @property
    def identity(self) -> str:
        """``publisher.incarnation.sequence``, as traces and `canopy why` name it."""
        return f"{self.publisher}.{self.incarnation}.{self.sequence}"


class Draft(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event before the node has given it its identity."""

    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""
    time: WallClock = 0.0  # 0: stamped by the node's driver on arrival


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A request of a program; `request` is the program's own number and comes back in the reply."""

    request: int


class Subscribe(Command, frozen=True):
    """Subscribe to the events that `selector` matches. Answered by Subscribed once every matching
    event that is published from then on will be delivered, or by Failed (code selector).

    `latency_level`: how urgent the events are where a host is behind, 1 (most urgent) to LEVELS; 0:
    any (P6). `marks`: the client wants `CompleteUntil`. `since`: it had this subscription before,
    with this as the last mark (0: it had not), and is told what is known to be missing since.
    """

    selector: str
    name: str = ""
    latency_level: Annotated[int, msgspec.Meta(ge=0, le=LEVELS)] = 0
    marks: bool = False
    since: float = 0.0


class Gather(Command, frozen=True):
    """Deliver events of this client's later subscriptions together, in Gathered: an event comes
    once, however many of the subscriptions match it. Answered by Done."""


class Unsubscribe(Command, frozen=True):
    """End a subscription, named by its id. Answered by Done."""

    subscription: str


class EndSubscription(Command, frozen=True):
    """End a subscription of any client of this node. Answered by Done; its client gets Ended, or
    Failed (code ended) where the subscription was not acknowledged yet."""

    subscription: str


class Publish(Command, frozen=True):
    """Publish events. Answered by Published: after admission, or, with `receipt`, when every tree
    that the events visit has accepted them. Admission waits while too much is pending
    (``tree.pending``)."""

    events: tuple[Draft, ...]
    receipt: bool = False


class DryRun(Command, frozen=True):
    """Ask who would get these events if they were published now; none is. At most `DRY_RUN_MOST`,
    with at most `DRY_RUN_ATTRIBUTES` different attributes. Answered by Recipients."""

    events: tuple[Draft, ...]


class GetStatus(Command, frozen=True):
    """Ask for the state of this node. Answered by Status."""


class GetPeers(Command, frozen=True):
    """Ask for the neighbours and links of this node. Answered by Peers."""


class GetRing(Command, frozen=True):
    """Ask for all clusters, collected by a message around the ring. Answered by RingClusters."""


class GetIncidents(Command, frozen=True):
    """Ask what happened around this node lately. Answered by Incidents."""


class GetAttributes(Command, frozen=True):
    """Ask for names of attributes seen lately, for completion. Answered by Attributes."""


class GetSubscriptions(Command, frozen=True):
    """Ask for the subscriptions of all clients of this node. Answered by Subscriptions."""


class GetEvents(Command, frozen=True):
    """Ask for the last events that this node has published or got, `count` at most, without their
    payloads. Answered by Events."""

    count: int


class Where(Command, frozen=True):
    """Ask for the cluster that owns an attribute, and its tree. Answered by Located."""

    attribute: str


class Why(Command, frozen=True):
    """Ask why `event` (its identity, or a user's id) reached a subscription or not; without a
    subscription, all those of this node. Answered by Explained."""

    event: str
    subscription: str = ""


class Feed(Command, frozen=True):
    """Start (period > 0) or stop (0) publishing a built-in feed, "telemetry". Handled by the
    process (canopy/wire/), not by the node. Answered by Done."""

    name: str
    period: float


class RemoveStream(Command, frozen=True):
    """Remove a stream and all that it has, for ever. Answered by Done, or Failed (unknown)."""

    name: str


class GetStreams(Command, frozen=True):
    """Ask for all streams, or for `name` with all its replicas. Answered by Streams."""

    name: str = ""


class AppendEvents(Command, frozen=True):
    """Append events to a stream, as one batch in each of its shards: all of them or none. As
    `producer`, if this client has begun it, else as the node itself. Answered by EventsAppended
    when they are committed, or by Failed."""

    stream: str
    events: tuple[Draft, ...]
    producer: str = ""


class BeginReading(Command, frozen=True):
    """Read a stream's events that `selector` matches (empty: all). Answered by ReadingReady, or by
    Failed (unknown, selector, offset-out-of-range, position-lost, no-key, fenced, expired, full,
    usage, time-out).

    `start`: first, new, offset or time, with the offset or the time in nanoseconds since 1970 in
    `at`; shards that are in `positions` begin at the offset there. `durable`: as this durable
    consumer, which begins at its own position where it is known and not given; `token` names the
    program's start, and `resume` says that it was attached by this token and goes on at
    `positions`. It is forgotten after `expire_after` seconds without a program, 0: never. `shard`:
    only this one, -1: all.

    `stream_id`: the founding id of the stream whose `positions` these are; those of another stream
    of that name are refused (position-lost). `losses`: by shard, how many times its log had lost
    rows when the position was told (ReadingReady, EventsTaken); one beyond rows that were lost
    since is refused likewise. Shards that are not named are not compared.

    `start` keys: in a stream with a key, the newest row of each key, in the order of offsets, and
    then all rows that came since. `tables`: a reading that goes on while not all newest rows have
    come; by shard the offset below which they lay when it began. `packed`: the rows come as the log
    has them, for programs that decode many; not of a durable consumer.
    """

    stream: str
    selector: str = ""
    start: Literal["first", "new", "offset", "time", "keys"] = "new"
    at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    positions: tuple[tuple[int, int], ...] = ()
    durable: Annotated[str, msgspec.Meta(max_length=128)] = ""
    token: Annotated[str, msgspec.Meta(max_length=128)] = ""
    resume: bool = False
    expire_after: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    shard: int = -1
    tables: tuple[tuple[int, int], ...] = ()
    packed: bool = False
    stream_id: Annotated[str, msgspec.Meta(max_length=128)] = ""
    losses: tuple[tuple[int, Uint53], ...] = ()


class TakeEvents(Command, frozen=True):
    """Take the events that have come for a reading, named by the request number of its
    BeginReading. Answered by EventsTaken as soon as there are events, when a position has moved on
    without any (some seconds later where thousands of a node's readings wait for that), when no
    events can come for want of a majority, and when they can again; by Failed when the reading has
    ended. A program that does not send this command is sent no events."""

    reading: int


class CommitReading(Command, frozen=True):
    """A durable consumer is done with the offsets below these, by shard. Answered by Done when that
    is committed, and by Failed."""

    reading: int
    positions: tuple[tuple[int, int], ...]


class EndReading(Command, frozen=True):
    """End a reading. Answered by Done; TakeEvents that wait are answered by Failed."""

    reading: int


class Drain(Command, frozen=True):
    """Leave the overlay in order and end the process. Answered by Done when it begins."""


class Grant(Command, frozen=True):
    """This client's program has consumed `consumed` bytes of frames of deliveries (Delivered,
    Gathered; each with its four bytes of length) since the connection began, and `credit` more
    bytes may be under way, at most CREDIT. Handled by the control socket
    (canopy/wire/control/credit_window.py). Not answered; the request number is ignored."""

    consumed: int
    credit: int


class OpenSession(Command, frozen=True):
    """Open a session (M5): when this client's connection is lost, its subscriptions and the items
    that come for them are kept for a while, and `ResumeSession` on another connection continues
    with them. Handled by the control socket. Answered by SessionOpened. Items sent unasked after
    that are numbered: each Delivery, each event of a Gathered, and each notice."""


class ResumeSession(Command, frozen=True):
    """The first command of a connection: continue `session`, of which the program has the first
    `received` numbered items. Answered by SessionResumed, or by Failed (code unknown): the session
    has ended, or the node was started again. Unanswered requests of the former connection are no
    longer answered; request numbers continue after those of that connection."""

    session: str
    received: Annotated[int, msgspec.Meta(ge=0)]


class CloseSession(Command, frozen=True):
    """The program ends: its subscriptions end with this connection. Handled by the control socket.
    Not answered; its request number is no matter."""


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The answer to a command, or news that was not asked for (request 0)."""

    request: int


class Failed(Reply, frozen=True):
    """The command was not carried out. `code`: usage, selector, refused, policy, quota (more
    than this node may have registered), time-out, unknown, fault (of the node), or leaving (nothing
    of it was, nor will be: the node is leaving the overlay).

    With request 0 it is bad news: Dropped, Lapsed, Ended, full (no further program is served, and
    the connection is closed), or leaving (all subscriptions of this client have ended).
    """

    code: str
    reason: str


class Dropped(Failed, frozen=True):
    """Bad news (request 0): `count` deliveries are missing here. It comes once for each gap, behind
    what came before the gap and before what came after it. `code`:

    - overflow: this client consumes too slowly, and its deliveries were dropped. A delivery is one
      event for one subscription; where the client gathers, one event;
    - unreachable: another node has given up deliveries to this node, which was out of its reach or
      took them too slowly. A delivery is one event for this node, and may be for other clients;
    - lapsed: the overlay did not know all of this node's registrations, or hosts were lost, and
      events of the last `seconds` may be missing (0: it is not known since when); the control
      socket puts the time into `since`, 0 if it is not known. `count`, which may be 0, are known.

    `subscriptions`: those of this client which it may concern; empty: any of them.
    """

    count: int
    first: str  # identity of the first event that is missing, and …
    last: str  # … of the last
    since: float  # `Event.time` of the first, and …
    until: float  # … of the last
    subscriptions: tuple[str, ...] = ()
    seconds: float = 0.0

    def of(self, subscriptions: tuple[str, ...]) -> Dropped:
        """The same for these subscriptions."""
        return msgspec.structs.replace(self, subscriptions=subscriptions)


class Lapsed(Failed, frozen=True):
    """Bad news (request 0, code gap): the overlay has lost `subscription`, and events published in
    the last `seconds` before `at` (the node's wall clock) may be missing. It comes when that is
    found out, and once more (`is_over`) when the subscription is acknowledged again."""

    subscription: str
    seconds: float
    is_over: bool
    at: float = 0.0  # filled by the control socket


class Ended(Failed, frozen=True):
    """Bad news (request 0, code ended): another program has ended `subscription`."""

    subscription: str


class Done(Reply, frozen=True):
    """The command was carried out; there is nothing to return."""


class Subscribed(Reply, frozen=True):
    """The acknowledgement of a subscription (SUBACK), with its id."""

    subscription: str


class CompleteUntil(Reply, frozen=True):
    """A mark for a client that asked for marks (request is 0). Of the events published before
    `until` (seconds since 1970, by the node's wall clock), all that the client's subscriptions
    should get were sent before this, or a notice of the gap was. If the client loses its node, its
    gap begins at the last mark. (Events that a host holds, and of which this node has not heard,
    are reported by the host.)"""

    until: float


class SessionOpened(Reply, frozen=True):
    """This client has a session: `session` resumes it within `kept_for` seconds after its
    connection is lost. Any program that knows `session` can resume it. "": the node keeps no
    sessions."""

    session: str
    kept_for: float


class SessionResumed(Reply, frozen=True):
    """The session goes on: `subscriptions` are those that it has, and the numbered items after
    `after` follow. That is more than what the program has received if the node no longer has all
    that came then, as much as it has received otherwise, or less where a frame is sent again of
    which it has received a part."""

    subscriptions: tuple[SubscriptionInfo, ...]
    after: int = 0  # filled by the control socket


class Published(Reply, frozen=True):
    """The drafts were published, with consecutive numbers. `refused` has, in order, the places of
    those that were not, and the reasons. `accepted` has the hosts of the events that have any, if a
    receipt was asked for."""

    count: int  # of the drafts
    publisher: NodeId
    incarnation: int
    first: int  # sequence number
    refused: tuple[tuple[int, str], ...] = ()
    accepted: tuple[AcceptedEvents, ...] = ()

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
        """The events' identities in the order of the drafts; "" for a refused one."""
        refused, number = dict(self.refused), itertools.count(self.first)
        return tuple(
            "" if place in refused else f"{self.publisher}.{self.incarnation}.{next(number)}"
            for place in range(self.count)
        )

    @property
    def hosts(self) -> tuple[Mapping[str, NodeId], ...]:
        """The hosts of each event by their trees' attributes, in the order of the drafts; empty for
        an event that is refused or visits no host."""
        found = {
            group.first + at: group.hosts for group in self.accepted for at in range(group.count)
        }
        refused, number = dict(self.refused), itertools.count(self.first)
        return tuple(
            {} if place in refused else found.get(next(number), {}) for place in range(self.count)
        )


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """One event for one subscription, with what the node knows of its route."""

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
    region: str = ""
    tier: int = 0
    clients: tuple[ClientInfo, ...] = ()  # filled by the process
    shards: tuple[HeldShard, ...] = ()
    """The shards of streams, the first 256."""
    health: str = ""
    """The node's health by its own measurements, or by its health file: "healthy", or "sub-healthy:
    " and the reason; "": it has not measured itself yet, and there is no valid file."""
    way: str = ""
    """To the owners of keys: "lease" (this node is one, and a majority follows it), "no lease",
    "member" (of a cluster whose primary is reached), "primary silent", "known"; "": none."""


class Peers(Reply, frozen=True):
    """Neighbours and other links of this node."""

    peers: tuple[PeerInfo, ...]


class RingClusters(Reply, frozen=True, tag="Ring"):
    """Clusters in ring order. `complete` is False if the way around was not closed in time."""

    clusters: tuple[ClusterInfo, ...]
    complete: bool


class Incidents(Reply, frozen=True):
    """Incidents observed by this node, the newest first."""

    incidents: tuple[Incident, ...]


class Located(Reply, frozen=True):
    """The owner of an attribute, and its tree (no virtual nodes: it has no subscription)."""

    attribute: str
    cluster: ClusterInfo
    version: tuple[int, int]
    virtual_nodes: tuple[VirtualNodeInfo, ...]


class Streams(Reply, frozen=True):
    """Streams in order of name. Where all were asked for, replicas are named only, and `complete`
    is False if a part of the ring did not answer in time."""

    streams: tuple[StreamInfo, ...]
    complete: bool = True


class EventsAppended(Reply, frozen=True):
    """The events are committed. `receipts`: one for each shard that has some of them; there is none
    for events that an earlier session appended and whose place is no longer known. `next`: if a
    producer has begun, (shard, number of the next event) for each of these shards."""

    stream: str
    receipts: tuple[AppendReceipt, ...]
    next: tuple[tuple[int, int], ...] = ()


class StreamEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of a stream, and its place. `time`: when it was appended, by its leader's clock, in
    seconds since 1970."""

    shard: int
    offset: int
    time: float
    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""


class ReadingReady(Reply, frozen=True):
    """The reading has begun in all shards. By shard: the offset at which it begins, and that which
    the shard's next event will have; and in `losses` how many times its log has lost rows at its
    end. `stream`: the stream's founding id."""

    shards: tuple[tuple[int, int], ...]
    token: str
    stream: str = ""
    losses: tuple[int, ...] = ()


class PackedEvents(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events of a shard that were appended together, as the log has them: `count` rows one behind
    the other, each the MessagePack array [attributes, payload, payload type], whose last items may
    be missing. `time`: nanoseconds since 1970. The first has the offset `first`; `places` are the
    others' offsets less that one, in order; empty: they follow on one another."""

    shard: int
    time: int
    first: int
    count: int
    places: tuple[int, ...]
    rows: bytes


class EventsTaken(Reply, frozen=True):
    """Events in the order of each shard's offsets, and the new position of each shard whose
    position has changed: (shard, offset that follows). `tables`: for a reading that begins with the
    newest rows, the shards of which not all rows have come yet, and the offset below which they
    lie. `packed`: the events, for a reading that asked for packed events. `losses`: as in
    ReadingReady, for the shards whose logs have lost rows."""

    events: tuple[StreamEvent, ...]
    positions: tuple[tuple[int, int], ...]
    tables: tuple[tuple[int, int], ...] = ()
    packed: tuple[PackedEvents, ...] = ()
    losses: tuple[tuple[int, int], ...] = ()
    waits: str = ""
    """Why nothing can come just now, in words for people (no majority of a shard's replicas
    answers); the reading goes on by itself, and another answer says when. "": it can."""


class Subscriptions(Reply, frozen=True):
    """All subscriptions of this node's clients."""

    subscriptions: tuple[SubscriptionInfo, ...]


class Recipients(Reply, frozen=True):
    """The recipients of the events of a DryRun, in the order of the events."""

    events: tuple[EventRecipients, ...]


class Events(Reply, frozen=True):
    """Events that this node remembers, without payloads, the newest first. Not all that were asked
    for if they are more than a frame has room for."""

    events: tuple[Event, ...]


class Attributes(Reply, frozen=True):
    """Names of attributes, most recent first."""

    names: tuple[str, ...]


class Explained(Reply, frozen=True):
    """The facts known about an event: `path`, its steps as lines of text, and one entry of
    `reasons` for each subscription of this node, including ended ones that were asked for or got
    the event."""

    event: str
    id: str
    attributes: dict[str, Value | None]
    path: tuple[str, ...]
    reasons: tuple[Reason, ...]
    shown_at: tuple[tuple[NodeId, str], ...] = ()
    """At the event's publisher: the nodes whose subscriptions it was shown to, with their
    addresses, as far as they have answered."""
    alike: int = 1
    """Events that this node remembers with the id that was asked for; this is the newest one."""
    others: tuple[str, ...] = ()
    """Identities of the rest, the newest first; not all if they are many."""

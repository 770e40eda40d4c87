"""The wire vocabulary of the attribute trees (C5 to C9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated
from zlib import crc32

import msgspec

from matching import Interval
from overlay.chord.messages import Cluster
from overlay.client import LEVELS, Event
from overlay.links.statements import Token
from overlay.machine import (
    Duration,
    Key,
    Message,
    NodeId,
    Peer,
    Region,
    Uint53,
    Uint63,
    Version,
    WallClock,
)
from overlay.upper_tree.host_load import HostLoad, ServedLoad
from overlay.upper_tree.summary import Summary

EVENT_TREE = "$event"
"""The reserved tree of conjunctions without a pivot: every event visits it, and no selector can
spell its name (C9)."""


OTHERS_MOST = 16
"""Nodes that one names as possible hosts. By the time until a tree has enough hosts in a large
overlay (bench/experiments/scaling)."""

Processors = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
"""Number of processors of the node's machine that the node may use."""


def value_in(event: Event, attribute: str) -> bool | int | float | str | None:
    """The event's value in an attribute's tree; in the `$event` tree every event has one."""
    return True if attribute == EVENT_TREE else event.attributes.get(attribute)


class Confined(msgspec.Struct, frozen=True, array_like=True):
    """A registration was narrowed by the policy of this tenant ("": of none, its subscriber is a
    leaf); `asked` is what its subscriber asked for. Written by owners, for hosts, which give such
    nodes nothing to pass on, and for whoever owns the tree after them."""

    tenant: Annotated[str, msgspec.Meta(max_length=64)]
    asked: str


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """One conjunction's (or, for counting, one constraint's) place in one tree."""

    id: str  # subscription/conjunction; unique within a tree
    attribute: str  # the tree
    subscriber: Peer
    selector: str  # what the host matches: a text that compiles to this conjunction
    interval: Interval  # where in the value space it lies
    latency_level: Annotated[int, msgspec.Meta(ge=0, le=LEVELS)] = 0  # 1 is most urgent; 0: none
    confined: Confined | None = None  # None: of a node of the operators
    token: Token = b""  # by which its subscriber knows deliveries (delivery_tokens.py)

    @property
    def life(self) -> int:
        """The incarnation of the subscriber's process that made it, by its id
        (``node.incarnation.number/conjunction``); 0 if the id is another's."""
        first, _, rest = self.id.removeprefix(self.subscriber.id).rpartition(".")
        number = first.removeprefix(".")
        is_number = rest and number.isascii() and number.isdigit() and len(number) < 16
        return int(number) if is_number else 0

    @property
    def asked(self) -> str:
        """The selector that the subscriber asked for; `selector` is the part of it that its tenant
        may see."""
        return self.selector if self.confined is None else self.confined.asked


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One virtual node of a partition map: an interval and its replicas, the nodes that serve it,
    each with all of its registrations (C6)."""

    interval: Interval
    hosts: tuple[Peer, ...]


class Location(msgspec.Struct, frozen=True, array_like=True):
    """The hosts of one virtual node, at some version of its tree's map."""

    attribute: str
    version: Version
    interval: Interval
    hosts: tuple[Peer, ...]


# --- subscriber and owner (the primary of the cluster that owns the attribute) ---


class Register(Message, frozen=True):
    """Take these registrations; planted if the tree is not there. `incarnation` is the
    subscriber's: its leases are renewed under it. `final`: do not send them elsewhere."""

    incarnation: Uint53
    registrations: tuple[Registration, ...]
    final: bool = False


class ComeAgain(Message, frozen=True):
    """A message of the kind `what` was not taken, since it exceeds what a leaf may ask for
    (`reason`); the leaf may ask again after this many seconds. Of a `Register` these registrations
    (attribute, id) were not taken; the others were."""

    capability = "quotas"

    what: Annotated[str, msgspec.Meta(max_length=64)]
    seconds: Duration
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""
    registrations: tuple[tuple[str, str], ...] = ()


class BetterPivots(Message, frozen=True):
    """Registrations that the owner did not take: (id, attribute that was named, an attribute with
    far less traffic), and the popularity of the attributes at the owner (C9)."""

    registrations: tuple[tuple[str, str, str], ...]
    popularity: tuple[tuple[str, Uint53], ...]


class Registered(Message, frozen=True):
    """From this map version on every matching event reaches these registrations."""

    attribute: str
    version: Version
    ids: tuple[str, ...]


class Unregister(Message, frozen=True):
    """End these registrations of the sender."""

    attribute: str
    ids: tuple[str, ...]


class Unregistered(Message, frozen=True):
    """Confirms that the registrations are gone, or never existed."""

    attribute: str
    ids: tuple[str, ...]


class Renew(Message, frozen=True):
    """Leases of one subscriber with one cluster: per tree how many registrations it claims to
    have and the CRC-32 of their sorted ids. `unsure`: trees in which one is under way or ending.
    In other trees it has nothing. Answered by `Renewed` with the same number, behind `RenewRefused`
    and `NotOwner` where these are due."""

    incarnation: Uint53
    trees: tuple[tuple[str, Uint53, Uint53], ...]
    unsure: tuple[str, ...] = ()
    number: Uint53 = 0


class Renewed(Message, frozen=True):
    """The leases of a renewal run on; all that it claimed is there, and the sender decides about
    all the trees that it named, except the trees `unconfirmed`. `replaced`: trees of them that have
    lost a host of late, or whose hosts of before the sender does not know, and how many seconds
    ago that was last."""

    number: Uint53
    unconfirmed: tuple[str, ...] = ()
    replaced: tuple[tuple[str, Duration], ...] = ()


def ids_digest(ids: Iterable[str]) -> int:
    """CRC-32 of the sorted ids: tells two sets of registrations apart, not forgery-proof."""
    return crc32("\n".join(sorted(ids)).encode())


class RenewRefused(Message, frozen=True):
    """These trees' registrations are not what the subscriber claimed: register them again."""

    trees: tuple[str, ...]


class Adopt(Message, frozen=True):
    """From an owner of a ring that ends to the owner in the other ring: registrations to take, each
    with its subscriber's incarnation."""

    registrations: tuple[Registration, ...]
    incarnations: tuple[Uint53, ...]


class Adopted(Message, frozen=True):
    """As `Registered`, to the owner of a merging ring that handed the registrations over."""

    attribute: str
    ids: tuple[str, ...]


class AdoptRefused(Message, frozen=True):
    """As `NotOwner`, to the owner of a merging ring that handed the registrations over."""

    attributes: tuple[str, ...]
    cluster: Cluster | None


class NotOwner(Message, frozen=True):
    """The sender does not own these attributes. `cluster` may."""

    attributes: tuple[str, ...]
    cluster: Cluster | None


# --- publisher and owner ---


class AskTree(Message, frozen=True):
    """Asks where these attributes' trees are, and for their summaries. `cached`: per attribute the
    digest of the summary that the asker has (0: none; empty: none of any). The answer repeats
    `number`."""

    attributes: tuple[str, ...]
    number: Uint53 = 0
    cached: tuple[Uint63, ...] = ()


class TreeSummary(msgspec.Struct, frozen=True, array_like=True):
    """The summary of the events that a tree's registrations may match. None: the asker already has
    the summary with this digest."""

    attribute: str
    digest: Uint63
    summary: Summary | None


class TreeAnswer(Message, frozen=True):
    """Locations of the trees that exist; those in `absent` have no subscribers. That, and the
    summaries, may be cached for `term` seconds, and are invalidated if they end before (C5)."""

    entries: tuple[Location, ...]
    absent: tuple[str, ...]
    term: Duration
    number: Uint53 = 0
    summaries: tuple[TreeSummary, ...] = ()
    epoch: Uint53 = 0  # of the cluster, by which an answer of a former owner is known


class Invalidate(Message, frozen=True):
    """Drop the cached summaries (or *no subscribers*) of these trees: each has a subscriber now
    that it does not admit. Answered before the SUBACK is given. `number`: of the last copy that the
    owner granted any host."""

    attributes: tuple[str, ...]
    number: Uint53 = 0
    epoch: Uint53 = 0  # of the cluster: answers under an older one are stale, too


class Invalidated(Message, frozen=True):
    """Dropped, as the `Invalidate` with this number asked."""

    attributes: tuple[str, ...]
    number: Uint53 = 0


class AskCached(Message, frozen=True):
    """From the new primary of `cluster` to a cache holder of its arc: which summaries of its trees
    are cached? From now on the holder uses no answer of an older epoch."""

    cluster: Cluster


class CacheReport(Message, frozen=True):
    """The valid copies that the sender has of summaries of that arc: trees with digests, 0 for *no
    subscribers*. In as many messages as it takes; `last` in the last one."""

    key: Key
    epoch: Uint53
    copies: tuple[tuple[str, Uint63], ...]
    last: bool


# --- owner and hosts ---


class Assign(Message, frozen=True):
    """From `version` on the receiver serves exactly these intervals of the tree (none: it leaves
    it).

    `size` and `known` are its slice of the map: the virtual nodes on its paths from the root of the
    midpoint tree, with their children, by index (C7).
    """

    attribute: str
    version: Version
    intervals: tuple[Interval, ...] = ()
    size: Uint53 = 0
    known: tuple[tuple[Uint53, Entry], ...] = ()
    token: Token = b""  # by which the tree's hosts know visits that they pass on to each other


class TreesHosted(Message, frozen=True):
    """From the primary of the arc (start, key] to a node that it had lost: the trees of the arc
    that the node may host. Others that it has were moved meanwhile."""

    start: Key
    key: Key
    epoch: Uint53
    attributes: tuple[str, ...]
    ring: str = ""


class StillHosting(Message, frozen=True):
    """From a host to the primary that leads the arc of a lost owner: the trees of the arc that it
    serves. Answered by `TreesHosted`. `epoch`: the host obeys no lower one."""

    key: Key
    epoch: Uint53 = 0


class AskToHost(Message, frozen=True):
    """From the primary of the cluster `key`, whose trees ask for more than its members can serve:
    will the receiver host virtual nodes? `region`: where a host is needed ("": anywhere)."""

    key: Key
    ring: str
    region: Region = ""


class HostAnswer(Message, frozen=True):
    """You may, or not (now); others, who serve in no cluster, perhaps."""

    key: Key
    willing: bool
    others: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=OTHERS_MOST)] = ()
    processors: Processors = 1


class StopsHosting(Message, frozen=True):
    """From a host to the owner of trees that it serves: the host leaves, and the trees are to
    move."""


class Assigned(Message, frozen=True):
    """Done: from now on an event for any other interval is passed on or answered *moved*."""

    attribute: str
    version: Version


class OrdersRefused(Message, frozen=True):
    """I have not followed what you sent about these trees, since by the ring another node owns
    them. If you own them, send me everything again."""

    capability = "refusals"

    attributes: tuple[str, ...]


class Install(Message, frozen=True):
    """Registrations for the intervals that the receiver serves or will serve. `epoch` is the
    owner's: a host that heard of a higher one ignores it."""

    attribute: str
    epoch: Uint53
    registrations: tuple[Registration, ...]


class Installed(Message, frozen=True):
    """To an owner: these registrations are matched from now on."""

    attribute: str
    ids: tuple[str, ...]


class Uninstall(Message, frozen=True):
    """Forget these registrations; `epoch` as in `Install`."""

    attribute: str
    epoch: Uint53
    ids: tuple[str, ...]


class ServingBeat(Message, frozen=True):
    """From the owner of the arc (start, key]: the receiver may serve its trees of the arc for
    `term` seconds, the term of a serving lease, counted from when it answered beat number `heard`
    (0: none yet). See owner/lease_grants.py and host/orphaned_trees.py."""

    start: Key
    key: Key
    epoch: Uint53
    number: Uint53
    heard: Uint53
    term: Duration


class ServingReply(Message, frozen=True):
    """Confirms the beat with this number. `load`: the load of this owner's virtual nodes on the
    host; None: negligible. It may arrive before messages sent earlier, and confirms none of them.
    The lease that follows is counted from when it was sent."""

    overtakes = True

    key: Key
    number: Uint53
    load: ServedLoad | None = None
    processors: Processors = 1


# --- events ---


class SentBefore(msgspec.Struct, frozen=True, array_like=True):
    """Events of the same publisher that left lately, or in the same turn, for trees at another
    host, or ("") wait until these trees are found (visits.py). Numbers are the events'
    sequence numbers."""

    host: NodeId
    trees: tuple[str, ...]
    first: Uint53
    last: Uint53
    age: Uint53  # milliseconds since the last of them left, or the search began


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The request of a host that gathers a value's shards (host/shard_gatherings.py) to another
    host: match events by these shards alone, and answer the gatherer, with its number."""

    gatherer: Peer
    number: Uint53
    shards: tuple[Interval, ...]


class Visit(Message, frozen=True):
    """Events that visit the trees of `attributes` at this host, or on their way through it, in the
    order of their publication. `apart`: which events (places in `events`) visit what other trees
    instead. In counting routing an event is there once for each of its trees. `before`: what left
    for other hosts. `part`: from a host that gathers the shards of a value, which all events have
    in the one tree; None: from the publisher, or passed on for it. `tokens`: from a host that
    passes it on, of the trees of `attributes` and `apart`, in this order, as far as it knows
    them."""

    origin: Peer
    hop: Uint53  # messages from the publisher to here
    attributes: tuple[str, ...]
    events: Annotated[tuple[Event, ...], msgspec.Meta(min_length=1)]
    apart: tuple[tuple[tuple[str, ...], tuple[Uint53, ...]], ...] = ()
    before: tuple[SentBefore, ...] = ()
    part: Part | None = None
    tokens: tuple[Token, ...] = ()

    def data_units(self) -> int:
        """One per event, for the count of data-plane messages."""
        return len(self.events)


class PartTaken(Message, frozen=True):
    """To the gatherer: of the part with this number, these events are matched by the shards
    `taken`; the sender does not serve those in `moved`, and knows no host of them."""

    number: Uint53
    sequences: tuple[Uint53, ...]
    taken: tuple[Interval, ...] = ()
    moved: tuple[Interval, ...] = ()


class Accepted(Message, frozen=True):
    """To the publisher: the trees have taken these events. Sequences are the publisher's. `pace`:
    how much this host has to do (P7); None: nothing waits."""

    incarnation: Uint53
    taken: tuple[tuple[tuple[str, ...], tuple[Uint53, ...]], ...]  # attributes, sequences
    locations: tuple[Location, ...]
    pace: HostLoad | None = None


class TreeMoved(Message, frozen=True):
    """To the publisher: the sender does not serve this tree; it has to be looked for again
    (C10)."""

    incarnation: Uint53
    attribute: str
    sequences: tuple[Uint53, ...]


class EventsRefused(Message, frozen=True):
    """To the publisher: its tenant may not publish these events, by the policy with this version
    (0: there is none), or for another `reason`, a quota."""

    capability = "documents"

    incarnation: Uint53
    sequences: tuple[Uint53, ...]
    policy: Uint53
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class DelegateShare(msgspec.Struct, frozen=True, array_like=True):
    """Interested nodes that one virtual node found, for a delegate to pass an event on to (C11)."""

    attribute: str
    interval: Interval
    peers: tuple[Peer, ...]
    previous: tuple[Uint53, ...] = ()  # of each peer, as in `Deliver`; empty: 0
    lives: tuple[Uint53, ...] = ()  # as `Deliver.life`; empty: 0
    tokens: tuple[Token, ...] = ()  # as `Deliver.token`; empty: none


class Deliver(Message, frozen=True):
    """From a host to an interested node, once per node and event (pivot), or once per node, event
    and attribute, with the registrations that matched, for the node to count (counting, C8).
    `onward`: per event to whom else the receiver, a delegate, has to bring it (C11; empty: to no
    other node, for all events). A delegate names the `host` whose work it does; None is the sender.
    `apart`: which events (places in `events`) came through what other trees, or parts of them.
    Events are in the order of their publication; `before` as in the visit. `through`: up to this
    number all events that visited the host have been matched and sent (0: not known).
    `previous`: per event the number of the one before for this node, if that went another way
    (`LastSent`), else 0; empty: 0 for all.
    `found`: per event the id of a registration of the receiver that matches it, without the
    receiver's id at its front, "" if none is named; empty: for no event. (Pivot routing, where the
    receiver has registered much.)
    `life`: the incarnation of the receiver whose registrations matched, the newest that the host
    knows; 0: not known. `held`: milliseconds for which the host has held it since it matched.
    `passing`: the receiver is a relay, which passes it on and shows it to none of its own.
    `token`: the receiver's own, which its registrations have."""

    attribute: str
    interval: Interval
    hop: Uint53
    events: tuple[Event, ...]
    registrations: tuple[tuple[str, ...], ...] = ()  # per event; only in counting routing
    onward: tuple[tuple[DelegateShare, ...], ...] = ()
    host: Peer | None = None
    apart: tuple[tuple[str, Interval, tuple[Uint53, ...]], ...] = ()
    before: tuple[SentBefore, ...] = ()
    through: Uint53 = 0
    previous: tuple[Uint53, ...] = ()
    found: tuple[str, ...] = ()
    life: Uint53 = 0
    held: Uint53 = 0
    passing: bool = False
    token: Token = b""

    def data_units(self) -> int:
        """One per event, for the count of data-plane messages."""
        return len(self.events)


class Undelivered(Message, frozen=True):
    """From a delegate or relay to the host: it cannot reach `peer`. The host sends the events
    itself (C11). `life` and `token` as in `Deliver`: the peer's."""

    attribute: str
    interval: Interval
    hop: Uint53  # messages from the publisher to here
    events: tuple[Event, ...]
    peer: Peer
    life: Uint53 = 0
    token: Token = b""

    def data_units(self) -> int:
        """One per event, for the count of data-plane messages."""
        return len(self.events)


class DeliveriesGivenUp(Message, frozen=True):
    """To an interested node: the sender gave up `count` deliveries to it, for `reason` in words.
    The first and the last of them by identity, and when they were published (`Event.time`).
    `lapsed`: the node's registrations ended at the sender, so that events were not even matched
    (`count` may be 0) since `lapsed_for` seconds before this was sent; 0: since an unknown time.
    `attributes`: those that the given up events had, and those of the trees whose registrations
    ended; empty: not known."""

    count: Uint53
    first: str
    last: str
    since: WallClock
    until: WallClock
    reason: str
    lapsed: bool = False
    lapsed_for: Duration = 0.0
    attributes: tuple[str, ...] = ()


class NoticeHandedOver(Message, frozen=True):
    """From a node that leaves: notify `peer`, which it cannot reach, of the deliveries that it gave
    up."""

    peer: Peer
    notice: DeliveriesGivenUp

    def data_units(self) -> int:
        """One: the node that leaves waits until it has arrived."""
        return 1

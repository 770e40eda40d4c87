"""Every number that a user may set, with where its default comes from.

One group per machine. The YAML file of a node has the same groups and names; an unknown name or a
wrong type is refused (canopy/wire/config). Times are seconds, sizes bytes unless said otherwise.
The text below a setting is what `canopy config keys` and the reference say (Markdown, links from
the repository's root); the comment behind it says where the default comes from. *guess* means that
it was never measured. What would measure them: the timeouts of links and elections, the recovery
trials (bench/recovery) on slow and lossy networks; periods and sizes of views, the
share of walks that hit (figures 5 and 6, bench/experiments/figures); bounds of caches, their
evictions per second in a large overlay (`bench`). Numbers that are no settings stand in the
``constants`` of each layer.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Wait = Annotated[float, Meta(ge=0, le=1)]  # seconds
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=4_096, le=1 << 34)]


class SettingsGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that one part of the overlay reads; unknown names are refused when they are
    decoded."""


class LinkSettings(SettingsGroup, frozen=True):
    """[Sessions between nodes](docs/design/links.md)."""

    dead_after: Seconds = 6.0  # six heartbeats; guess
    """Seconds of silence after which a peer counts as dead. Raise it where nodes pause or networks
    stall for longer."""
    heartbeat: Seconds = 1.0  # guess
    """Seconds after which a quiet, watched link asks whether the peer is there: several within
    `dead_after`."""
    connect_timeout: Seconds = 5.0  # guess
    """Seconds for a connection and its handshake."""
    retry_first: Seconds = 0.2
    """Seconds until the first redial; doubles each time."""
    retry_most: Seconds = 10.0  # guess
    """Most seconds between two dials."""
    idle_close: Seconds = 60.0  # guess
    """Seconds after which the connection of an unused link is closed; the session stays."""
    retransmit_after: Seconds = 3.0  # the simulator's lossy links need it
    """Most seconds until a peer that has not acknowledged a batch is asked what it has; doubles
    each time; less where measured round trips are short."""
    compress: bool = False
    """Compress batches over 1 KiB with zlib: less traffic for more processor time."""
    queue: Bytes = 64 * 1024 * 1024
    """Most bytes that wait for credit; further ones are dropped and counted. The limit is lower,
    down to `queue_floor`, where little is written while a connection is lost
    ([backlog](docs/design/links.md#t3-backlog))."""
    queue_floor: Bytes = 32 * 1024 * 1024  # as `tree.pending_bytes`, so that no visit is dropped
    """Least value of the limit of `queue`."""
    queue_decay: Seconds = 60.0
    """Seconds in which half of the room above the need is given up."""
    window: Bytes = 4 * 1024 * 1024  # guess
    """Bytes of credit that a receiver grants: more than bandwidth times round trip."""
    protocol: Annotated[int, Meta(ge=0, le=1_000)] = 0
    """The newest version of the [wire protocol](docs/reference/wire.md#versions) that this node
    offers; 0: the newest that it speaks. Hold a new version back until all nodes have the new
    release and none may have to go back ([upgrading](docs/guide/operate.md#upgrading))."""
    frame: Bytes = 32 * 1024
    """Bytes at which a batch is cut; its receiver handles it in one turn."""


class ViewSettings(SettingsGroup, frozen=True):
    """[The random graph and the access points](docs/design/lower-random.md)."""

    size: Count = 20  # CBDLO 5.4: view 20
    """Neighbours in the view: how many nodes a node keeps in touch with."""
    period: Seconds = 2.0  # guess: slow enough to be cheap, fast enough for a demo
    """Seconds between two exchanges of neighbours."""
    shuffle: Count = 8  # Cyclon's paper uses 3 to 8
    """Entries per exchange."""
    seed_retry_most: Seconds = 30.0
    """Most seconds between two dials of an unreachable peer of `peers`."""
    access_points: Count = 100  # CBDLO 5.3: 100
    """Attributes in the table of access points."""
    per_attribute: Count = 3  # guess
    """Access points kept per attribute."""
    gossiped: Count = 20  # guess
    """Access points per exchange."""
    access_point_age: Count = 30  # guess
    """Exchanges after which an unconfirmed access point is dropped."""
    sampling: Literal["auto", "shuffle", "ranked"] = "auto"  # Cyclon; Basalt. Without keys ids mean
    # little, since anybody may have many (docs/lab/security.md)
    """The way views are filled: `shuffle`, with the neighbours of exchanges; `ranked`, by secret
    ranks, so that a node that pushes more often does not get a larger share; `auto`: ranked where
    nodes have keys ([security](docs/design/security.md#members-that-lie))."""


class WalkSettings(SettingsGroup, frozen=True):
    """[Random walks](docs/design/lower-random.md#c3-random-walk-with-a-trace)."""

    hops: Count = 10  # CBDLO 5.3: at most 10 hops
    """Hop limit of a walk."""
    trace: Count = 10  # the paper leaves k open, so: as long as the walk
    """Nodes visited last, which a walk avoids."""
    first: bool = True  # docs/lab/walks.md
    """Walk for a tree before asking its owner, where that is known
    ([why](docs/design/lower-random.md#walk-first-then-the-ring)); counting routing always does."""
    timeout: Seconds = 3.0  # guess
    """Seconds after which a walk without an answer is a miss."""
    confirm: Literal["auto", "always", "never"] = "auto"  # a walk may find a host that lies
    """Whether the acceptance of an event by a host counts only once the tree's owner has named that
    host: `always`, `never`; `auto`: where nodes have keys
    ([security](docs/design/security.md#members-that-lie))."""


class RingSettings(SettingsGroup, frozen=True):
    """[Chord over clusters](docs/design/chord-ring.md)."""

    found_after: Seconds = 5.0  # guess
    """Seconds without an answer of any peer after which a node may found a ring."""
    successors: Count = 4  # Zave: longer than the number of simultaneous failures; guess
    """Entries in the successor list: more than fail at once."""
    stabilise: Seconds = 1.0  # guess
    """Seconds between two stabilisations."""
    fix_fingers: Seconds = 5.0  # guess
    """Seconds between two finger lookups."""
    lookup_timeout: Seconds = 1.0  # by then a cluster whose primary fell silent looks for another
    # (election.suspect_after)
    """Seconds until a lookup takes another path."""
    known_clusters: Count = 256  # guess
    """Cluster descriptions that are cached."""


class ClusterSettings(SettingsGroup, frozen=True):
    """[Members of clusters, splitting and
    merging](docs/design/clusters.md#p1-roles-and-the-replicated-log)."""

    serve: bool = True
    """This node may be recruited, as a member of a cluster or as a host of virtual nodes. Turn it
    off for one that is weak, or comes and goes."""
    size: Annotated[int, Meta(ge=1, le=64)] = 5
    """Members of a cluster: with 5 two may fail at once and the log still has a majority. More are
    recruited where its trees need hosts."""
    split_trees: Count = 1_000  # as few clusters as the load allows, since trees of one cluster can
    # share hosts; guess
    """Attribute trees above which a cluster splits its arc."""
    split_registrations: Count = 20_000  # a simple threshold, as the one before
    """Registrations above which a cluster splits its arc."""
    split_load: Annotated[float, Meta(gt=0, le=1e6)] = 32.0  # one primary supervises them; guess
    """Number of hosts whose whole time the events of its trees take, above which a cluster
    splits."""
    commit: Literal["auto", "majority", "more"] = "auto"
    """The voters that need an entry of the log before it counts as stored: `majority`; `more`: with
    five voters four, so that one voter that [lies](docs/design/security.md#members-that-lie) loses
    nothing; `auto`: `more` where nodes have keys."""
    merge_below: Annotated[int, Meta(ge=0, le=64)] = 3  # with fewer than three voters the first
    # loss stops it; more than `size` is as much as `size`
    """Members below which a cluster that owns little and finds no recruits
    [merges](docs/design/clusters.md#merging-with-the-next-cluster) with the next one; 0: never."""
    merge_after: Seconds = 30.0  # restarted nodes are back by then; guess
    """Seconds for which a cluster has had too few members before it merges."""
    tail: Bytes = 32 * 1024 * 1024  # as a few whole states have; guess
    """Most bytes of log entries that a voter keeps in memory for members out of reach; beyond, they
    get the whole state. The limit is lower, down to `tail_floor`, where little is written
    meanwhile."""
    tail_floor: Bytes = 1024 * 1024  # eight messages of a log's copy; guess
    """Least value of the limit of `tail`."""
    tail_decay: Seconds = 60.0
    """Seconds in which half of the room above the need is given up."""
    recruit_period: Seconds = 0.5  # guess
    """Seconds between two checks for missing members."""
    recruit_timeout: Seconds = 3.0  # guess
    """Seconds that a recruit has for its answer."""


class ElectionSettings(SettingsGroup, frozen=True):
    """[Elections of primaries](docs/design/clusters.md#p4-election)."""

    suspect_after: Seconds = 1.0  # recovery shall take 1.5 s at most (docs/lab/recovery.md); votes,
    # HELLO and the first heartbeat take the rest
    """Least election timeout: seconds of silence after which a voter campaigns. Raise it where
    primaries change without having failed (`canopy ring`, incidents)."""
    suspect_most: Seconds = 8.0  # guess
    """Most election timeout, where measured round trips are long."""
    heartbeat: Seconds = 0.25  # guess
    """Seconds between two heartbeats of a primary to its voters: four within `suspect_after`."""
    fork_after: Seconds = 2.0  # everything shall flow within five seconds (docs/lab/recovery.md)
    """Seconds without a primary after which a cluster continues without its majority
    ([P5](docs/design/clusters.md#p5-a-lost-cluster)); longer where round trips are long."""
    rank_wait: Seconds = 0.1  # some round trips; guess
    """Seconds by which each rank of candidates waits longer."""
    grant_timeout: Seconds = 0.5  # guess
    """Seconds after which a campaign without a majority ends."""


class TreeSettings(SettingsGroup, frozen=True):
    """[Attribute trees](docs/design/attribute-trees.md), [delivery](docs/design/delivery.md) and
    [timeliness](docs/design/timeliness.md)."""

    order_hold: Wait = 0.05  # two hops of up to 20 ms; guess
    """Seconds (0 to 1) that an event waits at a subscriber's node for earlier ones of its publisher
    that may come over another host; 0: never."""
    sign: bool | Literal["lenient"] = False
    """In an overlay with keys: sign the node's events, and take only signed ones; `lenient`: take
    unsigned ones as well, while nodes are switched over ([what it protects
    against](docs/design/security.md#signed-events))."""
    history: Count = 2_000  # guess
    """Events that `canopy why` can explain, the last ones that a node published or received. Each
    takes as much memory as the event, all of them 16 MiB at most."""
    held: Bytes = 64 * 1024 * 1024  # as much as may wait on one link; guess
    """Bytes of deliveries that a host holds for nodes out of reach; beyond, the oldest are dropped
    and reported to the nodes. Raise it where a node that is away for less than `lease` loses
    events."""
    held_events: Count = 100_000  # 100 MB of small events; guess
    """Deliveries that a host holds for nodes out of reach."""
    lease: Seconds = 60.0
    """Seconds after which a registration that is not renewed ends: how long deliveries for a node
    out of reach are held, and how long a dead node costs its hosts work."""
    pending: Count = 20_000
    """(event, tree) pairs of a publishing node that are not accepted yet; beyond, and beyond what
    hosts accept in a quarter of a second, publishing programs wait."""
    pending_bytes: Bytes = 32 * 1024 * 1024  # half of `links.queue`, so that no visit is dropped
    """Bytes of events of a publishing node that are not accepted yet."""
    routing: Literal["pivot", "counting"] = "pivot"
    """`pivot` (C9: an event goes once to each interested node) or `counting` (C8, as in the CBDLO
    paper, for comparison); the same on all nodes. Flag `--routing`."""
    delegates: Literal["auto", "members", "voters"] = "auto"
    """The nodes that forward copies where an event has more recipients than `fan_out`: `members`,
    any that receives the event itself; `voters`, since a member may
    [lie](docs/design/security.md#members-that-lie) and drop them; `auto`: `voters` where nodes have
    keys."""
    fan_out: Count = 16
    """Copies of one event that a node sends itself; more recipients get it through delegates (not
    in counting routing). Raise it where latency matters more than the load of the busiest node."""
    replicas: Annotated[int, Meta(ge=1, le=16)] = 3  # with a fifth of the nodes dead at once one
    # virtual node in 125 has lost all three
    """Hosts of each virtual node, where there are members with room. More of them survive more
    failures at once, and each costs memory for every registration."""
    priority: bool = True
    """A host that is behind matches the most urgent events first (P6); false: the oldest first."""
    ageing: Seconds = 0.1  # four of these are the most that an event is overtaken by, less than any
    # publisher's time-out (publisher/replicas.py), so that it is not sent again elsewhere meanwhile
    """Seconds of waiting that count as one latency level: less makes less urgent events wait less
    long."""
    dedupe: Count = 65_536  # guess
    """Event identities that a subscriber's node remembers against duplicates: more than arrive
    within some minutes."""
    summary_term: Seconds = 10.0  # guess
    """Seconds for which a publisher may use a summary, also an empty one (*no subscribers*). Longer
    saves questions to owners; a new subscription may wait as long where a publisher is out of
    reach."""
    summary_visits: Count = 4  # what a question costs, and as much again (docs/lab/walks.md)
    """Events for a tree within a term after which a publisher asks for its summary; 1: with the
    first event. More saves questions to owners and costs visits."""
    summary_boxes: Count = 128  # with 64 an event of 6,000 subscriptions' load makes a twentieth
    # more visits (docs/lab/routing.md)
    """Boxes in one tree's summary: more let publishers skip more visits, and take more bytes."""
    locations: Count = 4_096  # guess
    """Trees whose virtual nodes' locations a publisher caches: more than its events have
    attributes. Trees that events wait for are kept beyond it."""
    retry: Seconds = 3.0
    """Seconds after which a visit or registration without an answer is repeated."""
    choice: Literal["time", "hash"] = "time"
    """The choice of a replica: the one that is predicted to finish first (P7, `time`), or always
    the same one (`hash`)."""
    placement: Literal["members", "subscribers"] = "members"  # C6, owner/subscriber_placement.py
    """The nodes that host a tree: `members` of the owning cluster, and other nodes where these are
    busy; or, as in the CBDLO paper, the `subscribers` of the attribute, with a virtual node for
    each end of a subscription's interval. `subscribers` is for comparison, and for overlays in
    which nodes work for their own subscriptions only: an event visits as many hosts as it has
    attributes, maps grow with the subscriptions, and load is not balanced. The same on all
    nodes."""
    host_entries: Count = 20_000  # as many as a cluster has before it splits: a visit at one more
    # host costs more than matching beside so many (docs/design/attribute-trees.md)
    """Registrations that one host has room for; beyond, virtual nodes move to other members of the
    cluster. A host that stands in for a silent one may exceed it for that time."""
    split_at: Count = 20_000  # a host's worth
    """Registrations above which a virtual node is cut."""
    serving_lease: Seconds = 4.0  # longer than an election takes, less than links.dead_after, after
    # which a silent host is replaced
    """Seconds for which a host serves without a heartbeat of its owner."""
    serving_most: Seconds = 20.0  # a lost frame or two delay a link by as much; a new primary waits
    # this long for lost hosts; guess
    """Most seconds of a serving lease on a slow network."""
    count_expiry: Seconds = 300.0  # longer than trees out of reach keep an event waiting
    """Seconds after which a half-counted event is forgotten (counting)."""


class Settings(SettingsGroup, frozen=True):
    """All settings of the machines, by group."""

    links: LinkSettings = LinkSettings()
    view: ViewSettings = ViewSettings()
    walk: WalkSettings = WalkSettings()
    ring: RingSettings = RingSettings()
    cluster: ClusterSettings = ClusterSettings()
    election: ElectionSettings = ElectionSettings()
    tree: TreeSettings = TreeSettings()

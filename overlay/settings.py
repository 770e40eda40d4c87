"""Every number that a user may set, with where its default comes from.

One group per machine. The YAML file of a node has the same groups and names; an unknown name or a
wrong type is refused (canopy/wire/config). Times are seconds, sizes bytes unless said otherwise.
*guess* means that the default was never measured. What would measure them: the timeouts of links
and elections, the recovery trials (bench/experiments/recovery) on slow and lossy networks; periods
and sizes of views, the share of walks that hit (figures 5 and 6, bench/experiments/figures); bounds
of caches, their evictions per second in a large overlay (`bench`). Numbers that are no settings
stand in the ``constants`` of each layer.
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
    """Sessions between two nodes (M3, M5)."""

    heartbeat: Seconds = 1.0  # a quiet link that is watched asks this often; guess
    dead_after: Seconds = 6.0  # silence that counts as death: six heartbeats; guess
    connect_timeout: Seconds = 5.0  # guess
    retry_first: Seconds = 0.2  # first redial; doubles …
    retry_most: Seconds = 10.0  # … up to this; guess
    idle_close: Seconds = 60.0  # a link that was idle for so long is suspended; guess
    retransmit_after: Seconds = 3.0  # unacknowledged for so long: the peer is asked what it has;
    # doubles; less where round trips are measured to be short. What it lacks is sent again: the
    # simulator's lossy links need that
    frame: Bytes = 32 * 1024  # a batch is cut here; its receiver handles it in one turn
    window: Bytes = 4 * 1024 * 1024  # credit a receiver grants; guess
    queue: Bytes = 64 * 1024 * 1024  # waiting for credit, at most; what is beyond is dropped and
    # counted. Less where less is written while a connection is lost or silent (T3) …
    queue_floor: Bytes = 32 * 1024 * 1024  # … but this always: what a publisher keeps for all its
    # trees (`tree.pending_bytes`), so that no visit is dropped
    queue_decay: Seconds = 60.0  # by which half of what is above the need is given up (T3)
    compress: bool = False  # batches over 1 KiB with zlib
    protocol: Annotated[int, Meta(ge=0, le=1_000)] = 0  # the newest version of the wire protocol
    # that is offered (overlay/links/messages.py); 0: the newest that this code speaks


class ViewSettings(SettingsGroup, frozen=True):
    """The random graph (C1) and the access points (C2)."""

    size: Count = 20  # CBDLO 5.4: view 20
    shuffle: Count = 8  # entries per exchange; Cyclon's paper uses 3 to 8
    period: Seconds = 2.0  # guess: slow enough to be cheap, fast enough for a demo
    seed_retry_most: Seconds = 30.0  # seeds are redialled for ever, at most this far apart
    access_points: Count = 100  # attributes in the table; CBDLO 5.3: 100
    per_attribute: Count = 3  # access points kept per attribute; guess
    gossiped: Count = 20  # access points per shuffle; guess
    access_point_age: Count = 30  # shuffles after which an unconfirmed entry leaves; guess
    sampling: Literal["auto", "shuffle", "ranked"] = "auto"  # how views are filled: as exchanges
    # bring neighbours (Cyclon), or by secret ranks, so that who pushes most has no more of a view
    # (Basalt). auto: ranked where nodes have keys, since ids mean little where anybody may have
    # many (docs/lab/security.md)


class WalkSettings(SettingsGroup, frozen=True):
    """Random walks (CRAWL; C3, C4, C10)."""

    hops: Count = 10  # CBDLO 5.3: at most 10 hops
    trace: Count = 10  # the last k nodes; the paper leaves k open, so: as long as the walk
    first: bool = True  # walk before an owner that is known is asked (docs/lab/walks.md); counting
    # routing does so in any case
    timeout: Seconds = 3.0  # a walk not heard of for so long is a miss; guess
    confirm: Literal["auto", "always", "never"] = "auto"  # that a host has accepted an event counts
    # once the tree's owner has named that host, since a walk may find one that lies. auto: where
    # nodes have keys (docs/design/security.md)


class RingSettings(SettingsGroup, frozen=True):
    """The ring of clusters: pointers, lookups, founding, splitting (P2,
    docs/design/chord-ring.md)."""

    successors: Count = 4  # Zave: longer than the number of simultaneous failures; guess
    stabilise: Seconds = 1.0  # guess
    fix_fingers: Seconds = 5.0  # guess
    lookup_timeout: Seconds = 1.0  # then asked again another way: by then a cluster whose primary
    # fell silent looks for another (election.suspect_after)
    found_after: Seconds = 5.0  # no peer answered for so long: found a ring
    # (docs/design/chord-ring.md); guess
    known_clusters: Count = 256  # cached descriptions; guess


class ClusterSettings(SettingsGroup, frozen=True):
    """Sizes of clusters, and when one splits (P1)."""

    serve: bool = True  # this node may be recruited, as a member of a cluster or as a host of trees
    size: Annotated[int, Meta(ge=1, le=64)] = 5  # members (docs/design/clusters.md, P1): two may
    # fail at once, and the log still has a majority
    commit: Literal["auto", "majority", "more"] = "auto"  # how many voters have to have an entry
    # before it counts as stored. more: with five, four, so that one voter that lies (says that it
    # has what it has not, votes twice) loses nothing that was acknowledged. auto: more where nodes
    # have keys (docs/design/security.md)
    split_trees: Count = 1_000  # a cluster that owns more attribute trees than this splits its arc:
    # as few clusters as the load allows, since trees of one cluster can share hosts; guess
    split_registrations: Count = 20_000  # … or more registrations; both a simple threshold
    split_load: Annotated[float, Meta(gt=0, le=1e6)] = 32.0  # … or whose trees' events ask for the
    # time of more hosts, which one primary supervises; guess
    merge_below: Annotated[int, Meta(ge=0, le=64)] = 3  # a cluster with fewer members merges with
    # the next one, if it owns little: with fewer than three voters the first loss stops it (0: no
    # cluster does; more than `size` is as much as `size`)
    merge_after: Seconds = 30.0  # … when it has had too few for so long, and found none: nodes that
    # are started again are back by then; guess
    tail: Bytes = 32 * 1024 * 1024  # entries of the log that a voter keeps in memory, at most, for
    # standbys and brokers that were out of reach; beyond it they get the whole state. As much as
    # is written meanwhile (T3), and as a few whole states have; guess
    tail_floor: Bytes = 1024 * 1024  # … at least: eight messages of a log's copy; guess
    tail_decay: Seconds = 60.0  # by which half of what is above the need is given up (T3)
    recruit_period: Seconds = 0.5  # guess
    recruit_timeout: Seconds = 3.0  # a recruit that did not answer; guess


class ElectionSettings(SettingsGroup, frozen=True):
    """Elections of primaries, and when a cluster forks (P4, P5)."""

    heartbeat: Seconds = 0.25  # of a primary to its voters: four in `suspect_after`; guess
    suspect_after: Seconds = 1.0  # election timeout: silence that lets a voter campaign. Recovery
    # shall take 1.5 s at most (docs/lab/recovery.md); votes, HELLO and the first heartbeat take
    # the rest
    suspect_most: Seconds = 8.0  # election timeout where round trips are long; guess
    rank_wait: Seconds = 0.1  # by which each rank waits longer; some round trips; guess
    grant_timeout: Seconds = 0.5  # a campaign without a majority ends; guess
    fork_after: Seconds = 2.0  # a cluster without a primary for so long (longer where round trips
    # are long) goes on without its majority (P5): everything shall flow within five seconds
    # (docs/lab/recovery.md), of which agreeing and registering anew take the rest


class TreeSettings(SettingsGroup, frozen=True):
    """Attribute trees: routing, hosts, leases, admission (C5 to C10,
    docs/design/attribute-trees.md)."""

    routing: Literal["pivot", "counting"] = "pivot"  # C9 the default, C8 as the paper has it
    placement: Literal["members", "subscribers"] = "members"  # who hosts: the owning cluster, and
    # other nodes where it is busy; or, as the paper has it, the attribute's subscribers, with a
    # virtual node for each end of a subscription's interval (C6, owner/subscriber_placement.py)
    host_entries: Count = 20_000  # registrations in all virtual nodes that one host serves, before
    # some move to another member (C6, owner/placement.py): as many as a cluster has before it
    # splits. A visit at one more host costs more than matching beside so many
    # (docs/lab/performance.md)
    replicas: Annotated[int, Meta(ge=1, le=16)] = 3  # hosts of each virtual node, where members and
    # their rooms allow it: with a fifth of the nodes dead at once one virtual node in 125 has lost
    # all three, and each costs an install per registration
    split_at: Count = 20_000  # registrations in one virtual node before it is cut: a host's worth
    serving_lease: Seconds = 4.0  # how long a host may serve without hearing its owner (C6):
    # longer than an election takes (ElectionSettings), less than links.dead_after, after which a
    # silent host is replaced
    serving_most: Seconds = 20.0  # … on a slow network, where a lost frame or two delay a link by
    # so much; so long a new primary waits for lost hosts. Guess
    summary_term: Seconds = 10.0  # lease of a cached answer *no tree here*, or of a cached summary
    # (C5); guess
    summary_visits: Count = (
        4  # events for a tree within a term after which a publisher asks for its
    )
    # summary: what a question costs, and as much again (docs/lab/walks.md)
    summary_boxes: Count = 128  # of one tree's summary for publishers (C9): with 64 an event of
    # 6,000 subscriptions' load makes a twentieth more visits (docs/lab/routing.md)
    lease: Seconds = 60.0  # a registration that is not renewed for so long ends
    fan_out: Count = 16  # copies of an event that a node sends itself (C11); more recipients get it
    # through delegates, except in counting routing, which is as the paper has it
    delegates: Literal["auto", "members", "voters"] = "auto"  # who may be a delegate, which passes
    # copies on: any member that gets the event, or only those that may vote, since a member may lie
    # and drop them. auto: voters where nodes have keys (docs/design/security.md)
    retry: Seconds = 3.0  # a visit or registration without an answer is sent again
    locations: Count = 4_096  # cached virtual node locations; guess
    pending: Count = 20_000  # (event, tree) pairs that a publisher keeps until accepted; then
    # publishing clients wait
    pending_bytes: Bytes = 32 * 1024 * 1024  # … and bytes of events: half of what may wait on one
    # link (`links.queue`), so that no visit is dropped there; as much as may wait at one host
    held: Bytes = 64 * 1024 * 1024  # of deliveries that a host holds for nodes out of reach; what
    # is beyond is given up and reported: as much as may wait on one link; guess
    held_events: Count = 100_000  # … and so many deliveries: 100 MB of small events; guess
    dedupe: Count = 65_536  # identities of events seen, for duplicates; guess
    count_expiry: Seconds = 300.0  # a half-counted event (C8) is forgotten: longer than trees out
    # of reach keep an event waiting; `dedupe` bounds how many there are
    choice: Literal["time", "hash"] = "time"  # of replicas: who will be done first (P7), or always
    # the same one
    priority: bool = True  # a host that is behind matches the most urgent first (P6)
    ageing: Seconds = 0.1  # a waiting event is worth one latency level more after so long; four
    # of these are the most that it is overtaken by, less than any publisher's time-out
    # (publisher/replicas.py), so that the less urgent is not sent again elsewhere meanwhile
    order_hold: Wait = 0.05  # an event waits so long at an interested node for earlier ones of its
    # publisher that may come over another host; 0: never. More than ways over different hosts
    # differ by, where no host is behind: two hops of up to 20 ms; guess
    history: Count = 2_000  # events that `canopy why` can explain; guess
    sign: bool | Literal["lenient"] = False  # with keys: sign the events of this node, and take
    # only events that are signed; lenient: take unsigned ones as well, while nodes are changed over


class Settings(SettingsGroup, frozen=True):
    """All settings of the machines, by group."""

    links: LinkSettings = LinkSettings()
    view: ViewSettings = ViewSettings()
    walk: WalkSettings = WalkSettings()
    ring: RingSettings = RingSettings()
    cluster: ClusterSettings = ClusterSettings()
    election: ElectionSettings = ElectionSettings()
    tree: TreeSettings = TreeSettings()

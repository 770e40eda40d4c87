"""Whom a recovery trial hits, and what needs them.

Publisher and subscribers are clients of nodes that are in no cluster, so what is measured is the
recovery of the overlay and not the loss of a client's own node. All flows belong to the cluster
that is hit; hosts are given little room, so that the trees are spread over the match
brokers. What needs the lost are the flows whose trees they host. A primary or a standby of a full
cluster hosts nothing; there, and where a whole cluster is lost, it is *lookup* as well: an event,
published at the fault, of a tree that has a subscription and that its publisher does not know yet,
so the tree's owner has to be asked. Measured separately is *subscribe*: a new subscription of a new
tree, requested at the fault, and after its SUBACK an event for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from harness.recovery.verdict import PublishedEvent
from matching import Value
from overlay.chord.keys import attribute_key, in_arc
from overlay.info import ClusterInfo
from overlay.settings import ClusterSettings, Settings, TreeSettings

KILLS: Final = ("primary", "standby", "broker", "cluster")

CUTS: Final = ("link", "last-link")
"""Links that are lost while both ends live: from the publisher's node to a host, and from a host to
the first subscriber's node."""

PROBED: Final = ("primary", "standby", "cluster")
"""What the lookup needs."""

FLOWS: Final = 8

SPLIT_TREES: Final = 2 * (FLOWS + 4)
"""Trees that a cluster has at most: room for half of what is planted so that it splits, and for the
flows, the lookup's tree and the late subscription's. It must not split once more: then not all of
the flows would belong to the cluster that is hit."""

PLANTED: Final = SPLIT_TREES + 2
"""Trees that are planted where there are to be two clusters."""

UNWANTED: Final = 8
"""One event in so many has a value that matches no subscription: a delivery would be spurious."""

TICK: Final = 0.01
"""Seconds between two batches of the publisher."""

WARM: Final = 2.0
"""Seconds of publishing before the fault."""

AFTER: Final = 4.0
"""Seconds of publishing after it at least, so that what goes wrong late is seen, too."""

GIVE_UP: Final = 30.0
"""Seconds after which what has not come back counts as gone: the most that the paper's Phoenix
takes."""

QUIET: Final = 1.5
"""Seconds without a delivery, and with nothing pending, after which nothing more is expected."""

OUTSIDE: Final = 3
"""Nodes in no cluster: the publisher's and two subscribers'."""

ROOM: Final = 4
"""Registrations that a host is to have: three flows, so all three match brokers are needed."""

CLUSTERS: Final = {"cluster": (2, 3)}
"""Kill -> number of clusters and their size; else one of the usual size."""


class TrialError(Exception):
    """The overlay did not come into the state that the trial needs."""


def shape(kill: str) -> tuple[int, int]:
    """How many clusters there are, and of how many members."""
    return CLUSTERS.get(kill, (1, ClusterSettings().size))


def settings(kill: str) -> Settings:
    """The nodes' settings in a trial of this kind of loss."""
    replicas = 1 if kill == "last-link" else TreeSettings().replicas  # else another host delivers
    # Of a cluster that shall be lost whole no member may be outside: none is recruited for room.
    room = TreeSettings().host_entries if kill == "cluster" else ROOM
    return Settings(
        cluster=ClusterSettings(size=shape(kill)[1], split_trees=SPLIT_TREES),
        tree=TreeSettings(host_entries=room, replicas=replicas),
    )


def selector(flow: str) -> str:
    """The selector of a flow's subscription."""
    return f"{flow} >= 0"


def event(
    number: int, flows: Sequence[str], now: float
) -> tuple[dict[str, Value | None], PublishedEvent]:
    """The attributes of event `number`, and what has to come of it."""
    turn, place = divmod(number, len(flows))
    wanted = turn % UNWANTED != 0
    attributes: dict[str, Value | None] = {"id": str(number), "type": "reading"}
    attributes[flows[place]] = number if wanted else -1 - number
    return attributes, PublishedEvent(now, flows[place], wanted)


def probe(flow: str, now: float) -> tuple[dict[str, Value | None], PublishedEvent]:
    """The one event of a flow; the flow's name is its id."""
    return {"id": flow, "type": "probe", flow: 1}, PublishedEvent(now, flow, True)


class TrialPlan(NamedTuple):
    """Whom to hit, and what they are needed for."""

    victims: tuple[str, ...]
    needing: tuple[str, ...]
    """Flows whose trees they host."""


def plan(kill: str, cluster: ClusterInfo, hosts: dict[str, str]) -> TrialPlan:
    """Which nodes of `cluster` are hit; `hosts`: flow -> host of its tree. Of a link, the victim is
    the host at one end."""
    if kill == "cluster":
        victims = members(cluster)
    elif kill in ("broker", *CUTS):
        served = list(hosts.values())
        victims = tuple(sorted(cluster.brokers, key=served.count)[-1:])
    else:
        victims = (cluster.primary if kill == "primary" else cluster.standby,)
    if not victims or not all(victims):
        raise TrialError(f"there is no {kill} to kill")
    needing = [(n, flow) for n, (flow, host) in enumerate(hosts.items()) if host in victims]
    if kill == "last-link":  # the first subscriber's flows
        needing = [(n, flow) for n, flow in needing if n % (OUTSIDE - 1) == 0]
    return TrialPlan(victims, tuple(flow for _, flow in needing))


def members(cluster: ClusterInfo) -> tuple[str, ...]:
    """Ids of the cluster's members, the primary first."""
    found = (cluster.primary, cluster.standby, *cluster.brokers)
    return tuple(node for node in found if node)


def check_arc(cluster: ClusterInfo, ring: Sequence[ClusterInfo]) -> None:
    """Raise TrialError if the cluster does not own all the keys any more that it owned."""
    if (cluster.start, cluster.key) not in [(each.start, each.key) for each in ring]:
        raise TrialError("the cluster that is to be hit has split")


def names(cluster: ClusterInfo, kind: str) -> Iterator[str]:
    """An endless sequence of attributes that `cluster` owns."""
    every = (f"{kind}{number}" for number in itertools.count())
    return (name for name in every if in_arc(attribute_key(name), cluster.start, cluster.key))

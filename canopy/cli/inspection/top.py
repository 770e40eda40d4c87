"""`canopy top`: the overlay as one node knows it, repeatedly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.constants import WATCH_INTERVAL
from canopy.cli.display import Screen, paced
from canopy.cli.output import Markup, TextTable, plain, print_json
from canopy.cli.parameters import Number
from overlay.phrases import counted, duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from canopy.client.client import Client
    from overlay.client import Peers, RingClusters, Status
    from overlay.info import ClusterInfo

LINKS = {"connected": "up", "connecting": "dialled", "": "-"}  # states, so that a line has room
WIDE = 100  # characters of a line that has room for addresses beside whole ids
SHORT = 5  # digits of a ring key: enough to tell some clusters apart


class NodeRow(msgspec.Struct, frozen=True):
    """One node. Rates are messages per second on its link with the node that was asked; -1:
    unknown."""

    node: str
    address: str
    role: str  # primary, standby, broker, none
    cluster: str  # key, or ""
    trees: int  # that its cluster owns
    led_for: float  # seconds, of a primary; -1: not known
    link: str  # state of the link, "self", or "" without one
    sent: float
    received: float
    silent: bool  # its primary does not hear it


def overview(
    status: Status,
    ring: RingClusters,
    peers: Peers,
    before: Peers | None = None,
    seconds: float = 0.0,
) -> list[NodeRow]:
    """Return all known nodes, by cluster in ring order and by role. `before`: the peers of
    `seconds` seconds ago, for the rates."""
    links = {one.node: one for one in peers.peers}
    earlier = {one.node: one for one in before.peers} if before is not None else {}
    rows: dict[str, NodeRow] = {}

    def add(node: str, role: str, cluster: ClusterInfo | None) -> None:
        if not node or node in rows:
            return
        link, old, is_own = links.get(node), earlier.get(node), node == status.node
        sent = received = -1.0
        if link is not None and old is not None and seconds > 0:
            # a link that was made again counts from 0
            sent = max(0, link.sent - old.sent) / seconds
            received = max(0, link.received - old.received) / seconds
        known = cluster.addresses.get(node, "") if cluster is not None else ""
        rows[node] = NodeRow(
            node,
            status.address if is_own else known or (link.address if link else ""),
            role,
            cluster.key if cluster is not None else "",
            len(cluster.attributes) if cluster is not None else 0,
            cluster.led_for if cluster is not None and role == "primary" else -1.0,
            "self" if is_own else link.state if link is not None else "",
            sent,
            received,
            cluster is not None and node in cluster.silent,
        )

    for cluster in ring.clusters:
        add(cluster.primary, "primary", cluster)
        add(cluster.standby, "standby", cluster)
        for node in cluster.brokers:
            add(node, "broker", cluster)
    for node in (status.node, *sorted(links)):
        add(node, "none", None)
    return list(rows.values())


@click.command()
@click.option(
    "--interval",
    type=Number(min=0.1),
    default=WATCH_INTERVAL,
    help="Seconds between two samples.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="End after this number of looks. [default: 1 into a pipe]",
)
@node_options
def top(interval: float, count: int | None, node: NodeOptions) -> None:
    """Show the nodes of the overlay as one node knows them, until Ctrl-C.

    A message around the ring collects all members of all clusters: their roles, the trees that
    their cluster owns, and which members are silent. For this node's links it shows the messages
    per second. The work of other nodes is not asked for: `canopy status --watch` at a node shows
    it.

    \b
    canopy top
    canopy top --count 1 --json | jq '.nodes | map(select(.silent))'
    canopy top --json --interval 10 >> overlay.jsonl
    """
    screen = Screen()
    before: Peers | None = None
    at = 0.0
    with node.open() as client, screen:
        for _ in paced(interval, count or (None if screen.is_live or node.as_json else 1)):
            status, ring, peers = _look(client, node.timeout)
            now = time.monotonic()
            rows = overview(status, ring, peers, before, now - at)
            before, at = peers, now
            if node.as_json:
                found: dict[str, Any] = {"node": status.node, "complete": ring.complete}
                print_json({**found, "nodes": plain(rows)})
            else:
                screen.show(_view(status, ring, rows, screen.width))


def _look(client: Client, timeout: float) -> tuple[Status, RingClusters, Peers]:
    from overlay.client import GetPeers, GetRing, GetStatus, Peers, RingClusters, Status

    return (
        client.ask(GetStatus(0), Status, timeout),
        client.ask(GetRing(0), RingClusters, timeout),
        client.ask(GetPeers(0), Peers, timeout),
    )


def _view(status: Status, ring: RingClusters, rows: list[NodeRow], width: int) -> RenderableType:
    """Return the view; without addresses if whole ids leave no room for them in a line of
    `width`."""
    from rich.console import Group

    silent = sum(row.silent for row in rows)
    clusters = counted(len(ring.clusters), "cluster")
    head = f"{clusters}, {counted(len(rows), 'node')} known, {silent} silent"
    head += "" if ring.complete else "; [yellow]the ring was not traversed completely[/]"
    subscriptions = counted(status.subscriptions, "subscription")
    own = f"node {status.node}: {status.pending} under way, {subscriptions}; "
    own += "sent, recv: messages/s"
    is_wide = width >= WIDE
    address = ("=address",) if is_wide else ()
    columns = ("=role", ">trees", ">leads", "=link", ">sent", ">recv")
    shown = TextTable("=cluster", "=node", *address, *columns)
    for row in rows:
        link = LINKS.get(row.link.lower(), row.link or "-")
        shown.add(
            *(f"{row.cluster[:SHORT]}…" if row.cluster else "-", row.node),
            *((row.address,) if is_wide else ()),
            *(row.role, row.trees if row.role == "primary" else None),
            duration(row.led_for) if row.led_for >= 0 else None,
            Markup("[red]silent[/]") if row.silent else link,
            f"{row.sent:,.1f}" if row.sent >= 0 else None,
            f"{row.received:,.1f}" if row.received >= 0 else None,
        )
    return Group(head, own, shown)

"""`canopy status`, `peers`, `ring` and `where`: the state of a node and of the overlay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from canopy.cli.completion import place_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.constants import WATCH_INTERVAL
from canopy.cli.display import Screen, paced
from canopy.cli.errors import TIME_OUT, CommandError
from canopy.cli.output import Markup, TextTable, console, label, plain, print_json, show
from canopy.cli.parameters import Number
from overlay.phrases import counted, duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from canopy.client.client import Client
    from overlay.client import Located, Status
    from overlay.info import ClusterInfo, StreamInfo

SHORT = 8  # digits of a ring key that tables show; --json has all 40


@click.command()
@click.option(
    "--watch",
    is_flag=False,
    flag_value=WATCH_INTERVAL,
    type=Number(min=0.1),
    metavar="[SECONDS]",
    help="Repeat every SECONDS (2) until Ctrl-C, with the increase of the counters.",
)
@node_options
def status(watch: float | None, node: NodeOptions) -> None:
    """Show the state of a node: its identity, whether it is ready, its role and counters.

    \b
    canopy status
    canopy status --json --connect /tmp/b | jq .ready
    canopy status --watch
    canopy status --watch=10 --json >> node.jsonl
    """
    from overlay.client import GetStatus, Status

    before: dict[str, int] | None = None
    at = 0.0
    screen = Screen()
    with node.open() as client, screen:
        for _ in paced(watch or 0.0, 1 if watch is None else None):
            found = client.ask(GetStatus(0), Status, node.timeout)
            now = time.monotonic()
            if node.as_json:
                print_json(plain(found))
            elif watch is None:
                console().print(_status_view(found))
            else:
                screen.show(_status_view(found, before or found.counters, now - at))
            before, at = found.counters, now


def _status_view(
    found: Status, before: dict[str, int] | None = None, seconds: float = 0.0
) -> RenderableType:
    """Return the view of a node's status. With `before`, the counters of `seconds` seconds ago, it
    shows rates, and only of counters that have changed."""
    from rich.console import Group

    state = "draining" if found.draining else "ready" if found.ready else "joining"
    if alone(found):
        state += ", [yellow]alone[/]: no other node is in its overlay"
    rows = TextTable("", "")
    name = f" ({label(found.name)})" if found.name else ""
    rows.add("node", Markup(f"[bold]{found.node}[/]{name}"))
    rows.add("address", f"{found.address}, process {found.pid}")
    up = f"up for {duration(found.uptime)}, incarnation {found.incarnation}"
    rows.add("state", Markup(f"{state}, {up}"))
    if found.region or found.tier:
        rows.add("region", f"{found.region or 'none'}, tier {found.tier}")
    if found.health:
        rows.add("health", found.health)
    if found.replaced:
        rows.add("damage", f"this node was {found.replaced} until its state file was damaged")
    role = f"{found.role} of {found.cluster[:SHORT]}…" if found.cluster else "in no cluster"
    rows.add("cluster", f"{role}, ring {found.ring[:SHORT] or 'not found yet'}")
    rows.add("neighbours", f"{found.neighbours}, {counted(found.links, 'link')}")
    rows.add("subscriptions", found.subscriptions)
    rows.add("trees", f"{found.trees} with virtual nodes here, routing {found.routing}")
    rows.add("under way", found.pending)
    parked = sum(one.parked_for >= 0 for one in found.clients)
    away = f", {counted(parked, 'session')} parked" if parked else ""
    rows.add("programs", f"{len(found.clients) - parked} connected{away}")
    rows.of((f"peer {seed}", how) for seed, how in found.seeds.items())
    slow = TextTable("slow program", ">under way", ">credit", ">waiting", ">dropped")
    for one in found.clients:
        if one.waiting or one.dropped:
            name = f"process {one.pid}" if one.pid else f"client {one.client}"
            name += f", away for {duration(one.parked_for)}" if one.parked_for >= 0 else ""
            slow.add(name, one.under_way, one.credit, one.waiting, one.dropped)
    counters = _counters(found.counters, before, seconds)
    return Group(rows, *filter(None, (slow, _shards(found))), counters)


def _shards(found: Status) -> TextTable:
    """Return the table of the node's shards of streams."""
    rows = TextTable("stream", ">shard", "state", ">offsets", ">on disk", "lag")
    for one in found.shards:
        here = one.here
        damaged = ", [yellow]damaged[/]" if here.damaged else ""
        behind = [f"{node[:SHORT]}… {chunks:,}" for node, chunks in here.behind if chunks]
        lag = f"chunks behind: {', '.join(behind)}" if behind else ""
        if here.state == "follows" and here.durable > here.committed:
            lag = f"{counted(here.durable - here.committed, 'chunk')} not committed"
        if here.intake is not None:
            lag += f"{', ' if lag else ''}{here.intake.state} {here.intake.waiting:,}"
        offsets = f"{here.first:,}…{here.next - 1:,}" if here.next > here.first else "none"
        state = Markup(f"{label(here.state)}{damaged}")
        rows.add(one.stream, one.number, state, offsets, here.bytes, lag)
    return rows


def _counters(found: dict[str, int], before: dict[str, int] | None, seconds: float) -> TextTable:
    named = [(key, key.replace("_", " "), value) for key, value in sorted(found.items())]
    if before is None:
        return TextTable("counter", ">total").of((name, value) for _, name, value in named)
    return TextTable("counter", ">total", ">per second").of(
        (name, value, f"{(value - before.get(key, 0)) / seconds:,.1f}")
        for key, name, value in named
        if value
    )


def alone(status: Status) -> bool:
    """Return whether the node is ready and has no neighbours."""
    return status.ready and not status.neighbours


@click.command()
@node_options
def peers(node: NodeOptions) -> None:
    """List the neighbours of a node in the random graph, and its other links.

    \b
    canopy peers
    canopy peers --json | jq 'map(select(.neighbour)) | length'
    """
    from overlay.client import GetPeers, Peers

    found = node.ask(GetPeers(0), Peers).peers
    regions = ("region", ">tier") if any(peer.region or peer.tier for peer in found) else ()
    versions = {peer.protocol for peer in found if peer.protocol}
    spoken = (">protocol",) if len(versions) > 1 else ()  # while the overlay is being upgraded
    rows = TextTable("=node", "address", "link", ">age", ">sent", ">received", *regions, *spoken)
    for peer in sorted(found, key=lambda p: (not p.neighbour, p.node)):
        age = peer.age if peer.neighbour else "-"
        place = (peer.region, peer.tier) if regions else ()
        version = (peer.protocol or "-",) if spoken else ()
        counts = (peer.sent, peer.received)
        rows.add(peer.node, peer.address, peer.state, age, *counts, *place, *version)
    show(plain(found), node.as_json, rows or "no neighbours: this node is alone")


@click.command()
@node_options
def ring(node: NodeOptions) -> None:
    """List the clusters of the ring: primary and since when, members, the attributes that each
    owns, and which members are silent or sub-healthy, as far as the node knows.

    \b
    canopy ring
    canopy ring --json | jq '.[].attributes'
    """
    from overlay.client import GetRing, RingClusters

    found = node.ask(GetRing(0), RingClusters)
    if node.as_json:
        print_json(plain(found.clusters))
    else:
        _show_clusters(found.clusters)
    if not found.complete:
        raise CommandError(
            "the ring was not traversed completely in time: clusters may be missing", TIME_OUT
        )


def _show_clusters(clusters: Sequence[ClusterInfo]) -> None:
    out = console()
    out.print(_cluster_table(clusters))
    for cluster in clusters:
        out.print(f"{cluster.key[:SHORT]}…  {_leadership(cluster)}")
        for node, reason in cluster.sub_healthy.items():
            out.print(f"{cluster.key[:SHORT]}…  sub-healthy: {node}, {label(reason)}")


def _leadership(cluster: ClusterInfo) -> str:
    """Say how long the primary has led, and from which members it does not hear."""
    if cluster.led_for < 0:
        return "the primary does not answer"
    silent = f"; silent: {' '.join(cluster.silent)}" if cluster.silent else "; no member is silent"
    return f"the primary has led for {duration(cluster.led_for)}{silent}"


def _cluster_table(clusters: Sequence[ClusterInfo]) -> TextTable:
    return TextTable("=key", ">epoch", "=primary", "=standby", ">brokers", "attributes").of(
        (
            *(f"{one.key[:SHORT]}…", one.epoch, one.primary, one.standby or "-"),
            *(len(one.brokers), ", ".join(one.attributes) or "-"),
        )
        for one in clusters
    )


@click.command()
@click.argument("name", shell_complete=place_names)
@node_options
def where(name: str, node: NodeOptions) -> None:
    """Show which nodes serve NAME, an attribute or a stream.

    For an attribute: the cluster that owns it, and the virtual nodes of its tree. For a stream: the
    leader and the followers of each shard.

    \b
    canopy where mag
    canopy where alarms --json
    """
    from overlay.client import Located, Where

    if not name:
        raise click.UsageError("NAME is empty")
    with node.open() as client:
        found = client.ask(Where(0, name), Located, node.timeout)
        stream = _stream_called(name, client, node.timeout)
    if node.as_json:
        virtual = {"version": plain(found.version), "virtual_nodes": plain(found.virtual_nodes)}
        served = {"stream": None if stream is None else plain(stream)}
        print_json({**plain(found.cluster), "attribute": found.attribute, **virtual, **served})
        return
    if stream is not None:
        _show_shards(stream)
        if not found.virtual_nodes:
            return
    _show_tree(found)


def _stream_called(name: str, client: Client, timeout: float) -> StreamInfo | None:
    from canopy.client.errors import CommandFailed
    from overlay.client import GetStreams, Streams

    try:
        return client.ask(GetStreams(0, name), Streams, timeout).streams[0]
    except CommandFailed as error:
        if error.code != "unknown":
            raise
        return None


def _show_shards(stream: StreamInfo) -> None:
    """Print a row for each replica of a stream, the leader of each shard first."""
    rows = TextTable(">shard", "=node", "state", "address", "region").of(
        (shard.number, each.node, each.state, each.address, each.region)
        for shard in stream.shards
        for is_led in (True, False)
        for each in shard.replicas
        if (each.node == shard.leader) is is_led
    )
    out = console()
    out.print(f"the stream [bold]{label(stream.name)}[/], {counted(len(stream.shards), 'shard')}")
    out.print(rows)


def _show_tree(found: Located) -> None:
    out = console()
    out.print(_cluster_table((found.cluster,)))
    if not found.virtual_nodes:
        out.print(f"there are no subscriptions to {label(found.attribute)}, so it has no tree")
        return
    out.print(
        TextTable("from", "to", "=hosts", ">registrations").of(
            (each.lo, each.hi, " ".join((each.host, *each.others)), each.registrations)
            for each in found.virtual_nodes
        )
    )

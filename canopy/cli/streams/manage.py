"""`canopy stream add`, `ls`, `info` and `rm`: found, list, show and remove streams."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.errors import TIME_OUT, CommandError
from canopy.cli.output import Markup, TextTable, console, label, plain, print_json, show
from canopy.cli.streams.options import changeable_options
from overlay.phrases import counted, duration, no_majority, visible
from overlay.regions import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canopy.client.client import Client
    from overlay.info import ForkInfo, GroupInfo, IntakeInfo, ReplicaInfo, StreamInfo

GROUPS_TIMEOUT: Final = 2.0  # seconds for which `info` waits to hear of groups


@click.command()
@click.argument("name", metavar="STREAM")
@click.option("--shards", default=1, help="Number of shards; 1: one total order.")
@click.option("--by", default="", metavar="ATTRIBUTE", help="Choose the shard by this attribute.")
@click.option("--replicas", default=3, help="Replicas of each shard: odd (3).")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="STREAM",
    shell_complete=stream_names,
    help="Also append the rows of STREAM.",
)
@click.option(
    "--where", default="", metavar="SELECTOR", help="With --source: only rows that match."
)
@click.option(
    "--mirror",
    default="",
    metavar="STREAM",
    shell_complete=stream_names,
    help="Copy the rows of STREAM with their offsets.",
)
@click.option("--region", default="", help="Place the replicas in this region.")
@click.option(
    "--key", default="", metavar="ATTRIBUTE", help="Keep the newest row of each value, however old."
)
@click.option(
    "--deletes",
    default="",
    metavar="SELECTOR",
    help="With --key: rows that end their key (default: those that have the key only).",
)
@changeable_options(is_new=True)
@node_options
def add(name: str, sources: tuple[str, ...], where: str, node: NodeOptions, **options: Any) -> None:
    """Found a stream. It is durable when this command returns: on the disks of a majority of its
    directory's cluster. Without --keep-for and --keep-size it keeps everything.

    Events that a durable consumer or a group has not read are kept longer, unless --drop-unread is
    given (never with groups). A shard that has reached --max-bytes or --max-rows refuses new rows,
    or drops the oldest, unread ones included (but not those that a group has not acknowledged).

    With --capture the stream takes in every event that programs publish and SELECTOR matches, once:
    all that are published after this command has returned.

    With --source (repeatable) it copies the rows of other streams that --where matches, each once;
    with --mirror it is another copy of a stream, with the same offsets, for another --region.

    With --key, when --keep-for and --keep-size remove rows, the newest row of each value of
    ATTRIBUTE stays, until a row that --deletes matches removes it; `canopy sub --from keys` begins
    with these. With --ttl rows expire: they are then no longer delivered, and are removed whether
    they were read or not.

    With --prefer availability a replica that is cut off from the majority takes rows into a fork,
    with receipts that say so. The rows are copied into the stream when the network is whole again.
    Until then they are on one disk, and cannot be read.

    A name that is taken is refused (exit code 1).

    \b
    canopy stream add alarms
    canopy stream add quakes --capture "mag > 5 AND place LIKE '%Japan%'"
    canopy stream add hot --source line1 --source line2 --where "celsius > 80"
    canopy stream add orders-us --mirror orders --region us
    canopy stream add readings --shards 4 --by sensor --keep-for 30d --keep-size 20G
    canopy stream add jobs --max-rows 1000000 --expire-consumers 7d
    canopy stream add users --key id --deletes "op = 'delete'" --keep-for 7d
    canopy stream add positions --ttl 10m
    canopy stream add measurements --prefer availability
    """
    from overlay.client import Streams
    from overlay.stream_client import AddStream

    if where and not sources:
        raise click.UsageError("--where goes with --source")
    pairs = tuple((source, where) for source in sources)
    command = AddStream(0, name, sources=pairs, **options)
    found = node.ask(command, Streams).streams[0]
    nodes = len(found.shards[0].replicas)
    said = [f"[bold]{label(name)}[/] has the id {found.id}, on {counted(nodes, 'node')}"]
    if nodes < found.replicas:
        said += [f"{found.replicas} replicas were asked for: others follow as nodes come"]
    said += [f"[yellow]{one}[/]" for one in outside(found)]
    show(plain(found), node.as_json, *map(Markup, said))


@click.command()
@node_options
def ls(node: NodeOptions) -> None:
    """List all streams of the overlay.

    \b
    canopy stream ls
    canopy stream ls --json | jq -r '.[].name'
    """
    from overlay.client import GetStreams, Streams

    found = node.ask(GetStreams(0), Streams)
    rows = TextTable("stream", "=id", ">shards", "by", ">replicas", "kept for", ">kept bytes").of(
        (
            *(one.name, one.id, len(one.shards), one.by, one.replicas),
            duration(one.keep_seconds) if one.keep_seconds else "ever",
            one.keep_bytes or "all",
        )
        for one in found.streams
    )
    show(plain(found.streams), node.as_json, rows or "there are no streams")
    if not found.complete:
        raise CommandError("a part of the overlay did not answer: there may be others", TIME_OUT)


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@node_options
def info(name: str, node: NodeOptions) -> None:
    """Show a stream and its replicas: who leads each shard, and how far each replica is. For each
    consumer group, show the offset of each shard below which everything is acknowledged, and the
    numbers of events that are in flight, waiting, or dead letters.

    \b
    canopy stream info alarms
    """
    from canopy.client.errors import CommandFailed
    from canopy.client.streams.management import bounds, former_selectors, founded_with
    from overlay.client import GetStreams, Streams

    with node.open() as client:
        found = client.ask(GetStreams(0, name), Streams, node.timeout).streams[0]
        origins = {}
        for origin in dict.fromkeys((*(one for one, _ in found.sources), found.mirror)):
            if origin:
                with suppress(CommandFailed):
                    known = client.ask(GetStreams(0, origin), Streams, node.timeout).streams[0]
                    origins[origin] = known
        groups = _groups(client, name, min(node.timeout, GROUPS_TIMEOUT))
    if node.as_json:
        print_json({**plain(found), "groups": plain(groups)})
        return
    out = console()
    out.print(f"[bold]{label(found.name)}[/], id {found.id}, {counted(len(found.shards), 'shard')}")
    if found.capture:
        out.print(f"captures {label(found.capture)}")
    for line in (*lags(found, origins), *unread(found, origins)):
        out.print(line)
    for said in bounds(found):
        out.print(label(said))
    for shard in found.shards:
        columns = ("=replica", "state", ">offsets", ">chunks", ">on disk", ">bytes", ">newest")
        rows = TextTable(*columns).of(map(_replica_row, shard.replicas))
        epoch = max((replica.epoch for replica in shard.replicas), default=0)
        keys = next((r.keys for r in shard.replicas if r.keys is not None), None)
        counted_keys = "" if keys is None else f", {counted(keys, 'key')}"
        out.print(f"shard {shard.number}, epoch {epoch}{counted_keys}")
        out.print(rows)
    if groups:
        counts = (">done below", ">in flight", ">waiting", ">dead", ">members")
        out.print(TextTable("group", "selector", *counts).of(map(_group_row, groups)))
        for group in groups:
            out.print(label(f"{group.name}: {founded_with(group)}"))
            for said in former_selectors(group):
                out.print(label(f"{group.name}, {said}"))
    for trouble in troubles(found):
        out.print(f"[yellow]{trouble}[/]")


def unread(stream: StreamInfo, origins: Mapping[str, StreamInfo]) -> Iterator[str]:
    """Yield sentences about sources that should be copied and are not being read."""
    read = {
        origin.stream
        for shard in stream.shards
        for replica in shard.replicas
        for origin in (replica.intake.origins if replica.intake is not None else ())
    }
    what = "mirrors" if stream.mirror else "copies"
    for name, where in (*stream.sources, (stream.mirror, "")):
        if name and name not in read:
            why = "which is not read yet" if name in origins else "which is not there"
            chosen = f" where {label(where)}" if where else ""
            yield f"{what} {label(name)}{chosen}, [yellow]{why}[/]"


def lags(stream: StreamInfo, origins: Mapping[str, StreamInfo]) -> Iterator[str]:
    """Yield sentences about the sources that are copied, and how far the copy is behind, by the
    sources' own offsets."""
    wheres = dict(stream.sources)
    for shard in stream.shards:
        for intake in (r.intake for r in shard.replicas if r.intake is not None):
            for origin in intake.origins:
                known = origins.get(origin.stream)
                ends = {
                    s.number: max((r.next for r in s.replicas), default=0)
                    for s in (known.shards if known else ())
                }
                what = "mirrors" if stream.mirror else "copies"
                where = (
                    f" where {label(wheres[origin.stream])}" if wheres.get(origin.stream) else ""
                )
                line = f"shard {shard.number} {what} {label(origin.stream)}/{origin.shard}{where}"
                line += f" up to offset {origin.position:,}"
                if origin.shard in ends:
                    behind = max(0, ends[origin.shard] - origin.position)
                    line += f", {counted(behind, 'row')} behind"
                yield line + (f"; [yellow]{label(origin.fault)}[/]" if origin.fault else "")


def _groups(client: Client, name: str, timeout: float) -> tuple[GroupInfo, ...]:
    """Return the consumer groups of a stream; none if the leaders of its shards do not answer."""
    from canopy.client.errors import CommandFailed, CommandTimeoutError
    from overlay.stream_client import GetGroups, Groups

    try:
        return client.ask(GetGroups(0, name), Groups, timeout).groups
    except (CommandFailed, CommandTimeoutError):
        return ()


def _group_row(group: GroupInfo) -> tuple[str | int, ...]:
    shards = group.shards
    floors = ", ".join(f"{shard.floor:,} of {shard.end:,}" for shard in shards)
    return (
        *(group.name, group.selector or "all", floors),
        sum(shard.leased for shard in shards),
        sum(shard.open - shard.leased for shard in shards),
        sum(shard.dead for shard in shards),
        len({name for shard in shards for name in shard.members}),
    )


def _replica_row(replica: ReplicaInfo) -> tuple[str | int, ...]:
    if replica.state == "silent":
        return (replica.node, f"silent, {replica.address}", *[""] * 5)
    age = duration(max(0.0, time.time() - replica.time)) if replica.time else "never"
    offsets = f"{replica.first:,}…{replica.next - 1:,}" if replica.next > replica.first else "none"
    chunks = (replica.committed, replica.durable)
    return (replica.node, replica.state, offsets, *chunks, replica.bytes, age)


def _gaps(intake: IntakeInfo) -> Iterator[str]:
    if intake.state == "full":
        yield "waits, since the shard is full"
    if intake.state == "registers":
        yield "is not acknowledged: events that come now are captured by other replicas only"
    if intake.gaps and intake.origins:
        yield f"has {counted(intake.gaps, 'gap')}: an origin had removed rows before they came"
    elif intake.gaps:
        times = "once" if intake.gaps == 1 else f"{intake.gaps} times"
        yield f"may have missed events, {times}; they are in the stream if another replica had them"


def _fork(replica: ReplicaInfo, fork: ForkInfo) -> str:
    """Return a sentence about a replica's fork; "" if there is nothing to report any longer."""
    rows = counted(fork.rows, "row")
    if fork.state == "open":
        return f"{replica.node} is cut off and takes rows into the fork {fork.fork}: {rows} so far"
    if fork.state == "waits":
        return f"{replica.node} has {rows} in the fork {fork.fork}, which is being copied"
    if fork.conflicting:
        return (
            f"of {rows} of the fork {fork.fork} {fork.conflicting:,} are here without their "
            "producer's numbers, which other rows have: two programs were one producer"
        )
    return ""


def to(first: int, end: int) -> str:
    """Return the end of a range of lost rows in words; "on" if it is unknown
    (`ReplicaInfo.lost`)."""
    return f"to {end - 1:,}" if end > first + 1 else "on"


def outside(stream: StreamInfo) -> list[str]:
    """Return sentences about replicas that are not in the stream's region."""
    return [
        f"shard {shard.number}: {len(strange)} of {len(shard.replicas)} replicas are not in the "
        f"region {label(stream.region)}, of which no more nodes are known; one that is lost is "
        "replaced by a node there, when there are some (canopy node --region)"
        for shard in stream.shards
        if stream.region
        and (strange := [r for r in shard.replicas if not holds(stream.region, r.region)])
    ]


def troubles(stream: StreamInfo) -> list[str]:
    """Return sentences about the faults of a stream's shards."""
    found = outside(stream)
    for shard in stream.shards:
        answering = [r for r in shard.replicas if r.state in ("leads", "follows")]
        if 2 * len(answering) <= len(shard.replicas):
            number = shard.number if len(stream.shards) > 1 else None
            said = no_majority(label(stream.name), len(answering), len(shard.replicas), number)
            found.append(f"{said}; nothing can be written until one does")
        elif not shard.leader:
            found.append(f"shard {shard.number}: a leader is being sought")
        found += [
            f"shard {shard.number}: {replica.node} has lost its vote (its disk was damaged or "
            "replaced) and takes no part; another node takes its place"
            for replica in shard.replicas
            if replica.state == "barred"
        ]
        waiting = [(r.halves, r.parked) for r in shard.replicas if r.state == "leads" and r.halves]
        for halves, parked in waiting:
            found.append(
                f"shard {shard.number}: {counted(halves, 'transaction')} not decided, {parked} of "
                f"them parked (`canopy tx ls {stream.name}`)"
            )
        found += [
            f"shard {shard.number}: {said}"
            for replica in shard.replicas
            for fork in replica.forks
            if (said := _fork(replica, fork))
        ]
        found += [
            f"shard {shard.number}: {replica.node} mends damage in its log, and takes no part"
            for replica in shard.replicas
            if replica.state == "mending"
        ]
        found += [
            f"shard {shard.number}: the rows from offset {first:,} {to(first, end)} were lost by "
            "damage that no replica could mend; who was beyond is told when it comes"
            for replica in shard.replicas
            for first, end in replica.lost
        ]
        found += [
            f"shard {shard.number}: {label(one.name)} was at offset {one.was_at:,} when rows there "
            f"were lost: it goes on at {one.position:,}, and its next program is told"
            for replica in shard.replicas
            for one in replica.consumers
            if one.was_at
        ]
        found += [
            f"shard {shard.number}: {counted(one.dropped, 'row')} were dropped that "
            f"{label(one.name)} had not read"
            for replica in shard.replicas
            for one in replica.consumers
            if one.dropped
        ]
        found += [
            f"shard {shard.number}: the capture at {replica.node} {what}"
            for replica in shard.replicas
            if replica.intake is not None
            for what in _gaps(replica.intake)
        ]
    return found


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def rm(name: str, yes: bool, node: NodeOptions) -> None:
    """Remove a stream and all its rows, for ever.

    \b
    canopy stream rm alarms --yes
    """
    from overlay.client import Done, RemoveStream

    if not yes:
        if not sys.stdin.isatty():
            raise CommandError("this removes everything that the stream has: say --yes")
        click.confirm(f"Remove {name} and everything that it has?", abort=True)
    node.ask(RemoveStream(0, name), Done)
    show({"removed": name}, node.as_json, f"{visible(name)} is removed")

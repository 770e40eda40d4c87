"""`canopy stream check`: have a running node read its logs from end to end, now. `canopy stream
verify`: check the files of one shard without a node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, json_option, node_options
from canopy.cli.display import Bars
from canopy.cli.errors import FAILURE, OK, CommandError
from canopy.cli.output import TextTable, console, label, plain, print_json
from canopy.cli.parameters import parse_size
from overlay.phrases import counted

if TYPE_CHECKING:
    from overlay.stream_client import LogCheck, ShardCheck


LOOK: Final = 0.2
"""Seconds between two requests for the progress of the check."""

RATE_LEAST: Final = 64 * 1024
RATE_MOST: Final = 1 << 32
"""The largest rate of a check, in bytes per second (`BeginLogCheck.rate`)."""

WHOLE: Final = ("whole", "mended")
"""States of logs without missing or damaged parts."""


def _rate(ctx: click.Context, option: click.Parameter, value: str) -> int:
    found = parse_size(ctx, option, value)
    assert found is not None
    if not RATE_LEAST <= found <= RATE_MOST:
        raise click.BadParameter(f"{value} is not between 64K and 4G")
    return found


@click.command()
@click.argument("name", metavar="[STREAM]", default="", shell_complete=stream_names)
@click.option(
    "--rate",
    default="16M",
    callback=_rate,
    metavar="SIZE",
    help="Read at most this much per second. [default: 16M]",
)
@node_options
@click.pass_context
def check(ctx: click.Context, name: str, rate: int, node: NodeOptions) -> None:
    """Have the node of --connect read the logs of all its shards, or of those of STREAM, from end
    to end, and mend damage from other replicas. The node continues to work meanwhile.

    Each replica has files of its own: to check all of a stream, ask each node that `canopy stream
    info` names. (Every node does the same by itself, slowly, every ten minutes to once a day.)

    Exit code 0: all logs are whole, or all damage is mended; 1: some damage remains, and is
    reported. Ctrl-C ends the check.

    \b
    canopy stream check
    canopy stream check orders --rate 64M --json
    """
    from overlay.stream_client import BeginLogCheck, GetLogCheck, LogCheck

    with node.open() as client, Bars(quiet=node.as_json) as bars:
        found = client.ask(BeginLogCheck(0, name, rate), LogCheck, node.timeout)
        bars.begin("reads")
        while not found.is_over:
            _show(bars, found)
            time.sleep(LOOK)
            found = client.ask(GetLogCheck(0), LogCheck, node.timeout)
        _show(bars, found)
        bars.fill()
    is_whole = all(shard.state in WHOLE for shard in found.shards)
    if node.as_json:
        print_json({"whole": is_whole, **plain(found)})
    else:
        for line in said(found):
            console().print(line, soft_wrap=True)
    ctx.exit(OK if is_whole else FAILURE)


def _show(bars: Bars, found: LogCheck) -> None:
    read, size = (sum(getattr(s, what) for s in found.shards) for what in ("bytes", "size"))
    done = sum(shard.state not in ("waits", "reads") for shard in found.shards)
    damaged = sum(shard.found for shard in found.shards)
    facts = f"{done} of {counted(len(found.shards), 'log')}, {read / 1e6:,.0f} MB"
    bars.show(read, max(size, read, 1), f"{facts}, {damaged} damaged" if damaged else facts)


def said(found: LogCheck) -> Iterator[object]:
    """Yield the findings of a check, for a terminal."""
    size = sum(shard.bytes for shard in found.shards)
    where = f"[bold]{found.node}[/] ({label(found.address)})"
    if not found.shards:
        yield f"{where} has no shards"
        return
    yield f"{where}: {counted(len(found.shards), 'log')}, {size:,} bytes read"
    damaged = [shard for shard in found.shards if shard.state != "whole"]
    if not damaged:
        yield "all are whole"
        return
    yield TextTable("stream", ">shard", "state", ">found", ">mended", ">refused", ">left").of(
        (
            *(each.stream, each.shard, each.state, each.found),
            counted(each.mended, "chunk") if each.mended else None,
            *(each.refused, each.left + each.ended),
        )
        for each in damaged
    )
    for shard in damaged:
        yield f"{label(shard.stream)}/{shard.shard} {advice(shard)}"


def advice(shard: ShardCheck) -> str:
    """Return what a log's state means, and what to do about it."""
    if shard.ended:
        return (
            f"had damage that no other replica could mend ({counted(shard.ended, 'time')}): its "
            "log ends before it, and the rest comes from the leader, as far as that has it"
        )
    return {
        "mended": "is whole again: other replicas had what was damaged",
        "damaged": (
            "has damage, and no other replica that could mend it: rows there are not delivered. "
            "Found streams with --replicas 3"
        ),
        "mending": (
            "waits for other replicas that have what is missing, and takes no part until then: see "
            "that their nodes run"
        ),
        "opening": "cannot be read just now: see canopy status and the log of the node",
        "barred": (
            "has lost its vote (its disk was damaged or replaced) and takes no part; another "
            "node takes its place"
        ),
    }.get(shard.state, f"is not read to its end: {shard.state}")


# --- `canopy stream verify`: the files of a stream's shard, checked without any node ---


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--receipt",
    type=click.Path(exists=True, dir_okay=False),
    help="A receipt (JSON): prove that its batch is in this log.",
)
@click.option("--shard", default="", help="STREAM/NUMBER, to which the log has to belong.")
@json_option
@click.pass_context
def verify(ctx: click.Context, folder: str, receipt: str | None, shard: str, as_json: bool) -> None:
    """Check the segments of a shard's folder DIR: every chunk's CRC, the chain of hashes, offsets,
    and the state at the start of each segment. Needs only the files, and no node.

    Exit code 0: all segments are whole, and the receipt is proved; 1: there is a fault, whose place
    is reported, or the receipt is not proved. A node that has just been killed may leave a torn
    last chunk, which is a fault here.

    \b
    canopy stream verify streams/8f2c…/0
    canopy stream verify streams/8f2c…/0 --receipt receipt.json --json
    """
    from streams.log.shard_log import parse_name
    from streams.log.verify import MalformedReceiptError, Verifier, parse_receipt

    found = None
    if receipt is not None:
        try:
            found = parse_receipt(Path(receipt).read_bytes())
        except MalformedReceiptError as error:
            raise CommandError(f"{receipt} is no receipt: {error}") from None
        if shard and shard != found.name:
            raise CommandError(f"{receipt} is of shard {found.name}, not {shard}")
    names = sorted(path.name for path in Path(folder).iterdir() if parse_name(path.name))
    if not names:
        raise CommandError(f"{folder} has no segments (files like 000…0-000…1.log)")
    name = shard or (found.name if found is not None else "")
    result = Verifier(name, found).run(names, lambda each: (Path(folder) / each).read_bytes())
    whole = result.fault is None and result.receipt in ("", "proved")
    if as_json:
        print_json({"whole": whole, **plain(result)})
        ctx.exit(OK if whole else FAILURE)
    click.echo(
        f"{result.segments} segments, {result.chunks} chunks, {result.rows} rows "
        f"(offsets {result.first_offset} to {result.next_offset - 1}), {result.bytes} bytes"
        if result.rows
        else f"{result.segments} segments, {result.chunks} chunks, no rows, {result.bytes} bytes"
    )
    if result.last_chunk:
        click.echo(f"last chunk {result.last_chunk}, hash {result.last_hash}")
    if result.receipt:
        click.echo(f"receipt: {result.receipt}" + (f": {result.reason}" if result.reason else ""))
    if result.fault is not None:
        fault = result.fault
        raise CommandError(
            f"{Path(folder) / fault.segment}, byte {fault.at} (chunk {fault.chunk}): {fault.what}"
        )
    ctx.exit(OK if whole else FAILURE)

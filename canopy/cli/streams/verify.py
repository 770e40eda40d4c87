"""`canopy stream verify`: the files of a stream's shard, checked without any node."""

from __future__ import annotations

from pathlib import Path

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import FAILURE, OK, CommandError
from canopy.cli.output import plain, print_json


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
    and the state with which each segment begins. Only the files are needed, and no node.

    Exit code 0: all is whole, and the receipt is proved; 1: something is wrong, and it is said
    where the first fault is, or the receipt is not proved. A node that has just been killed may
    leave a torn last chunk, which is a fault here.

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

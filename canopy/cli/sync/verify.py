"""`canopy sync verify`: check that both sides have the same rows."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import click

from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.display import Display
from canopy.cli.errors import FAILURE, OK, CommandError
from canopy.cli.output import plain, print_json
from canopy.cli.parameters import Number
from canopy.cli.sync.options import chosen, config_option, database_option


@click.command()
@click.argument("name", metavar="NAME")
@database_option("--from", "source_url", "The source, if not defined.")
@database_option("--to", "target_url", "The destination, likewise.")
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
    default=60.0,
    help="Seconds to wait for the destination to catch up.",
)
@json_option
@config_option
@connect_option
@click.pass_context
def verify(
    ctx: click.Context,
    name: str,
    source_url: str,
    target_url: str,
    timeout: float,
    as_json: bool,
    config: Path,
    connect: str | None,
    wait: float,
) -> None:
    """Compare source and destination of the sync NAME at one position, while both change: first
    hashes of ranges of rows, then the rows of the ranges that differ. Names the rows that differ.
    `canopy sync run` has to run for both sides. Exit code 0: identical; 1: different, or unknown.

    \b
    canopy sync verify shop
    """
    from canopy.sync.databases import open_destination, open_source
    from canopy.sync.row_filter import RowFilter
    from canopy.sync.stream import ClientStream
    from canopy.sync.verification import SyncComparison

    (one,) = chosen(config, (name,))
    source_url, target_url = source_url or one.source, target_url or one.target
    if not (source_url and target_url):
        raise CommandError(
            f"{name} has one side on this machine: give the other one's URL by --from or --to"
        )
    with (
        open_client(one.connect or connect, wait, reconnect=timeout) as client,
        closing(open_source(one.name, source_url, one.tables)) as source,
        closing(open_destination(one.name, target_url)) as target,
        Display(quiet=as_json) as shown,
    ):
        stream = ClientStream(client, one.stream)
        shown.step("comparing")
        say = partial(shown.update, 0, None)
        comparison = SyncComparison(source, target, stream, RowFilter(one.where), say=say)
        found = comparison.run(timeout)
    if as_json:
        print_json({"identical": found.identical, **plain(found)})
        ctx.exit(OK if found.identical else FAILURE)
    for table, count in found.rows.items():
        differing = found.differing[table]
        click.echo(
            f"{table}: {count:,} rows, " + (f"{differing:,} differ" if differing else "same")
        )
    for row in found.differences:
        click.echo(f"  {row.table} {row.key}: {row.what}")
    if found.identical:
        click.echo(f"identical at position {found.position}")
    ctx.exit(OK if found.identical else FAILURE)

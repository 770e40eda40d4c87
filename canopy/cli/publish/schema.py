"""`canopy schema`: JSON Schemas that events must satisfy."""

from __future__ import annotations

from pathlib import Path

import click

from canopy.cli.connect import NodeOptions, format_option, json_option, node_options
from canopy.cli.constants import PUB_BATCH
from canopy.cli.errors import FAILURE, OK, WRONG
from canopy.cli.extras import require
from canopy.cli.hints import HintingGroup
from canopy.cli.output import console, label, print_json
from overlay.phrases import counted, visible


@click.group(cls=HintingGroup)
def schema() -> None:
    """Validate events against JSON Schemas before they are published.

    A node with schemas.dir in its configuration validates events of the type TYPE, which its
    programs publish or append, against the file TYPE.json of that folder. schemas.otherwise says
    how it treats events of other types.
    """


@schema.command()
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@click.argument("feeds", nargs=-1, metavar="[EVENTS | NAME=VALUE]...")
@format_option
@json_option
def check(file: str, feeds: tuple[str, ...], format_: str, as_json: bool) -> int:
    """Check the JSON Schema in FILE, and events that are given as to `canopy pub`.

    Events of any type are validated against FILE. The schema applies to the object of an event's
    attributes and nested fields; to `id` and `type` only if the schema names them. Exit code 9 if
    an event does not satisfy the schema, 1 if FILE is not a schema.

    \b
    canopy schema check quake.json
    canopy schema check quake.json mag=5.1 place=Nome
    canopy sample earthquakes | canopy schema check quake.json -
    """
    require("schema")
    from canopy.cli.publish.feed_batches import FeedTotals, open_sources, read_batches
    from canopy.schemas import EventSchemaError, Schema

    try:
        held = Schema(Path(file).read_bytes(), file)
    except (EventSchemaError, OSError) as error:
        click.echo(f"Error: {visible(str(error))}", err=True)
        return FAILURE
    totals = FeedTotals()
    wrong: list[dict[str, object]] = []
    count = 0
    if feeds:
        sources = open_sources(feeds, None)
        for name, events in read_batches(sources, format_, {}, PUB_BATCH, totals.refuse):
            for entry in events:
                count += 1
                if fault := held.fault(entry.draft):
                    at = {"file": name} if name else {}
                    wrong.append({**at, "line": entry.number, "reason": fault})
                    if not as_json:
                        place = f"{name}: " if name else ""
                        click.echo(f"{visible(place)}line {entry.number}: {visible(fault)}")
    for text in totals.repeated():
        click.echo(text, err=True)
    told = {"schema": file, "attributes": held.attributes, "events": count}
    if as_json:
        print_json({**told, "refused": totals.refused, "wrong": wrong})
    else:
        names = ", ".join(map(visible, held.attributes)) or "no names"
        click.echo(f"{visible(file)} is a JSON Schema with {names}", err=True)
        if count:
            click.echo(f"{counted(count, 'event')}, {len(wrong)} of them not so", err=True)
    return WRONG if wrong or totals.refused else OK


@schema.command("ls")
@node_options
def ls(node: NodeOptions) -> int:
    """List the types of events for which a node has schemas."""
    from overlay.operator_commands import GetSchemas, Schemas

    found = node.ask(GetSchemas(0), Schemas)
    if node.as_json:
        import json

        kept = [(one.type, json.loads(one.text)) for one in found.schemas]
        print_json([{"type": t, "schema": s, "otherwise": found.otherwise} for t, s in kept])
        return OK
    out = console()
    for one in found.schemas:
        out.print(f"[bold]{label(one.type)}[/]  {label(', '.join(one.attributes))}", soft_wrap=True)
    if not found.otherwise:
        out.print("This node has no schemas (schemas.dir in its configuration).", soft_wrap=True)
    else:
        becomes = {"refuse": "refused", "park": "parked", "count": "counted"}[found.otherwise]
        out.print(f"Events of these types that are not so are {becomes}.", soft_wrap=True)
    return OK

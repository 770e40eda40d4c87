"""`canopy stream dead`: the dead letters of groups. `canopy stream forget`: remove a group."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.errors import TIME_OUT, CommandError
from canopy.cli.output import TextTable, show
from canopy.feeds.objects import payload_fields
from overlay.phrases import counted, duration, visible

if TYPE_CHECKING:
    from overlay.stream_client import DeadLetter


def _rows(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, int], ...]:
    found = []
    for value in values:
        place = re.fullmatch(r"(?:(\d+):)?(\d+)", value)
        if place is None:
            raise click.BadParameter(f"{value} is no offset: give 1207, or SHARD:OFFSET")
        found.append((int(place[1] or 0), int(place[2])))
    return tuple(found)


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.option("--group", required=True, metavar="NAME", help="The consumer group.")
@click.option(
    "--retry",
    multiple=True,
    callback=_rows,
    metavar="[SHARD:]OFFSET",
    help="Deliver this one again; may be given several times.",
)
@click.option(
    "--drop",
    multiple=True,
    callback=_rows,
    metavar="[SHARD:]OFFSET",
    help="Give this one up; may be given several times.",
)
@click.option("--retry-all", is_flag=True, help="Deliver all of them again.")
@click.option("--drop-all", is_flag=True, help="Give all of them up.")
@node_options
def dead(
    name: str,
    group: str,
    retry: tuple[tuple[int, int], ...],
    drop: tuple[tuple[int, int], ...],
    retry_all: bool,
    drop_all: bool,
    node: NodeOptions,
) -> None:
    """List the dead letters of a group: events that its members have returned, or not acknowledged
    in time, too often. Only marks are kept for them; the events stay in the stream.

    \b
    canopy stream dead orders --group billing
    canopy stream dead orders --group billing --retry 1207
    canopy stream dead orders --group billing --drop-all
    """
    from overlay.stream_client import DeadEnded, EndDead, GetGroups, Groups

    if bool(retry) + bool(drop) + retry_all + drop_all > 1:
        raise click.UsageError("give one of --retry, --drop, --retry-all and --drop-all")
    with node.open() as client:
        if retry or drop or retry_all or drop_all:
            again = bool(retry) or retry_all
            ended = client.ask(
                EndDead(0, name, group, retry or drop, again), DeadEnded, node.timeout
            )
            what = "delivered again" if again else "dropped"
            said = f"{counted(ended.count, 'dead letter')} of {visible(group)}: {what}"
            told = {"group": group, "count": ended.count, "what": what}
            show(told, node.as_json, said)
            return
        found = client.ask(GetGroups(0, name, group), Groups, node.timeout)
    rows = TextTable(">offset", ">deliveries", "given up", "why", "event").of(
        map(_row, found.letters)
    )
    none = f"{visible(group)} has no dead letters"
    show([letter_object(letter) for letter in found.letters], node.as_json, rows or none)
    if not found.complete:
        raise CommandError("the leader of a shard did not answer: there may be others", TIME_OUT)


def letter_object(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as the JSON object of `dead --json`."""
    found: dict[str, Any] = {
        "shard": letter.shard,
        "offset": letter.offset,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "time": letter.time,
        "attributes": letter.attributes,
    }
    if letter.payload:
        found |= payload_fields(letter.payload, letter.payload_type)
    return found


def _row(letter: DeadLetter) -> tuple[str | int, ...]:
    place = f"{letter.shard}:{letter.offset}" if letter.shard else f"{letter.offset}"
    age = duration(max(0.0, time.time() - letter.time))
    event = "not kept any more, or too large"
    if letter.attributes is not None:
        event = ", ".join(f"{key}={value}" for key, value in letter.attributes.items())
    return place, letter.deliveries, f"{age} ago", letter.reason, event


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.option("--group", required=True, metavar="NAME", help="The consumer group.")
@node_options
def forget(name: str, group: str, node: NodeOptions) -> None:
    """Remove a consumer group. Its members are ended, and the stream no longer keeps events for it.

    \b
    canopy stream forget orders --group billing
    """
    from overlay.client import Done
    from overlay.stream_client import RemoveGroup

    node.ask(RemoveGroup(0, name, group), Done)
    show({"forgotten": group}, node.as_json, f"{visible(group)} is forgotten")

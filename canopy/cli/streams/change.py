"""`canopy stream edit` and `edit-group`: change the options of a stream or of a consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.output import plain, show
from canopy.cli.parameters import parse_period
from canopy.cli.streams.options import changeable_options
from canopy.cli.streams.share import parse_delay
from overlay.phrases import duration, visible

if TYPE_CHECKING:
    from overlay.info import GroupInfo


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@changeable_options(is_new=False)
@node_options
def edit(name: str, node: NodeOptions, **options: Any) -> None:
    """Change a stream's options. Options that are not given stay. 0 keeps everything: it is no
    bound.

    Rows that a shorter --keep-for or --keep-size no longer keeps are deleted within seconds, for
    good. A new --capture applies when the command returns; the former one ends after that, so that
    no event is missed in between.

    Shards, replicas, --key, --source and --mirror cannot be changed: they determine where rows are
    and what they mean. Found another stream, with this one as its --source.

    \b
    canopy stream edit alarms --keep-for 7d
    canopy stream edit quakes --capture "mag > 6"
    """
    from canopy.client.streams.management import bounds
    from overlay.client import Streams
    from overlay.stream_client import EditStream

    if all(given is None for given in options.values()):
        raise click.UsageError("nothing to change: give an option, such as --keep-for")
    found = node.ask(EditStream(0, name, **options), Streams).streams[0]
    kept = duration(found.keep_seconds) if found.keep_seconds else "ever"
    size = f"{found.keep_bytes:,} bytes of each shard" if found.keep_bytes else "any size"
    said = [f"{name} keeps rows for {kept}, {size}", *bounds(found)]
    said += [f"captures {found.capture}"] if found.capture else []
    show(plain(found), node.as_json, *map(visible, said))


# --- `canopy stream edit-group`: change the options of a consumer group that has members ---

FOR_GOOD = (
    "a group begins where it was founded: another place would give up rows, or deliver such again "
    "as are acknowledged. Found another group with --from"
)


@click.command("edit-group")
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.option("--group", required=True, metavar="NAME", help="The consumer group.")
@click.option("--selector", metavar="SELECTOR", help='Selector of new events; "": all of them.')
@click.option(
    "--lease",
    callback=parse_period,
    metavar="PERIOD",
    help="Time in which a member must acknowledge an event.",
)
@click.option(
    "--max-deliver",
    type=click.IntRange(1, 1_000),
    help="Deliveries before an event is a dead letter.",
)
@click.option("--priority", metavar="ATTRIBUTE", help='0 to 9, the greatest first; "": none.')
@click.option(
    "--delay",
    callback=parse_delay,
    metavar="ATTRIBUTE|SECONDS",
    help="How long an event waits before it is delivered; 0: not at all.",
)
@click.option("--by", hidden=True)
@click.option("--from", "start", hidden=True)
@node_options
def edit_group(name: str, group: str, start: str | None, node: NodeOptions, **changes: Any) -> None:
    """Change a consumer group while its members work. Options that are not given stay. The new ones
    apply in all shards when the command returns.

    Nothing is lost or acknowledged again. A present lease ends at its former time; waiting events
    follow the new order and the new delay. A new --selector applies to events that are appended
    from now on; for earlier events, dead letters included, the former selector stays in force.

    --by cannot be changed, since events of one key may be at several members by now, nor can the
    position where the group begins.

    \b
    canopy stream edit-group orders --group billing --lease 2m --max-deliver 10
    canopy stream edit-group orders --group billing --selector "total > 200"
    canopy stream edit-group orders --group billing --priority urgency --delay 0
    """
    from overlay.stream_client import GetGroups, Groups

    if start is not None:
        raise click.UsageError(FOR_GOOD)
    if all(given is None for given in changes.values()):
        raise click.UsageError("nothing to change: give an option, such as --lease")
    with node.open() as client:
        client.edit_group(name, group, timeout=node.timeout, **changes)
        found = client.ask(GetGroups(0, name, group), Groups, node.timeout).groups[0]
    show(plain(found), node.as_json, *map(visible, described(found)))


def described(group: GroupInfo) -> list[str]:
    """Return sentences about a group's options, and about former selectors that still apply to
    rows."""
    from canopy.client.streams.management import former_selectors, founded_with

    what = group.selector or "all events"
    return [f"{group.name} gets {what}: {founded_with(group)}", *former_selectors(group)]

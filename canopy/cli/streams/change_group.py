"""`canopy stream edit-group`: change the options of a consumer group that has members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from canopy.cli.connect import node_options, open_client
from canopy.cli.output import console, label, plain, print_json
from canopy.cli.streams.manage import parse_period
from canopy.cli.streams.share import parse_delay

if TYPE_CHECKING:
    from overlay.info import GroupInfo

FOR_GOOD = (
    "a group begins where it was founded: another place would give up rows, or deliver such again "
    "as are acknowledged. Found another group with --from"
)


@click.command("edit-group")
@click.argument("name", metavar="STREAM")
@click.option("--group", required=True, metavar="NAME", help="The consumer group.")
@click.option("--selector", metavar="SELECTOR", help='Which new events it gets; "": all of them.')
@click.option(
    "--lease", callback=parse_period, metavar="PERIOD", help="Who has an event, has it so long."
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
def edit_group(
    name: str,
    group: str,
    start: str | None,
    as_json: bool,
    timeout: float,
    connect: str | None,
    wait: float,
    **changes: Any,
) -> None:
    """Change a consumer group while its members work; what is not given stays. The new options hold
    in all shards when the command returns.

    Nothing is lost or acknowledged anew: a lease that is under way ends when it would have, and
    events that wait come in the new order and after the new delay. A new --selector is for events
    that are appended from now on; those before it go by the former one, also as dead letters.

    --by is for good, since events of one key may be with several members by now, and so is where
    the group begins.

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
    with open_client(connect, wait) as client:
        client.edit_group(name, group, timeout=timeout, **changes)
        found = client.ask(GetGroups(0, name, group), Groups, timeout).groups[0]
    if as_json:
        print_json(plain(found))
    else:
        for line in described(found):
            console().print(label(line), soft_wrap=True)


def described(group: GroupInfo) -> list[str]:
    """A group with its options, and the former selectors that rows of it still go by."""
    from canopy.client.streams.wording import former_selectors, founded_with

    what = group.selector or "all events"
    return [f"{group.name} gets {what}: {founded_with(group)}", *former_selectors(group)]

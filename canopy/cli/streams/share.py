"""`canopy sub --stream --group`: read a stream as a member of a consumer group."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from canopy.cli.parameters import parse_period
from canopy.cli.streams.read import Following, FollowOptions, place_of
from canopy.feeds.objects import stream_object

if TYPE_CHECKING:
    from canopy.cli.subscribe.delivery import Show
    from canopy.client.streams.membership import Member
    from overlay.stream_client import GroupRow

PART: Final = 64
"""The number of events that are printed before they are acknowledged together."""


class GroupNotice(NamedTuple):
    """The options of a group; false if none was given."""

    group: str
    lease: float | None
    max_deliver: int | None
    by: str | None
    priority: str | None
    delay: str | float | None

    def __bool__(self) -> bool:
        return bool(self.group) or any(value is not None for value in self[1:])


def parse_delay(
    ctx: click.Context, option: click.Parameter, value: str | None
) -> str | float | None:
    """Parse `--delay`: seconds, or the name of an attribute."""
    number = value is not None and re.fullmatch(r"\d+(?:\.\d+)?", value)
    return float(value) if value is not None and number else value


OPTIONS: Final = (
    click.option(
        "--group", metavar="NAME", default="", help="With --stream: share its events in a group."
    ),
    click.option(
        "--lease",
        callback=parse_period,
        metavar="PERIOD",
        help="With --group: time in which a member must acknowledge an event. [default: 30s]",
    ),
    click.option(
        "--max-deliver",
        type=click.IntRange(1, 1_000),
        help="With --group: deliveries before an event is a dead letter. [default: 5]",
    ),
    click.option("--by", metavar="ATTRIBUTE", help="With --group: in order, where it is the same."),
    click.option(
        "--priority", metavar="ATTRIBUTE", help="With --group: 0 to 9, the greatest first."
    ),
    click.option(
        "--delay",
        callback=parse_delay,
        metavar="ATTRIBUTE|SECONDS",
        help="With --group: how long an event waits before it is delivered.",
    ),
)


def group_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of groups to a command, as one parameter `shared`."""

    @functools.wraps(command)
    def called(*arguments: Any, **given: Any) -> Any:
        shared = GroupNotice(*(given.pop(name) for name in GroupNotice._fields))
        return command(*arguments, shared=shared, **given)

    for option in reversed(OPTIONS):
        called = option(called)
    return called


def share_stream(wanted: FollowOptions, shared: GroupNotice, show: Show) -> int:
    """Print the events that the group delivers to this member. Returns the exit code. Raises
    UsageError."""
    from matching import compile_selector

    if not (wanted.stream and shared.group):
        raise click.UsageError(
            "--lease, --max-deliver, --by, --priority and --delay need --group, "
            "and that needs --stream"
        )
    if wanted.durable:
        raise click.UsageError("give one of --durable and --group")
    start, at = place_of(wanted.start)
    if start == "keys":
        raise click.UsageError("--from keys goes without --group: it shares the rows of the log")
    if wanted.selector:
        compile_selector(wanted.selector)
    following = Following(wanted, show)
    credit = PART if wanted.most is None else min(PART, wanted.most)
    with (
        wanted.node.open(reconnect=wanted.patience) as client,
        client.group(
            wanted.stream,
            shared.group,
            wanted.selector,
            timeout=wanted.patience,
            start=start,
            at=at,
            credit=credit,
            lease=shared.lease,
            max_deliver=shared.max_deliver,
            by=shared.by,
            priority=shared.priority,
            delay=shared.delay,
        ) as member,
    ):
        selector = member.selector or "all events"
        click.echo(f"sharing {wanted.stream} in {shared.group}: {selector}", err=True)
        _follow(member, following)
    return following.code


def _follow(member: Member, following: Following) -> None:
    """Print rows as they are delivered, and acknowledge them."""
    while rest := following.rest():
        left = following.left
        rows = member.take(rest, PART if left is None else min(PART, left))
        following.say(member.waits)
        following.show(rows, row_object)
        if not following.is_gone:
            member.ack(*rows)
    member.flush()
    for shard, offset in member.lost:
        click.echo(
            f"offset {offset} of shard {shard} was printed too late: it comes again", err=True
        )


def row_object(stream: str, row: GroupRow) -> dict[str, Any]:
    """Return one event as the JSON object of `sub --group --json`."""
    return {**stream_object(stream, row), "deliveries": row.deliveries}

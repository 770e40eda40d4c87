"""The options by which a stream is founded and changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from canopy.cli.parameters import parse_period, parse_size

F = TypeVar("F", bound=Callable[..., Any])


def changeable_options(is_new: bool) -> Callable[[F], F]:
    """Add the options of a stream that can be changed later. An option that is not given has its
    default for a new stream, else None."""

    def unless_given(value: Any) -> Any:
        return value if is_new else None

    def period(*names: str, **more: Any) -> Callable[[F], F]:
        default = unless_given("0")
        return click.option(
            *names, default=default, callback=parse_period, metavar="PERIOD", **more
        )

    def size(*names: str, **more: Any) -> Callable[[F], F]:
        return click.option(
            *names, default=unless_given("0"), callback=parse_size, metavar="SIZE", **more
        )

    options = (
        period("--keep-for", "keep_seconds", help="Keep rows for this time, such as 30d."),
        size("--keep-size", "keep_bytes", help="Keep this much of each shard, such as 20G."),
        click.option(
            "--capture",
            default=unless_given(""),
            metavar="SELECTOR",
            help='Append the published events that match; "": none.',
        ),
        click.option(
            "--drop-unread/--keep-unread",
            default=unless_given(False),
            help="Drop or keep old rows that durable consumers have not read.",
        ),
        period(
            "--expire-consumers",
            help="Forget durable consumers after this time of silence, such as 7d.",
        ),
        size("--max-bytes", help="Maximum size of a shard, such as 20G."),
        click.option(
            "--max-rows",
            type=int,
            default=unless_given(0),
            metavar="ROWS",
            help="Maximum rows of a shard.",
        ),
        click.option(
            "--when-full",
            type=click.Choice(["refuse", "drop-oldest"]),
            default=unless_given("refuse"),
            help="Refuse new rows (at first), or drop the oldest.",
        ),
        period("--ttl", "ttl_seconds", help="Deliver no row older than this, such as 24h."),
        click.option(
            "--ttl-by",
            default=unless_given(""),
            metavar="ATTRIBUTE",
            help='Attribute that holds a row\'s own time to live, in seconds; "": none.',
        ),
        click.option(
            "--prefer",
            type=click.Choice(["consistency", "availability"]),
            default=unless_given("consistency"),
            help="Without a majority: refuse rows (at first), or take them into a fork.",
        ),
        click.option(
            "--writer",
            "writers",
            multiple=True,
            callback=lambda ctx, option, value: value if is_new else value or None,
            metavar="WRITER",
            help="Who may append: producer:NAME, node:ID, tenant:NAME, or * for anybody; "
            "repeatable.",
        ),
    )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add

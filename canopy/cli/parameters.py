"""Parameters of several commands: numbers, sizes, periods, and the option `--set NAME=VALUE`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from msgspec import Struct

Parameters = TypeVar("Parameters", bound="Struct")
"""A struct of values and groups of values."""

MOST: Final = 1e9
"""The largest number of seconds or of events per second that is kept: some 30 years. No timer of
the system takes infinity, and each takes this."""


class Number(click.FloatRange):
    """A number within a range: seconds, or a rate. Infinity is `MOST`; NaN, which every comparison
    with an end of the range lets pass, is refused."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        """Return the number; UsageError for a text that is none, and outside of the range."""
        found = float(super().convert(value, parameter, context))
        if math.isnan(found):
            self.fail(f"{value} is not a number.", parameter, context)
        return min(found, MOST)


UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

LONGEST: Final = 1e11
"""The longest period in seconds: 3,000 years, after which a date still has four digits."""


def parse_size(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Return the bytes of an option such as 512M."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b)?", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"{value} is no size: give bytes, or 512M, 20G")
    return int(found[1]) * UNITS[found[2]]


def parse_period(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of an option such as 12h."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"{value} is no period: give seconds, or 90m, 12h, 30d")
    seconds = float(found[1]) * SECONDS[found[2]]
    if seconds > LONGEST:
        raise click.BadParameter(f"{value} is longer than 3,000 years")
    return seconds


set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a parameter, named as in the JSON: nodes=1000, load.zipf=0.9, x=[100,200].",
)


def changed(parameters: Parameters, changes: tuple[str, ...]) -> Parameters:
    """Return the parameters after `name=value` changes. Raises UsageError for an unknown name or a
    wrong type."""
    import msgspec
    import yaml

    facts = msgspec.to_builtins(parameters)
    for change in changes:
        name, _, value = change.partition("=")
        *groups_above, leaf = name.split(".")
        place = facts
        for group in groups_above:
            place = place.get(group) if isinstance(place, dict) else None
        if not isinstance(place, dict) or leaf not in place:
            groups = [(name, inner) for name, inner in facts.items() if isinstance(inner, dict)]
            names = [*facts, *(f"{name}.{leaf}" for name, inner in groups for leaf in inner)]
            raise click.UsageError(f"--set {change}: there is no {name!r}; known are {names}")
        place[leaf] = yaml.safe_load(value)
    try:
        return msgspec.convert(facts, type(parameters))
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--set: {error}") from None

"""The option `--set NAME=VALUE`, which changes one of many parameters of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from msgspec import Struct

Parameters = TypeVar("Parameters", bound="Struct")
"""A struct of values and groups of values."""

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

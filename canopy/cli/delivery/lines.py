"""How `canopy sub` prints a delivery: for people, as JSON, by a template, or as a whole event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import click

from canopy.cli.output import print_json, printable
from canopy.client.seals import said_of, seal_of
from canopy.feeds.objects import delivery_object

if TYPE_CHECKING:
    from canopy.cli.delivery.template import Template
    from overlay.client import Delivery

Show: TypeAlias = "Callable[[Delivery], None]"


def template_of(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> Template | None:
    """The value of `--format`, parsed. Raises BadParameter."""
    if value is None:
        return None
    from canopy.cli.delivery.template import Template, TemplateError

    try:
        return Template(value)
    except TemplateError as error:
        raise click.BadParameter(str(error)) from None


def printer(first: tuple[str, ...], template: Template | None, raw: bool, as_json: bool) -> Show:
    """What prints one delivery; `first`: the attributes that people see first."""
    if template is not None:
        return lambda delivery: _echo(template.render(delivery))
    if raw:
        from canopy.feeds.raw import raw_object

        return lambda delivery: print_json(raw_object(delivery.event))
    if as_json:
        return lambda delivery: print_json(delivery_object(delivery))
    return lambda delivery: _print(delivery, first)


def _echo(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def warn_of_absent(template: Template | None) -> None:
    """Name the attributes of the template that no event had: perhaps they are misspelt."""
    if template is None or not template.rendered:
        return
    from difflib import get_close_matches

    from canopy.cli.delivery.template import FIELDS

    for name in template.absent:
        near = get_close_matches(name, FIELDS, 1)
        hint = f"; did you mean {{{near[0]}}}?" if near else ""
        print(f"! no event had an attribute {printable(name)}{hint}", file=sys.stderr, flush=True)


def _print(delivery: Delivery, first: tuple[str, ...]) -> None:
    event = delivery.event
    clock = time.strftime("%H:%M:%S", time.localtime(event.time))
    shown = [name for name in first if name in event.attributes]
    shown += [name for name in event.attributes if name not in shown]
    fields = [
        f"{printable(name)}={printable(event.attributes[name])}"
        for name in shown
        if name not in ("id", "type") and event.attributes[name] is not None
    ]
    identity = printable(event.attributes.get("id"))
    kind = printable(event.attributes.get("type"))
    said = said_of(event) if seal_of(event) != "opened" else ""
    if said:
        fields.append(click.style(f"(the payload {said})", dim=True))
    _echo(
        f"{clock}  {click.style(identity, bold=True)}  {click.style(kind, fg='cyan')}  "
        f"{' '.join(fields)}"
    )

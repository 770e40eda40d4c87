"""Prints deliveries of `canopy sub`: for people, as JSON, by a template, or as a whole event."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from canopy.cli.output import print_json, printable
from canopy.client.seals import said_of, seal_of
from canopy.feeds import id_text
from canopy.feeds.objects import delivery_object, payload_text
from overlay.phrases import visible

if TYPE_CHECKING:
    from overlay.client import Delivery


# --- templates of `canopy sub --format`: text with names in braces, filled in for each event ---

TOKEN: Final = re.compile(
    r"""\{\{ | \}\} | \\. | \\$ | \{ (?P<name> "(?:[^"]|"")*" | [^{}"]* ) \} | [{}]""", re.VERBOSE
)
PLAIN: Final = re.compile(r"[^\W\d][\w.@/-]*")
ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "{{": "{", "}}": "}"}


class TemplateError(ValueError):
    """A template is invalid; the message says where and why."""


def published_at(seconds: float) -> str:
    """Return a time in UTC in the format of RFC 3339, with milliseconds."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{thousandths:03d}Z"


def _attributes(delivery: Delivery) -> str:
    return json.dumps(delivery.event.attributes, ensure_ascii=False, separators=(",", ":"))


FIELDS: Final[dict[str, Callable[[Delivery], str]]] = {
    "event": lambda d: d.event.identity,
    "subscription": lambda d: d.subscription,
    "time": lambda d: published_at(d.event.time),
    "latency_ms": lambda d: f"{d.latency_ms:.3f}",
    "hops": lambda d: str(d.hops),
    "attributes": _attributes,
    "payload": lambda d: payload_text(d.event.payload),
    "payload_type": lambda d: d.event.payload_type,
}
"""Names in templates that mean a field of the delivery. An attribute of such a name is written in
double quotes."""


class Template:
    """A parsed template. `rendered`: the number of events it was applied to; `absent`: its
    attributes that no event had so far."""

    def __init__(self, text: str) -> None:
        """Parse `text`. Raises TemplateError with the column of the error."""
        self._parts: list[Callable[[Delivery], str]] = []
        self.absent: dict[str, None] = {}
        self.rendered = 0
        end = 0
        for token in TOKEN.finditer(text):
            self._literal(text[end : token.start()])
            end = token.end()
            name = token["name"]
            if name is not None:
                self._field(name, token.start() + 1)
            elif token[0] in ESCAPES:
                self._literal(ESCAPES[token[0]])
            else:
                raise TemplateError(_unknown(token[0], token.start() + 1))
        self._literal(text[end:])

    def render(self, delivery: Delivery) -> str:
        """Return the text of one delivery. Absent attributes and NULL are empty. Unprintable
        characters in values are escaped, so that a value cannot end the line."""
        self.rendered += 1
        for name in [name for name in self.absent if name in delivery.event.attributes]:
            del self.absent[name]
        return "".join([part(delivery) for part in self._parts])

    def _literal(self, text: str) -> None:
        if text:
            self._parts.append(lambda delivery: text)

    def _field(self, name: str, column: int) -> None:
        if name in FIELDS:
            field = FIELDS[name]
            self._parts.append(lambda delivery: visible(field(delivery)))
            return
        if name.startswith('"'):
            attribute = name[1:-1].replace('""', '"')
        elif PLAIN.fullmatch(name):
            attribute = name
        else:
            raise TemplateError(
                f"column {column}: {{{name}}} is no name; expected an attribute, in double quotes "
                f"unless it is an identifier, or one of {', '.join(FIELDS)}"
            )
        self.absent[attribute] = None
        self._parts.append(
            lambda delivery: visible(id_text(delivery.event.attributes.get(attribute)))
        )


def _unknown(token: str, column: int) -> str:
    """Return the error message for a single brace or an unknown escape."""
    if token in ("{", "}"):
        return f"column {column}: unmatched {token}; a brace itself is written {token}{token}"
    return f"column {column}: unknown escape {token}; there are \\n, \\t and \\\\"


Show: TypeAlias = "Callable[[Delivery], None]"


def template_of(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> Template | None:
    """The value of `--format`, parsed. Raises BadParameter."""
    if value is None:
        return None
    try:
        return Template(value)
    except TemplateError as error:
        raise click.BadParameter(str(error)) from None


def printer(first: tuple[str, ...], template: Template | None, raw: bool, as_json: bool) -> Show:
    """Return the function that prints a delivery. `first`: the attributes that are printed first
    for people."""
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
    """Warn of attributes of the template that no event had: perhaps they are misspelt."""
    if template is None or not template.rendered:
        return
    from difflib import get_close_matches

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

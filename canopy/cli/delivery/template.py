"""Templates of `canopy sub --format`: text with names in braces, filled in for each event."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from canopy.cli.output import visible
from canopy.feeds import id_text
from canopy.feeds.objects import payload_text

if TYPE_CHECKING:
    from overlay.client import Delivery

TOKEN: Final = re.compile(
    r"""\{\{ | \}\} | \\. | \\$ | \{ (?P<name> "(?:[^"]|"")*" | [^{}"]* ) \} | [{}]""", re.VERBOSE
)
PLAIN: Final = re.compile(r"[^\W\d][\w.@/-]*")
ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "{{": "{", "}}": "}"}


class TemplateError(ValueError):
    """A template makes no sense; the message says where and why."""


def published_at(seconds: float) -> str:
    """A time in UTC as in RFC 3339, with milliseconds."""
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
"""Names that are no attributes; an attribute of such a name is written in double quotes."""


class Template:
    """A parsed template. `rendered`: for how many events; `absent`: its attributes that none of
    them had."""

    def __init__(self, text: str) -> None:
        """Parse `text`. Raises TemplateError, which names the column of what is wrong."""
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
        """The template for one delivery. Absent attributes and NULL are empty; in values,
        unprintable characters are escaped, so that a value cannot end the line."""
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
    """What is wrong with a brace that stands alone, or an escape."""
    if token in ("{", "}"):
        return f"column {column}: unmatched {token}; a brace itself is written {token}{token}"
    return f"column {column}: unknown escape {token}; there are \\n, \\t and \\\\"

"""Topic filters as selectors (MQTT 5.0, section 4.7), and filters that are selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from matching.selector.unparse import quote_value

TOPIC: Final = "topic"
"""The attribute that has a message's topic."""

WHERE: Final = "$where/"
"""The prefix of a filter that is a selector: ``$where/mag >= 4.5``. Since a filter may have + and #
only at certain places, they are written %2B and %23, and a % before such digits %25."""

GAP: Final = "$gap"
"""The topic of notices about gaps, for clients that subscribe to it."""

ESCAPED: Final = re.compile("%(23|2[Bb]|25)")


class TopicFilterError(ValueError):
    """A topic filter is invalid; the message says why."""


class Filter(msgspec.Struct, frozen=True):
    """The meaning of a topic filter. `admits`: whether a topic that the selector matches is
    included; None: all are. (LIKE cannot express *one level*.)"""

    selector: str
    admits: Callable[[str], bool] | None = None


def parse_filter(text: str) -> Filter:
    """Return the selector of a topic filter. Raises TopicFilterError."""
    if text.startswith(WHERE):
        selector = ESCAPED.sub(lambda found: chr(int(found[1], 16)), text[len(WHERE) :])
        if not selector.strip():
            raise TopicFilterError(f"{WHERE} is followed by a selector")
        return Filter(selector)
    if text.startswith("$"):
        raise TopicFilterError(f"{text}: of topics with $ there are {WHERE}SELECTOR and {GAP}")
    if not text:
        raise TopicFilterError("a topic filter has one character at least")
    levels = text.split("/")
    for place, level in enumerate(levels):
        if level not in ("+", "#") and ("+" in level or "#" in level):
            raise TopicFilterError(f"{text}: + and # stand for whole levels")
        if level == "#" and place < len(levels) - 1:
            raise TopicFilterError(f"{text}: # is the last level")
    return Filter(_selector(levels), _exactly(levels) if "+" in levels else None)


def _selector(levels: list[str]) -> str:
    """Return a condition on the topic that every match of these levels satisfies."""
    if levels == ["#"]:
        return f"{TOPIC} NOT LIKE '$%'"
    deep = levels[-1] == "#"
    fixed = "/".join(levels[:-1] if deep else levels)
    found = f"{TOPIC} LIKE {_pattern(fixed)}" if "+" in fixed else f"{TOPIC} = {quote_value(fixed)}"
    return f"{found} OR {TOPIC} LIKE {_pattern(fixed, '/%')}" if deep else found


def _pattern(levels: str, end: str = "") -> str:
    """Return the LIKE pattern of a filter's levels; a + of the filter becomes any text."""
    plain = re.sub(r"([\\%_])", r"\\\1", levels).replace("+", "%")
    return quote_value(plain + end) + " ESCAPE '\\'"


def _exactly(levels: list[str]) -> Callable[[str], bool]:
    deep = levels[-1] == "#"
    fixed = levels[:-1] if deep else levels
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in fixed]
    if fixed and fixed[0] == "+":
        parts[0] = r"(?!\$)[^/]*"  # a wildcard does not stand for topics with $ (4.7.2)
    whole = re.compile("/".join(parts) + ("(/.*)?" if deep else ""), re.DOTALL)
    return lambda topic: whole.fullmatch(topic) is not None

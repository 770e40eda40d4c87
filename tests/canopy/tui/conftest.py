"""Style sheets are parsed once for all apps of a process: Textual parses those of all its widgets
three times per app, a seventh of a test's processor time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

parse_rules = Stylesheet._parse_rules
PARSED: dict[tuple[object, ...], list[RuleSet]] = {}
"""The rules, which nothing changes, of each source with the colours of each theme."""


def parse_rules_once(
    self: Stylesheet, css: str, read_from: CSSLocation, *options: object, **named: object
) -> list[RuleSet]:
    source = (css, read_from, *options, *named.items(), *self._variables.items())
    if source not in PARSED:
        PARSED[source] = parse_rules(self, css, read_from, *options, **named)
    return PARSED[source]


@pytest.fixture(scope="package", autouse=True)
def styles_are_parsed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_rules_once)
        yield

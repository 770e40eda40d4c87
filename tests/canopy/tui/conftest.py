"""What Textual does in vain where there is no terminal.

Style sheets are parsed once for all apps of a process: Textual parses those of all its widgets
three times per app, a seventh of a test's processor time. And the screen is drawn when a test looks
at it (`Rig.text`, at the latest at its end): without a terminal Textual draws each change and
throws the drawing away, a third of a test's processor time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual._compositor import Compositor
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


def draw_nothing(self: Compositor, *options: object, **named: object) -> None:
    self._dirty_regions.clear()


@pytest.fixture(scope="package", autouse=True)
def nothing_is_done_in_vain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_rules_once)
        patch.setattr(Compositor, "render_update", draw_nothing)
        yield

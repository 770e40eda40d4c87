"""The help texts of counters, read from docs/reference/counters.md: one source for both.

In a checkout ``counters.md`` beside this file is a link to that page; in an installed package it is
the page itself.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final

PAGE: Final = "counters.md"
ROW: Final = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|$", re.MULTILINE)
LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")

NOT_COUNTS: Final = {
    "longest_turn": "Longest turn of the node since it listens, with what it wrote to its disk",
    "longest_turn_cpu": "Most processor time that one turn of the node took since it listens",
}
"""Names on the page that are no counts but milliseconds, with their texts."""


@cache
def help_texts() -> dict[str, str]:
    """By the name of a counter what it counts, in the order of the page."""
    return parse(resources.files(__package__).joinpath(PAGE).read_text(encoding="utf-8"))


def parse(page: str) -> dict[str, str]:
    """The rows of the page's tables as plain text. Where a row has several names and as many parts
    between semicolons, each name gets its part; else all get the row."""
    found: dict[str, str] = {}
    for names, text in ROW.findall(page):
        counters = re.findall(r"`(\w+)`", names)
        plain = LINK.sub(r"\1", text).replace("**", "").replace("`", "")
        parts = [part.strip() for part in plain.split(";")]
        each = parts if len(parts) == len(counters) > 1 else [plain] * len(counters)
        for name, part in zip(counters, each, strict=True):
            if name not in NOT_COUNTS:
                found[name] = part[:1].upper() + part[1:]
    return found

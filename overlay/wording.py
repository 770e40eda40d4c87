"""Numbers in sentences for people: what a node answers, and what is printed or shown."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """`number` with its noun: 1 link, 2 links, 1,000 deliveries. `many`: the plural, if it is not
    `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"

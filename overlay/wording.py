"""Numbers in sentences for people: what a node answers, and what is printed or shown."""

from __future__ import annotations

from typing import Final

UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def counted(number: int, one: str, many: str | None = None) -> str:
    """`number` with its noun: 1 link, 2 links, 1,000 deliveries. `many`: the plural, if it is not
    `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def no_majority(stream: str, answering: int, replicas: int, shard: int | None = None) -> str:
    """Why nothing can be written to a stream, the same wherever it is said. `shard`: which one, of
    a stream with several."""
    which = stream if shard is None else f"shard {shard} of {stream}"
    return f"no majority: {answering} of {replicas} replicas of {which} answer"


def duration(seconds: float) -> str:
    """Seconds in the largest fitting unit: 12 s, 3 min, 2 h, 5 d."""
    for unit, size in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

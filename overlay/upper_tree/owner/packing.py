"""C6: which virtual nodes share a host.

An event visits each host once, with all of its attributes that have a virtual node there. So what
is visited together should be together. Two popular attributes are in one event far more often than
two rare ones: packed in order of popularity, the trees that most events visit are all on one host,
and the rare ones, which few events visit, are spread over the others.

The order is that of popularity, not of size: with pivots.py the trees of the most popular
attributes are the smallest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from overlay.chord.keys import attribute_key

Part = TypeVar("Part")


def by_popularity(attributes: Iterable[str], popularity: Mapping[str, int]) -> list[str]:
    """Most asked for first; equals by the hash of the name, so that all nodes agree."""
    return sorted(attributes, key=lambda name: (-popularity.get(name, 0), attribute_key(name)))


def pack(parts: Iterable[tuple[Part, int]], room: int) -> list[list[Part]]:
    """Cut a sequence of (part, registrations) into runs of at most `room` registrations each.

    A part that is larger than `room` has a run of its own. The order is kept, so neighbours stay
    together; filling gaps with later parts would save a few hosts and cost visits.
    """
    runs: list[list[Part]] = []
    filled = 0
    for part, registrations in parts:
        if not runs or filled + registrations > room:
            runs.append([])
            filled = 0
        runs[-1].append(part)
        filled += registrations
    return runs

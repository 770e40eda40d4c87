"""Names of regions, and which region an event enters on its way to a node (M1).

A region is a path: ``eu/de`` lies in ``eu``. An event that leaves a node for others passes from the
region that holds both ends into the next one that holds the recipients only, and so on: each level
of the path is one level of Minos' tandem brokers (docs/design/regions.md). A node without a region
is in its own, alone.
"""

from __future__ import annotations

from functools import lru_cache

PAIRS_KEPT = 4_096
"""Pairs of regions for which the answer is kept: 64 regions with each other. By what splitting two
short texts costs, a microsecond."""


@lru_cache(PAIRS_KEPT)
def entered(mine: str, theirs: str) -> str:
    """The widest region that holds a node in `theirs` and none in `mine`: an event for that node
    crosses its border first. "" if there is no border to cross, or `theirs` is no region.

    entered("us", "eu/de") is "eu"; entered("eu/fr", "eu/de") is "eu/de". From inside a region the
    nodes that are in no part of it are a part of their own: entered("eu/de", "eu") is "eu".
    """
    if mine == theirs:
        return ""
    return "/".join(_path(theirs)[: _common(mine, theirs) + 1])


@lru_cache(PAIRS_KEPT)
def distance(one: str, other: str) -> int:
    """Return how many borders an event crosses from one region to another: 0 within one, 2 between
    ``eu/fr`` and ``eu/de``."""
    return len(_path(one)) + len(_path(other)) - 2 * _common(one, other)


def _path(region: str) -> list[str]:
    return region.split("/") if region else []


def _common(one: str, other: str) -> int:
    """Return how many levels two regions have in common."""
    common = 0
    for mine, theirs in zip(_path(one), _path(other), strict=False):
        if mine != theirs:
            break
        common += 1
    return common


def holds(region: str, other: str) -> bool:
    """Whether the region `other` is `region`, or lies in it, as ``eu/de`` does in ``eu``."""
    return other == region or other.startswith(f"{region}/")

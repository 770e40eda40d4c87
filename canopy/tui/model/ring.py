"""The geometry of the ring (P2): which share of the keys each cluster owns, and where it lies.

A cluster owns the keys after its `start` up to and including its `key`; keys are SHA-1, 160 bits.
Angles are fractions of the circle, clockwise from the top, where key 0 lies.
"""

from __future__ import annotations

from typing import NamedTuple

from overlay.info import ClusterInfo

BITS = 160  # SHA-1
HEX = BITS // 4


class Arc(NamedTuple):
    """One cluster's piece of the circle; `begin` + `share` may pass 1.0 (over the top)."""

    begin: float
    share: float

    def holds(self, place: float) -> bool:
        """Whether the fraction `place` of the circle lies here."""
        return (place - self.begin) % 1.0 < self.share or self.share >= 1.0

    @property
    def middle(self) -> float:
        """The fraction in its middle."""
        return (self.begin + self.share / 2) % 1.0


def fraction(key: str) -> float:
    """Where a key of 40 hex digits lies; 0.0 for a text that is no key."""
    try:
        return int(key[:HEX].ljust(HEX, "0"), 16) / (1 << BITS)
    except ValueError:
        return 0.0


def arc(cluster: ClusterInfo) -> Arc:
    """A cluster whose start is its own key owns everything."""
    begin = fraction(cluster.start)
    share = (fraction(cluster.key) - begin) % 1.0
    return Arc(begin, share if cluster.start != cluster.key else 1.0)


def members(cluster: ClusterInfo) -> list[tuple[str, str]]:
    """(role, node) of all members: primary, standby, then the other brokers, each once."""
    found = [("primary", cluster.primary)]
    if cluster.standby:
        found.append(("standby", cluster.standby))
    named = {cluster.primary, cluster.standby}
    found += [("broker", node) for node in cluster.brokers if node not in named]
    return found

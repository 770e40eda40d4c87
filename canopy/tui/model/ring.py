"""The geometry of the ring (P2): the share of the keys that each cluster owns, and its place.

A cluster owns the keys after its `start` up to and including its `key`; keys are SHA-1, 160 bits.
Angles are fractions of the circle, clockwise from the top, where key 0 lies.
"""

from __future__ import annotations

from typing import NamedTuple

from overlay.info import ClusterInfo

BITS = 160  # SHA-1
HEX = BITS // 4


class Arc(NamedTuple):
    """A cluster's part of the circle; `begin` + `share` may exceed 1.0, beyond the top."""

    begin: float
    share: float

    def contains(self, place: float) -> bool:
        """Whether the fraction `place` of the circle is in the arc."""
        return (place - self.begin) % 1.0 < self.share or self.share >= 1.0

    @property
    def middle(self) -> float:
        """The fraction of the circle in the middle of the arc."""
        return (self.begin + self.share / 2) % 1.0


def fraction(key: str) -> float:
    """The place of a key of 40 hex digits on the circle; 0.0 for any other text."""
    try:
        return int(key[:HEX].ljust(HEX, "0"), 16) / (1 << BITS)
    except ValueError:
        return 0.0


def arc(cluster: ClusterInfo) -> Arc:
    """The arc of a cluster; the whole circle if its start is its own key."""
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

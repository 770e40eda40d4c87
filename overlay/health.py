"""Which nodes are sub-healthy, by the health file that the driver has read (T6,
docs/design/health.md).

A report orders nodes and excludes none: wherever one of several is chosen, the healthy come first,
and where all are sub-healthy the order is as without a report. A node that no report names is
healthy. A report that is not replaced ends after `valid_for`, by the node's own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from overlay.machine import NodeId, Peer

Severity = Annotated[int, Meta(ge=0, le=3)]
"""Tensor's threat levels (table III): 0 healthy, 1 relatively high, 2 high, 3 extremely high."""


class NodeHealth(msgspec.Struct, frozen=True):
    """What a report says of one node."""

    severity: Severity
    reason: str
    """What was found, for people."""


class HealthReport(msgspec.Struct, frozen=True):
    """The content of a health file, for `valid_for` more seconds."""

    nodes: dict[NodeId, NodeHealth]
    valid_for: float


class Clock(Protocol):
    """What `Health` uses of a node's Port."""

    @property
    def now(self) -> float:
        """Seconds of a monotonic clock, from any beginning."""


class Health:
    """The newest report, as long as it is valid. Read by the machines that choose among nodes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[NodeId, NodeHealth] = {}
        self._until = float("-inf")
        self._changes = 0

    def update(self, report: HealthReport) -> None:
        """Use `report` from now on in the place of the one before."""
        self._changes += 1
        self._nodes = {node: found for node, found in report.nodes.items() if found.severity}
        self._until = self._clock.now + report.valid_for

    @property
    def is_known(self) -> bool:
        """Whether there is a valid report."""
        return self._clock.now < self._until

    @property
    def changes(self) -> int:
        """Grows whenever another answer may be given than before."""
        if self._nodes and not self.is_known:
            self._nodes = {}
            self._changes += 1
        return self._changes

    def severity(self, node: NodeId) -> int:
        """0 if the node is healthy, or nothing is known of it; else 1 to 3."""
        found = self._nodes.get(node)
        return found.severity if found is not None and self.is_known else 0

    def reason(self, node: NodeId) -> str:
        """Why the node is sub-healthy; "" if it is not."""
        found = self._nodes.get(node)
        return found.reason if found is not None and self.is_known else ""

    def reasons(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        """Those of `nodes` that are sub-healthy, with the reason for each."""
        return {node: self.reason(node) for node in nodes if self.severity(node)}

    def healthy_first(self, peers: Iterable[Peer]) -> list[Peer]:
        """All of `peers`: by severity, those of one severity in the order given."""
        return sorted(peers, key=lambda peer: self.severity(peer.id))

    def healthiest(self, peers: Sequence[Peer]) -> Sequence[Peer]:
        """Those of `peers` with the least severity among them: some, unless there are none."""
        if not self._nodes or len(peers) < 2:
            return peers
        least = min(self.severity(peer.id) for peer in peers)
        return [peer for peer in peers if self.severity(peer.id) == least]

"""What a shard's leader knows of one reading."""

from __future__ import annotations

from matching import Predicate
from overlay.machine import NodeId, Peer
from streams.services.read.history import HistoryScan
from streams.services.read.table_scan import TableScan

ReadingKey = tuple[NodeId, int]
"""A reading's node and number."""


class Reading:
    """One program's way through the shard. It is behind the tail while it has a `scan`."""

    def __init__(self, peer: Peer, number: int, selector: str, predicate: Predicate | None) -> None:
        """`predicate`: None for all rows."""
        self.peer = peer
        self.number = number
        self.selector = selector
        self.predicate = predicate
        self.scan: HistoryScan | TableScan | None = None
        self.sent = 0
        """The position that its node has been told."""
        self.granted = 0
        self.used = 0
        self.kept_at = 0.0
        """When its node was heard of it last."""
        self.permitted = ""
        """What its tenant may see; "": all."""
        self.shares = False
        """Its node takes rows for several readings in one message."""
        self.durable = ""
        self.attachment = 0

    @property
    def key(self) -> ReadingKey:
        """Its name at this shard."""
        return self.peer.id, self.number

    @property
    def credit(self) -> int:
        """How much may be sent now."""
        return self.granted - self.used

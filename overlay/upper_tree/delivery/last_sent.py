"""By which delegate a node last sent each publisher's events to whom (C11).

An event with many recipients is passed on by delegates, one with few is sent directly, and the
delegates change: of two events that a host sends one node, the later may overtake the earlier. So
where the way to a node changes, the number of the event that went the way before goes along, and
the node waits for that one (subscriber/publication_order.py). Where it does not change, links are
FIFO, and nothing is said.
"""

from __future__ import annotations

from overlay.machine import NodeId
from overlay.upper_tree.delivery.event_counts import EventSource

Way = tuple[EventSource, NodeId]
"""Events of a source for a node."""


class LastSent:
    """Of one node. Bounded by what is sent within twice `window`; times are seconds."""

    def __init__(self, window: float) -> None:
        """`window`: after so long an event has arrived (`tree.order_hold`)."""
        self._window = window
        self._since = 0.0
        self._sent: dict[Way, tuple[int, NodeId]] = {}  # number, delegate ("": none)
        self._older: dict[Way, tuple[int, NodeId]] = {}

    def __len__(self) -> int:
        return len(self._sent) + len(self._older)

    def sends(
        self, source: EventSource, node: NodeId, first: int, last: int, by: NodeId, now: float
    ) -> int:
        """Events from number `first` to `last` leave for a node, by a delegate ("": directly).
        Returns the number of the one before, if that went another way lately, else 0."""
        if not self._window:
            return 0
        if now - self._since >= self._window:
            self._older = self._sent if now - self._since < 2 * self._window else {}
            self._sent, self._since = {}, now
        way = (source, node)
        number, way_before = self._sent.get(way) or self._older.get(way) or (0, by)
        self._sent[way] = (max(number, last), by)
        return number if way_before != by and number < first else 0

"""An event on its way: which trees have not accepted it yet, and where its values lie (C7)."""

from __future__ import annotations

from matching import Cut, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.messages import EVENT_TREE


class Outgoing:
    """An event of ours that some tree has not accepted yet."""

    __slots__ = ("_places", "event", "moves", "pairs", "since")

    def __init__(self, event: Event, pairs: dict[str, tuple[NodeId, float]], since: float) -> None:
        self.event = event
        self.since = since  # when it was published
        self.moves = 0
        self.pairs = pairs
        """attribute -> (host that has it under way, since when); host "" waits for the finder."""
        self._places: dict[str, Cut] | None = None

    @property
    def places(self) -> dict[str, Cut]:
        """attribute -> where the value lies, of all trees that the event visits."""
        if self._places is None:
            self._places = {EVENT_TREE: place(True)}
            values = self.event.attributes.items()
            self._places.update((name, place(v)) for name, v in values if v is not None)
        return self._places

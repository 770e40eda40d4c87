"""How often what strangers do is written down: else they write the disk full, and a line of the
audit file, which is durable, is waited for by the whole node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.bounded import BoundedDict

EVERY: Final = 10.0
"""Seconds between two lines about the same. Guess: often enough to be seen while it happens."""

KINDS_MOST: Final = 4_096
"""Of what was written down lately; of more the oldest is forgotten."""


class Sparing:
    """Says which of many events are written down: the first, and one every `EVERY` seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._kept: BoundedDict[str, tuple[float, int]] = BoundedDict(KINDS_MOST)

    def due(self, kind: str) -> int:
        """How many events of this kind a line stands for that is to be written now, this one
        included; 0: none is."""
        now = self._clock()
        until, left_out = self._kept.get(kind, (now, 0))
        if now < until:
            self._kept[kind] = (until, left_out + 1)
            return 0
        self._kept.renew(kind, (now + EVERY, 0))
        return left_out + 1

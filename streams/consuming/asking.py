"""What a reader's node has asked leaders for and not heard of, and when it gives up waiting.

A leader that has thousands of readings to begin, or to hand rows to, comes late with some of them.
Whoever then asked anew would only give it more to do. So a leader is silent when nothing at all has
come from it; one reading is given up only after a longer time, and a leader is asked for so many at
a time.
"""

from __future__ import annotations

from typing import Final

from overlay.machine import NodeId

ANSWER_WITHIN: Final = 2.0
"""Seconds without an answer after which another leader is looked for."""

SILENT: Final = 3.0
"""Seconds without a word of a leader after which another one is looked for."""

PATIENCE: Final = 5
"""Times as long for one reading while others are heard of."""

ASKED_MOST: Final = 500
"""Readings that a leader was asked for and has not begun: 0.1 s of work, most of it for the
selectors."""


class Asking:
    """The leaders that this node has readings at."""

    def __init__(self) -> None:
        self._heard: dict[NodeId, float] = {}
        self._asked: dict[NodeId, set[int]] = {}  # by number of the reading

    def may_ask(self, leader: NodeId) -> bool:
        """Whether it may be asked for one more reading now."""
        return len(self._asked.get(leader, ())) < ASKED_MOST

    def asks(self, leader: NodeId, number: int) -> None:
        """It is asked for a reading."""
        self._asked.setdefault(leader, set()).add(number)

    def done(self, leader: NodeId, number: int) -> None:
        """It has begun the reading, or is not asked for it any more."""
        asked = self._asked.get(leader)
        if asked is not None:
            asked.discard(number)
            if not asked:
                del self._asked[leader]

    def heard(self, leader: NodeId, now: float) -> None:
        """A message has come from it."""
        self._heard[leader] = now

    def lost(self, leader: NodeId) -> None:
        """It is out of reach: nothing that was asked of it is answered."""
        self._heard.pop(leader, None)
        self._asked.pop(leader, None)

    def is_silent(self, leader: NodeId, has_begun: bool, heard_at: float, now: float) -> bool:
        """Whether to look for another leader for a reading of which it was heard at `heard_at`."""
        wait = SILENT if has_begun else ANSWER_WITHIN
        alive_at = max(heard_at, self._heard.get(leader, heard_at))
        return now - alive_at > wait or now - heard_at > PATIENCE * wait

"""The history of each node: its windows of the last half hour, and the runs of its process.

A job that follows the traces adds what is new round by round and forgets what is old, so that its
memory is bounded by the number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from canopy.traces.analysis.constants import HEALTH_WINDOW, LOST_AFTER
from canopy.traces.analysis.health.windows import NodeWindow, Windows

START, STOP = "start", "stop"

LIVES_KEPT: Final = 1_000
"""Starts and stops of one node that are kept. Guess: a node that starts again every second or two
for half an hour."""


@dataclass
class NodeHistory:
    """The history of one node: its windows by number, and the times at which its process started
    and stopped."""

    windows: dict[int, NodeWindow] = field(default_factory=dict)
    lives: list[tuple[float, str]] = field(default_factory=list)
    """Starts and stops of its process, in order."""
    name: str = ""

    @property
    def last(self) -> float | None:
        """Time of its newest record; None if only others have records on it."""
        found = [window.last for window in self.windows.values() if window.last is not None]
        return max(found, default=None)

    def crashes(self, until: float) -> list[float]:
        """When its process ended without a `stop` record, as seen at the time `until`: at a start
        that follows a start, or at its last record if it has been silent for `LOST_AFTER` though it
        used to write health records."""
        found = [
            time
            for (_, before), (time, kind) in zip(self.lives, self.lives[1:], strict=False)
            if before == kind == START
        ]
        last = self.last
        if last is None or until - last < LOST_AFTER:
            return found
        if any(window.measured for window in self.windows.values()):
            ended = bool(self.lives) and self.lives[-1][1] == STOP
            if not ended:
                found.append(last)
        return found

    def was_running(self, number: int) -> bool:
        """Whether its process ran for the whole of the window: it wrote before and after it."""
        begin, end = number * HEALTH_WINDOW, (number + 1) * HEALTH_WINDOW
        first = min((w.first for w in self.windows.values() if w.first is not None), default=None)
        last = self.last
        if first is None or last is None or not first <= begin <= end <= last:
            return False
        return not any(begin <= time < end for time, _ in self.lives)


class History:
    """All nodes, over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.nodes: dict[str, NodeHistory] = {}

    @property
    def until(self) -> float:
        """Time of the newest record of all nodes; 0.0 without records."""
        found = [each.last for each in self.nodes.values()]
        return max((last for last in found if last is not None), default=0.0)

    def add(self, windows: Windows) -> None:
        """Add new windows, merge them with those of the same number, and forget old ones."""
        for (node, number), window in windows.items():
            known = self.nodes.setdefault(node, NodeHistory())
            if number in known.windows:
                known.windows[number].merge(window)
            else:
                known.windows[number] = window
            known.lives += [(time, START) for time in window.starts]
            known.lives += [(time, STOP) for time in window.stops]
            known.lives = sorted(known.lives)[-LIVES_KEPT:]
            known.name = window.name or known.name
        self._forget()

    def _forget(self) -> None:
        oldest = self.until - self.seconds
        for node, known in list(self.nodes.items()):
            for number in [n for n in known.windows if (n + 1) * HEALTH_WINDOW <= oldest]:
                del known.windows[number]
            before = [place for place, (time, _) in enumerate(known.lives) if time < oldest]
            del known.lives[: max(0, len(before) - 1)]  # the last before it says what ran then
            if not known.windows:
                del self.nodes[node]

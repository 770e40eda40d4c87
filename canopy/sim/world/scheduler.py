"""Virtual time: a heap of actions, keyed by (time, sequence number).

Two actions that are due at the same time run in the order in which they were scheduled, so that a
seed is one history. The tests' worlds of a few machines use the same scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

CHECK_EVERY = 0.05
"""Virtual seconds between two checks of `run_until`'s condition."""


class Scheduler:
    """The virtual time in seconds, and the scheduled actions."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.steps = 0
        """The number of actions that have run."""
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Run `action(*arguments)` at virtual `time` (now, if that is past)."""
        self._sequence += 1
        heappush(self._heap, (max(time, self.now), self._sequence, action, arguments))

    def after(self, delay: float, action: Callable[..., object], *arguments: Any) -> None:
        """Run `action(*arguments)` in `delay` seconds."""
        self.at(self.now + delay, action, *arguments)

    def run(self, seconds: float) -> None:
        """Run everything that falls due in the next `seconds` of virtual time."""
        self.run_to(self.now + seconds)

    def run_to(self, until: float) -> None:
        """Run every action that is due up to virtual time `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            time, _, action, arguments = heappop(heap)
            self.now = time
            self.steps += 1
            action(*arguments)
        self.now = max(self.now, until)

    def jump(self, seconds: float) -> None:
        """Advance virtual time without running anything, as when a machine is suspended: actions
        that fall due meanwhile are run late, by the next `run`."""
        self.now += seconds
        self._heap = [
            (max(time, self.now), number, action, arguments)
            for time, number, action, arguments in self._heap
        ]
        heapify(self._heap)

    def clear(self) -> None:
        """Remove all scheduled actions."""
        self._heap.clear()

    def run_until(
        self, condition: Callable[[], bool], most: float, every: float = CHECK_EVERY
    ) -> bool:
        """Run until `condition` holds, at most for `most` seconds. Returns whether it holds."""
        end = self.now + most
        while not condition():
            if self.now >= end:
                return False
            self.run_to(min(self.now + every, end))
        return True

"""Processor time: what the work of a process takes in virtual time.

Without it a turn takes no time, and no process is ever behind. With it a turn stands for its cost:
so much for any input (a frame is read and decoded), and so much for each event that is matched, for
each further tree that it visits here, and for each interested node that is found. While it lasts
the process takes nothing in, and what the turn says leaves when it is over; what comes in meanwhile
is read, in order, before the next tick, as a process reads all its connections before it goes on
with work that it has put off (overlay/upper_tree/host/visit_scheduler.py). The work is read off the
trace records that the node writes about it, and off what it counts instead of writing a record, so
that the product need not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

CHARGED = frozenset(("match", "publish", "deliver"))
"""Kinds of trace records that report work."""

Cost = Annotated[float, Meta(ge=0, le=1)]
"""Seconds."""


class Processor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that work takes. The defaults are those of a Python process on a usual machine
    (docs/lab/performance.md: some 30,000 events per second through a host), rounded."""

    per_input: Annotated[float, Meta(gt=0, le=1)] = 0.000_02
    per_match: Cost = 0.000_02  # an event in one tree …
    per_further: Cost = 0.000_002  # … and in each further one: it is matched once for all. With its
    # recipient 0.4 of the first (a host's machine, 16 events a visit: 11 µs for one tree, 24 for
    # three, 50 for ten)
    per_recipient: Cost = 0.000_01  # a node that wants it
    per_publish: Cost = 0.0  # an event that a program publishes here
    per_delivery: Cost = 0.0  # an event that a program here is shown

    def cost(self, kind: str, fields: Mapping[str, Any], is_further: bool = False) -> float:
        """The processor time of the work that a trace record reports, in seconds. `is_further`: the
        record before was of the same event."""
        if kind == "publish":
            return self.per_publish
        if kind == "deliver":
            return self.per_delivery
        if kind != "match":
            return 0.0
        first = self.per_further if is_further else self.per_match
        return first + self.per_recipient * int(fields["recipients"])

    def cost_unmatched(self, visits: int, alone: int) -> float:
        """The processor time of so many matches in vain, each of an event in one tree, in seconds.
        `alone`: of how many events there is no `match` record; the first one of each is no further
        tree."""
        return alone * self.per_match + (visits - alone) * self.per_further


class SharedProcessors:
    """The processors of one machine, for several processes: each turn of one of them needs one, and
    those that wait get them in the order in which they asked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, granted: Callable[[], None]) -> None:
        """Call `granted` when a processor is free, perhaps at once; `release` has to follow."""
        if self._free:
            self._free -= 1
            granted()
        else:
            self._waiting.append(granted)

    def release(self) -> None:
        """A turn is over: the next one that waits gets its processor."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1

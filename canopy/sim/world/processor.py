"""Processor time: what the work of a process takes in virtual time.

Without it a turn takes no time, and no process is ever behind. With it a turn stands for its cost:
so much for any input (a frame is read and decoded), and so much for each event that is matched, for
each further tree that it visits here, and for each interested node that is found. While it lasts
the process takes nothing in, and what the turn says leaves when it is over; what comes in meanwhile
is read, in order, before the next tick, as a process reads all its connections before it goes on
with work that it has put off (overlay/upper_tree/host/visit_scheduler.py). The work is read off the
trace records that the node writes about it, so that the product need not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

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

    def cost(self, kind: str, fields: Mapping[str, Any], is_further: bool = False) -> float:
        """The processor time of the work that a trace record reports, in seconds. `is_further`: the
        record before was of the same event."""
        if kind != "match":
            return 0.0
        first = self.per_further if is_further else self.per_match
        return first + self.per_recipient * int(fields["recipients"])

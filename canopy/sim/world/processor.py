"""Processor time: the virtual time that the work of a process takes.

Without it a turn takes no time, and no process is ever behind. With it a turn takes its cost: a
fixed time for any input (a frame is read and decoded), and further times for each event that is
matched, for each further tree that it visits here, and for each interested node that is found.
Meanwhile the process handles no input, and the turn's output leaves at its end; inputs that arrive
meanwhile are handled, in order, before the next tick, as a process reads all its connections before
it continues postponed work (overlay/upper_tree/host/visit_scheduler.py). The work is taken from the
trace records that the node writes about it, and from its counts where it writes none, so the
product need not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

CHARGED = frozenset(("match", "publish", "deliver"))
"""Kinds of trace records that report work."""

Cost = Annotated[float, Meta(ge=0, le=1)]
"""A cost in seconds."""


class Processor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The costs of work in seconds. The defaults are those of a Python process on a usual machine
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
        """Return the processor time of the work that a trace record reports, in seconds.
        `is_further`: the last record was of the same event."""
        if kind == "publish":
            return self.per_publish
        if kind == "deliver":
            return self.per_delivery
        if kind != "match":
            return 0.0
        first = self.per_further if is_further else self.per_match
        return first + self.per_recipient * int(fields["recipients"])

    def cost_unmatched(self, visits: int, alone: int) -> float:
        """Return the processor time of `visits` matches without a result, each of an event in one
        tree, in seconds. `alone`: the number of events without a `match` record; the first visit of
        each is not a further tree."""
        return alone * self.per_match + (visits - alone) * self.per_further

"""Serving leases at a host: what each owner lets it serve (C6); owner/serving.py has the rules."""

from __future__ import annotations

from collections import OrderedDict

from overlay.chord.keys import in_arc
from overlay.machine import Key, NodeId
from overlay.upper_tree.messages import ServingBeat

LEASE_SHARE = 0.8
"""Of the term, as the host counts it: clocks may differ in rate by a fifth (see chord/pulse.py)."""

REPLIES_KEPT = 32
"""Own answers that a host remembers, per owner: more than fit into a term."""

LEASES_MOST = 1_024
"""Leases that a host holds, and owners whose beats it remembers, the oldest forgotten first: one
per cluster whose trees it serves. Wild guess."""


class Lease:
    """At the host: what one owner lets it serve."""

    __slots__ = ("epoch", "key", "start", "until")

    def __init__(self, start: Key, key: Key) -> None:
        self.start = start
        self.key = key
        self.epoch = 0
        self.until = 0.0


class LeasesHeld:
    """At the host: its leases, by arc. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._leases: OrderedDict[tuple[Key, Key], Lease] = OrderedDict()
        self._replied: OrderedDict[tuple[NodeId, Key], dict[int, float]] = OrderedDict()

    def take(self, sender: NodeId, beat: ServingBeat, now: float) -> None:
        """A beat: it may prolong a lease. It is answered now."""
        replied = self._replied.setdefault((sender, beat.key), {})
        self._replied.move_to_end((sender, beat.key))
        since = replied.get(beat.heard)
        if since is not None:
            self._prolong(beat, since + LEASE_SHARE * beat.term)
        if beat.number < max(replied, default=0):
            replied.clear()  # the owner counts anew
        replied[beat.number] = now
        if len(replied) > REPLIES_KEPT:
            del replied[min(replied)]
        while len(self._replied) > LEASES_MOST:
            self._replied.popitem(last=False)

    def _prolong(self, beat: ServingBeat, until: float) -> None:
        arc = (beat.start, beat.key)
        lease = self._leases.setdefault(arc, Lease(*arc))
        self._leases.move_to_end(arc)
        if beat.epoch >= lease.epoch:
            lease.epoch = beat.epoch
            lease.until = max(until, lease.until)
        while len(self._leases) > LEASES_MOST:
            self._leases.popitem(last=False)

    def covers(self, key: Key, epoch: int, now: float) -> bool:
        """Whether a tree with this key may be served, whose owner had at least this epoch."""
        for lease in self._leases.values():  # a loop: each visit asks for each of its trees
            if lease.until > now and lease.epoch >= epoch and in_arc(key, lease.start, lease.key):
                return True
        return False

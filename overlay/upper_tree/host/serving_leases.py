"""Serving leases at a host: what each owner lets it serve (C6); owner/lease_grants.py has the
rules."""

from __future__ import annotations

import msgspec

from overlay.bounded import BoundedDict
from overlay.chord.keys import in_arc
from overlay.machine import Key, NodeId
from overlay.upper_tree.host.constants import LEASE_SHARE, LEASES_MOST, REPLIES_MOST
from overlay.upper_tree.messages import ServingBeat


class ServingLease(msgspec.Struct):
    """What one owner lets this host serve: its arc (start, key], until a time of the Port."""

    start: Key
    key: Key
    epoch: int = 0
    until: float = 0.0


class ServingLeases:
    """A host's leases, by arc. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._leases: BoundedDict[tuple[Key, Key], ServingLease] = BoundedDict(LEASES_MOST)
        self._replied: BoundedDict[tuple[NodeId, Key], dict[int, float]] = BoundedDict(LEASES_MOST)

    def take(self, sender: NodeId, beat: ServingBeat, now: float) -> None:
        """A beat of an owner came: it may prolong a lease. It is answered at `now`."""
        replied = self._replied.setdefault((sender, beat.key), {})
        self._replied.move_to_end((sender, beat.key))
        since = replied.get(beat.heard)
        if since is not None:
            self._prolong(beat, since + LEASE_SHARE * beat.term)
        if beat.number < max(replied, default=0):
            replied.clear()  # the owner counts anew
        replied[beat.number] = now
        if len(replied) > REPLIES_MOST:
            del replied[min(replied)]

    def _prolong(self, beat: ServingBeat, until: float) -> None:
        arc = (beat.start, beat.key)
        lease = self._leases.setdefault(arc, ServingLease(*arc))
        self._leases.move_to_end(arc)
        if beat.epoch >= lease.epoch:
            lease.epoch = beat.epoch
            lease.until = max(until, lease.until)

    def covers(self, key: Key, epoch: int, now: float) -> bool:
        """Whether a tree with this key may be served, whose owner has at least this epoch."""
        return self.until(key, epoch, now) > now

    def until(self, key: Key, epoch: int, now: float) -> float:
        """Until when it may be served, as far as is known; no later than `now`: not."""
        for lease in self._leases.values():
            if lease.until > now and lease.epoch >= epoch and in_arc(key, lease.start, lease.key):
                return lease.until
        return now

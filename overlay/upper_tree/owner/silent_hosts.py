"""Hosts that are silent, long before their links are given up (C6).

A virtual node whose hosts are all silent is served by none. So it is given one more at once
(rebalance.py), though the silent host may only be paused, or slow. What says that a host is silent:

- its link is suspected: something was not acknowledged in time (LinkSuspected). From then on other
  nodes are asked to reach it (overlay/links/detouring.py), and where one does its link recovers;
- so long as that may take nothing was acknowledged, and no answer to a serving beat came for
  `SILENT_LEAST` in any case. Both go by measured round trips, so a slow network makes none silent;
- this node did not stand still itself meanwhile.

A host that is heard again counts as silent for `RELIEVED_FOR` more, so that one which stands still
now and then is not relieved and given its virtual nodes back each time.
"""

from __future__ import annotations

from math import inf

import msgspec

from overlay.machine import Alarm, NodeId, Port, Timer
from overlay.upper_tree.owner.constants import (
    DETOUR_LEAST,
    DETOUR_ROUND_TRIPS,
    RELIEVED_FOR,
    SILENT_LATE,
    SILENT_LEAST,
)


class SilenceDue(Timer, frozen=True):
    """A host whose link is suspected may count as silent now."""


class Suspicion(msgspec.Struct):
    """A host whose link is suspected, or was of late."""

    silent_at: float
    """From when it counts as silent if it is not heard."""
    wait: float
    """Seconds that the other ways to it take."""
    is_silent: bool = False
    until: float = inf
    """It was heard: until when it still counts as silent."""


class SilentHosts:
    """At the primary. Times are the Port's seconds."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._suspected: dict[NodeId, Suspicion] = {}
        self._due = Alarm(port, SilenceDue())

    def suspected(self, node: NodeId, heard_at: float, round_trip: float) -> None:
        """The link to a host is suspected; it has answered last at `heard_at`, and takes
        `round_trip` seconds for that."""
        known = self._suspected.get(node)
        if known is not None and (known.until == inf or known.is_silent):
            known.until = inf
            return
        now = self._port.now
        wait = max(DETOUR_LEAST, DETOUR_ROUND_TRIPS * round_trip)
        silent_at = max(now + wait, heard_at + SILENT_LEAST)
        self._suspected[node] = Suspicion(silent_at, wait)
        self._due.within(silent_at - now)

    def heard(self, node: NodeId) -> None:
        """The host answers again."""
        known = self._suspected.get(node)
        if known is not None and not known.is_silent:
            del self._suspected[node]
        elif known is not None and known.until == inf:
            known.until = self._port.now + RELIEVED_FOR

    def forget(self, node: NodeId) -> None:
        """The link to the host was given up: its virtual nodes move."""
        self._suspected.pop(node, None)

    def clear(self) -> None:
        """This node is no primary (any more)."""
        self._suspected.clear()
        self._due.cancel()

    def rang(self) -> bool:
        """`SilenceDue` has come: set the next one. Whether some host is silent that was not."""
        self._due.rang()
        now, found = self._port.now, False
        waiting: list[float] = []
        for node, each in list(self._suspected.items()):
            if each.is_silent:
                if each.until <= now:
                    del self._suspected[node]
                continue
            if each.silent_at + SILENT_LATE < now:
                each.silent_at = now + each.wait  # this node stood still
            if each.silent_at <= now:
                each.is_silent = found = True
            else:
                waiting.append(each.silent_at)
        if waiting:
            self._due.within(min(waiting) - now)
        return found

    def is_silent(self, node: NodeId) -> bool:
        """Whether the host does not answer, or did not until shortly before."""
        known = self._suspected.get(node)
        if known is None or not known.is_silent:
            return False
        if known.until <= self._port.now:
            del self._suspected[node]
            return False
        return True

    def __len__(self) -> int:
        """How many are remembered; for checks."""
        return len(self._suspected)

"""How much a publisher may have pending: what hosts accept within a fraction of a second.

More does not make hosts faster: it only waits, in queues that the heartbeats of clusters and hosts
pass through as well. On a machine whose processes are all late, some seconds of events in all
queues make all hosts look dead: visits are sent again elsewhere, leases end, primaries are
replaced, and that is further work. So the bound follows the rate at which events are accepted, as
congestion control by delay does (TCP Vegas), between a least and what `tree.pending` allows. On
slow networks it is more by what is under way: twice the shortest time of an acceptance of late.
While a tree is looked for its events wait here, and others should not wait for them: then some more
may be pending.
"""

from __future__ import annotations

from overlay.upper_tree.publisher.constants import (
    RATE_HALF_LIFE,
    RATE_PERIOD,
    SHORTEST_FOR,
    WINDOW_LEAST,
    WINDOW_SEARCHING,
    WINDOW_SECONDS,
)


class PendingWindow:
    """The bound for one publisher's (event, tree) pairs. Times are the Port's seconds."""

    def __init__(self, most: int, now: float) -> None:
        self._most = most
        self._rate = 0.0  # pairs per second
        self._accepted = 0
        self._since = now
        self._shortest = self._shortest_before = 0.0  # seconds of an acceptance; 0: not measured
        self._shortest_since = now
        self.pairs = min(WINDOW_LEAST, most)
        """So many may be pending where all trees are known."""

    def most(self, is_searching: bool) -> int:
        """How many may be pending. `is_searching`: some of them wait for a tree to be found."""
        return min(max(self.pairs, WINDOW_SEARCHING), self._most) if is_searching else self.pairs

    def accepted(self, pairs: int, took: float | None, now: float) -> None:
        """Hosts have accepted so many more, the first `took` seconds after it was sent (None: not
        known)."""
        self._accepted += pairs
        if took is not None and (took < self._shortest or not self._shortest):
            self._shortest = took
        passed = now - self._since
        if passed >= RATE_PERIOD:
            kept = self._rate * 0.5 ** (passed / RATE_HALF_LIFE)
            self._rate = max(kept, self._accepted / passed)
            self._accepted, self._since = 0, now
            shortest = min(self._shortest, self._shortest_before or self._shortest)
            wanted = int(self._rate * (WINDOW_SECONDS + 2.0 * shortest))
            self.pairs = min(max(wanted, WINDOW_LEAST), self._most)
            if now - self._shortest_since >= SHORTEST_FOR:
                self._shortest_before, self._shortest = self._shortest, 0.0
                self._shortest_since = now

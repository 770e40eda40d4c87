"""P7: which of several hosts will be done first, by what they said of their work.

A host that has something waiting says so with each acceptance: its arrival rate a, its service rate
b, and how many events wait, q(t') (pace.py). At a later time t, by Phoenix, section 3,

    q(t) = q(t') + (a - b) (t - t'),        T = (q(t) + 1) / (2 b)

is what waits and how long an event will take, and the host with the smallest T is chosen. Beyond
the paper:

* q is never negative; b = 0 means that nothing is known of it: of such a host nothing is predicted
  but what it said, and it is taken for as fast as the others.
* The formula knows nothing of what this publisher itself has sent since, and of a burst that is all
  that matters. So what it sends is added to what waits, which shrinks by b; the larger of the two
  predictions counts.
* A word is old after `WORD_FOR`: a rate does not last, and a host that was not chosen for that long
  would else never be heard again.
* Among hosts at which nothing waits the first one in the publisher's own order is taken
  (replicas.py), not the fastest: it keeps its links and its host for all trees.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.machine import NodeId, Peer
from overlay.upper_tree.host_load import HostLoad

WORD_FOR = 1.0
"""Seconds for which a host's rates are believed; long beside what an acceptance takes, short beside
a publisher's patience. Wild guess."""

HOSTS_MOST = 4_096
"""Hosts that are remembered, the one that was not heard for longest forgotten first. As many as
doubts (replicas.py)."""


def predicted_queue(pace: HostLoad, passed: float) -> float:
    """Events that wait at a host `passed` seconds after it said this."""
    if pace.service <= 0:
        return float(pace.queue)
    return max(0.0, pace.queue + (pace.arrival - pace.service) * max(0.0, passed))


def predicted_time(queue: float, service: float) -> float:
    """Seconds until an event is matched where `queue` wait; `service` is over 0."""
    return (max(0.0, queue) + 1) / (2 * service)


class Known:
    """What is known of a host."""

    __slots__ = ("at", "backlog", "heard_at", "pace")

    def __init__(self, now: float) -> None:
        self.pace: HostLoad | None = None  # its last word; None: nothing waits there
        self.heard_at = now
        self.backlog = 0.0  # what waits there, by its word and what was sent to it since …
        self.at = now  # … at that time

    @property
    def service(self) -> float:
        """Its rate as last heard, however long ago; 0: not known."""
        return 0.0 if self.pace is None else self.pace.service

    def waiting(self, now: float) -> float:
        """Events that wait there now, by prediction."""
        own = self._own(now)
        if self.pace is None or now - self.heard_at > WORD_FOR:
            return own
        return max(own, predicted_queue(self.pace, now - self.heard_at))

    def sent(self, events: int, now: float) -> None:
        """More is on its way to it."""
        self.backlog = self._own(now) + events
        self.at = now

    def _own(self, now: float) -> float:
        service = self.service  # where it is not known, what was sent is taken for done
        return max(0.0, self.backlog - service * (now - self.at)) if service > 0 else 0.0


class Choice:
    """One publisher's knowledge of hosts. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._known: dict[NodeId, Known] = {}
        self._busy: dict[NodeId, None] = {}  # where something may wait

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._known)

    def heard(self, node: NodeId, pace: HostLoad | None, now: float) -> None:
        """A host's word; None: nothing waits there."""
        known = self._known.pop(node, None)
        if known is None:
            if pace is None:
                return  # it never had a queue
            known = Known(now)
        self._known[node] = known
        if len(self._known) > HOSTS_MOST:
            self._busy.pop(next(iter(self._known)), None)
            del self._known[next(iter(self._known))]
        service = known.service
        known.pace = HostLoad(0.0, service, 0) if pace is None else pace
        known.heard_at = known.at = now
        known.backlog = float(known.pace.queue)
        if pace is not None:
            self._busy[node] = None

    def sent(self, node: NodeId, events: int, now: float) -> None:
        """This publisher has sent events to a host."""
        known = self._known.get(node)
        if known is not None and known.service > 0:
            known.sent(events, now)
            self._busy[node] = None

    def look(self, now: float) -> bool:
        """Whether something may wait anywhere, so that the best host may be another one now."""
        before = bool(self._busy)
        for node in list(self._busy):
            if self._known[node].waiting(now) < 1:
                del self._busy[node]
        return before

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        """The host to visit, of these in the order of preference (at least one)."""
        if not self._busy:
            return order[0]
        known = [self._known.get(host.id) for host in order]
        queues = [0.0 if each is None else each.waiting(now) for each in known]
        for host, queue in zip(order, queues, strict=True):
            if queue < 1:
                return host
        rates = [each.service for each in known if each is not None and each.service > 0]
        usual = sum(rates) / len(rates) if rates else 1.0
        times = [
            predicted_time(queue, usual if each is None else each.service or usual)
            for each, queue in zip(known, queues, strict=True)
        ]
        return order[times.index(min(times))]

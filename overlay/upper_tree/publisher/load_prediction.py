"""P7: which of several hosts will be done first, predicted from the load that they report.

A host at which something waits reports with each acceptance its arrival rate a, its service rate b,
and how many events wait, q(t') (host_load.py). At a later time t, by Phoenix, section 3,

    q(t) = q(t') + (a - b) (t - t'),        T = (q(t) + 1) / (2 b)

is how many wait and how long an event will take, and the host with the smallest T is chosen. Beyond
the paper:

* q is never negative. b = 0 means that the rate is not known: such a host's queue is predicted to
  stay what it reported, and the host is taken to be as fast as the others.
* The formula knows nothing of what this publisher itself has sent since, and in a burst only that
  matters. So what it sends is added to what waits, which shrinks by b; the larger of the two
  predictions counts.
* A report is used for `REPORT_FOR` only: a rate does not last, and a host that was not chosen for
  that long would otherwise never be heard from again.
* Among hosts at which nothing waits the first one in the publisher's own order is taken
  (replicas.py), not the fastest: it keeps its links, and one host for all trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import NodeId, Peer
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.publisher.constants import PREDICTED_MOST, REPORT_FOR


def predicted_queue(load: HostLoad, passed: float) -> float:
    """Events that wait at a host `passed` seconds after it reported this load."""
    if load.service <= 0:
        return float(load.queue)
    return max(0.0, load.queue + (load.arrival - load.service) * max(0.0, passed))


def predicted_time(queue: float, service: float) -> float:
    """Seconds until an event is matched where `queue` events wait; `service` (events per second)
    is over 0."""
    return (max(0.0, queue) + 1) / (2 * service)


class HostEstimate(msgspec.Struct):
    """The load of one host, as far as this publisher knows."""

    load: HostLoad  # as last reported
    reported_at: float
    backlog: float  # what waits there, by the last report and what was sent since …
    backlog_at: float  # … at that time

    @property
    def service(self) -> float:
        """Its service rate as last reported, however long ago; 0: not known."""
        return self.load.service

    def queue(self, now: float) -> float:
        """How many events are predicted to wait there now."""
        own = self._own_backlog(now)
        if now - self.reported_at > REPORT_FOR:
            return own
        return max(own, predicted_queue(self.load, now - self.reported_at))

    def sent(self, events: int, now: float) -> None:
        """This publisher has sent it so many more events."""
        self.backlog = self._own_backlog(now) + events
        self.backlog_at = now

    def _own_backlog(self, now: float) -> float:
        service = self.service  # where it is not known, what was sent is taken to be done
        return max(0.0, self.backlog - service * (now - self.backlog_at)) if service > 0 else 0.0


class LoadPredictor:
    """One publisher's estimates of hosts. Bounded: the host that reported longest ago goes first.
    Times are the Port's seconds."""

    def __init__(self) -> None:
        self._estimates: BoundedDict[NodeId, HostEstimate] = BoundedDict(
            PREDICTED_MOST, lambda node, _: self._busy.pop(node, None)
        )
        self._busy: dict[NodeId, None] = {}  # hosts at which something may wait

    def __len__(self) -> int:
        """How many hosts are remembered."""
        return len(self._estimates)

    def reported(self, node: NodeId, load: HostLoad | None, now: float) -> None:
        """A host's report; None: nothing waits there."""
        estimate = self._estimates.get(node)
        if load is not None:
            self._busy[node] = None
        elif estimate is None:
            return  # it never had a queue
        else:
            load = HostLoad(0.0, estimate.service, 0)
        self._estimates.renew(node, HostEstimate(load, now, float(load.queue), now))

    def sent(self, node: NodeId, events: int, now: float) -> None:
        """This publisher has sent events to a host."""
        estimate = self._estimates.get(node)
        if estimate is not None and estimate.service > 0:
            estimate.sent(events, now)
            self._busy[node] = None

    def update(self, now: float) -> bool:
        """Forget who is not behind any more. Whether something may have waited anywhere, so that
        `best` may answer differently."""
        before = bool(self._busy)
        for node in list(self._busy):
            if self._estimates[node].queue(now) < 1:
                del self._busy[node]
        return before

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        """The host to visit, of these in the order of preference (at least one)."""
        if not self._busy:
            return order[0]
        estimates = [self._estimates.get(host.id) for host in order]
        queues = [0.0 if each is None else each.queue(now) for each in estimates]
        for host, queue in zip(order, queues, strict=True):
            if queue < 1:
                return host
        rates = [each.service for each in estimates if each is not None and each.service > 0]
        usual = sum(rates) / len(rates) if rates else 1.0
        times = [
            predicted_time(queue, usual if each is None else each.service or usual)
            for each, queue in zip(estimates, queues, strict=True)
        ]
        return order[times.index(min(times))]

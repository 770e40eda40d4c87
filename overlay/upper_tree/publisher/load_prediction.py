"""P7: which of several hosts will be done first, predicted from the load that they report.

A host at which something waits reports with each acceptance its arrival rate a, its service rate b,
and how many events wait, q(t') (host_load.py). At a later time t, by Phoenix, section 3,

    q(t) = q(t') + (a - b) (t - t'),        T = (q(t) + 1) / (2 b)

is how many wait and how long an event will take, and the host with the smallest T is chosen. Beyond
the paper:

* q is never negative. b = 0 means that the rate is not known: such a host's queue is predicted to
  stay what it reported, and the host is taken to be as fast as the one that reported last.
* The formula knows nothing of what this publisher itself has sent since, and in a burst only that
  matters. So what it sends is added to what waits, which shrinks by b times `OWN_SHARE`, since
  other publishers visit the host as well; the larger of the two predictions counts. So one
  publisher asks a host for `OWN_SHARE` of its time before it visits the next one: where a tree has
  many hosts since many events come, few publishers use them all.
* A report says nothing of what was sent after the events that it accepts: these still wait.
* A report is used for `REPORT_FOR` only: a rate does not last, and a host that was not chosen for
  that long would otherwise never be heard from again.
* Among hosts at which nothing waits the first one in the publisher's own order is taken
  (replicas.py), not the fastest: it keeps its links, and one host for all trees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import NodeId, Peer
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.publisher.constants import (
    OWN_SHARE,
    PREDICTED_MOST,
    REPORT_FOR,
    SENDS_MOST,
    SPREAD_EVENTS,
    SPREAD_MOST,
    SPREAD_SECONDS,
)


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
    backlog: float = 0.0  # what this publisher sent and is predicted to wait there …
    backlog_at: float = 0.0  # … at that time
    sends: deque[tuple[float, int]] = msgspec.field(
        default_factory=lambda: deque(maxlen=SENDS_MOST)
    )
    """Messages that were sent and not accepted since: the time, and the number of events; the
    oldest first."""

    def queue(self, now: float, service: float) -> float:
        """Return the predicted number of events waiting at the host. `service`: the host's assumed
        service rate."""
        own = self._own_backlog(now, service)
        if now - self.reported_at > REPORT_FOR:
            return own
        return max(own, predicted_queue(self.load, now - self.reported_at))

    def sent(self, events: int, now: float, service: float) -> None:
        """Note that this publisher has sent the host `events` more events."""
        self.backlog = self._own_backlog(now, service) + events
        self.backlog_at = now
        self.sends.append((now, events))

    def reported(self, load: HostLoad, upto: float, now: float) -> None:
        """Note a report of the host: it has accepted everything sent up to `upto`, and its load is
        `load`."""
        while self.sends and self.sends[0][0] <= upto:
            self.sends.popleft()
        self.load, self.reported_at = load, now
        later = float(sum([events for _, events in self.sends]))
        self.backlog, self.backlog_at = max(float(load.queue), later), now

    def _own_backlog(self, now: float, service: float) -> float:
        passed = now - self.backlog_at
        return max(0.0, self.backlog - OWN_SHARE * service * passed) if service > 0 else 0.0


class LoadPredictor:
    """One publisher's estimates of the load of hosts. The number of estimates is bounded: the host
    whose report is the oldest is forgotten first. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._estimates: BoundedDict[NodeId, HostEstimate] = BoundedDict(
            PREDICTED_MOST, lambda node, _: self._busy.pop(node, None)
        )
        self._busy: dict[NodeId, None] = {}  # hosts at which something may wait
        self._usual = 0.0  # the service rate that was reported last by any host; 0: none was

    def __len__(self) -> int:
        """Return the number of remembered hosts."""
        return len(self._estimates)

    def reported(
        self, node: NodeId, load: HostLoad | None, now: float, upto: float | None = None
    ) -> None:
        """Note a host's report (None: no events wait there). The host has accepted everything sent
        to it up to `upto` (None: everything)."""
        estimate = self._estimates.get(node)
        if load is not None:
            self._busy[node] = None
            self._usual = load.service or self._usual
        elif estimate is None:
            return  # it never had a queue
        else:
            load = HostLoad(0.0, estimate.load.service, 0)
        if estimate is None:
            estimate = HostEstimate(load, now)
        estimate.reported(load, now if upto is None else upto, now)
        self._estimates.renew(node, estimate)

    def sent(self, node: NodeId, events: int, now: float) -> None:
        """Note that this publisher has sent events to a host. Nothing is remembered until some host
        has reported a queue."""
        if not self._usual:
            return
        estimate = self._estimates.get(node)
        if estimate is None:
            estimate = HostEstimate(HostLoad(0.0, 0.0, 0), now)
            self._estimates[node] = estimate
        estimate.sent(events, now, self._service(estimate))
        self._busy[node] = None

    def _service(self, estimate: HostEstimate) -> float:
        return estimate.load.service or self._usual

    def _queue(self, node: NodeId, now: float) -> float:
        estimate = self._estimates.get(node)
        return 0.0 if estimate is None else estimate.queue(now, self._service(estimate))

    def is_free(self, node: NodeId, now: float) -> bool:
        """Whether nothing is predicted to wait there."""
        return self._queue(node, now) < 1

    def is_behind(self, node: NodeId, other: NodeId, now: float) -> bool:
        """Whether events wait at a host, and more than twice as many as at the other one."""
        queue = self._queue(node, now)
        return queue >= 1 and queue > 2 * self._queue(other, now)

    @property
    def at_once(self) -> int | None:
        """Return for how many events to choose a host together: as many as a host matches within
        `SPREAD_SECONDS`, or `SPREAD_EVENTS`. None: no events wait at any host."""
        if not self._busy:
            return None
        rate = self._usual
        least = min(SPREAD_EVENTS, int(SPREAD_MOST * rate)) if rate else SPREAD_EVENTS
        return max(least, int(SPREAD_SECONDS * rate))

    def update(self, now: float) -> bool:
        """Forget hosts that are no longer behind. Return whether events may have waited at some
        host, so that the result of `best` may have changed."""
        before = bool(self._busy)
        for node in list(self._busy):
            if self._queue(node, now) < 1:
                del self._busy[node]
        return before

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        """The host to visit, of these in the order of preference (at least one)."""
        if not self._busy:
            return order[0]
        queues: list[float] = []
        for host in order:
            queue = self._queue(host.id, now)
            if queue < 1:
                return host
            queues.append(queue)
        found = [self._estimates.get(host.id) for host in order]
        rates = [each.load.service for each in found if each is not None and each.load.service > 0]
        usual = sum(rates) / len(rates) if rates else 1.0
        times = [
            predicted_time(queue, usual if each is None else each.load.service or usual)
            for each, queue in zip(found, queues, strict=True)
        ]
        return order[times.index(min(times))]

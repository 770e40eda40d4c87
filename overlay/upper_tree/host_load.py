"""How fast a host works, and how much waits there: by which publishers choose a host (P7).

Phoenix measures the arrival rate a = N_A / t and the service rate b = N_C / t, both over the same
time t. Then b can not be more than a while a host keeps up, and an idle host seems to be slow. Here
b is what the host does *while it has something to do*: events that it has served over the time that
was spent on it, all else that the process does meanwhile included. A machine has no clock within a
turn, but the turn after the one in which it worked begins later by just that time, if it begins at
once (host/visit_scheduler.py sees to that).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

KEEP = 0.9
"""How much of what was measured counts on at the next sample of the service rate: about the last
ten samples. Not measured; would be measured by `canopy sim timeliness` over this value."""

PERIOD = 0.25
"""Seconds over which arrivals are counted before they change the rate: long enough for some events
where a host is behind, short beside the seconds for which a burst lasts. Not measured; would be
measured as `KEEP`."""

PAUSE = 1.0
"""Seconds that no work takes that is done a slice of milliseconds at a time: the process stood
still, which says nothing of its speed."""


EventRate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""Events per second. NaN is refused: a prediction by it would choose no host."""


class HostLoad(msgspec.Struct, frozen=True, array_like=True):
    """What a host reports of its load. A service rate of 0 is not known yet."""

    arrival: EventRate
    service: EventRate
    queue: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # events that wait


class LoadMeter:
    """Measures a host's own load. Times are the Port's seconds."""

    def __init__(self, now: float) -> None:
        self._arrived = 0
        self._since = now
        self._arrival = 0.0
        self._served = 0.0
        self._busy = 0.0

    def arrived(self, events: int, now: float) -> None:
        """Note that so many events arrived at `now`."""
        self._arrived += events
        passed = now - self._since
        if passed >= PERIOD:
            rate = self._arrived / passed
            # After a long quiet the old rate says nothing; after one period it counts half.
            old = 0.5 ** (passed / PERIOD)
            self._arrival = old * self._arrival + (1 - old) * rate
            self._arrived = 0
            self._since = now

    def worked(self, events: int, seconds: float) -> None:
        """Events were served, and this took so long."""
        if events and 0 < seconds < PAUSE:
            self._served = KEEP * self._served + events
            self._busy = KEEP * self._busy + seconds

    @property
    def service(self) -> float:
        """Events per second of work; 0 while nothing is known."""
        return self._served / self._busy if self._busy else 0.0

    def report(self, queue: int) -> HostLoad:
        """The load to report to publishers, with `queue` events waiting."""
        return HostLoad(self._arrival, self.service, queue)

"""A host's speed and its queue (P7, C6).

Publishers choose a host by it (`HostLoad`, publisher/load_prediction.py), and owners split, merge
and place virtual nodes by it (`ServedLoad`, owner/reported_loads.py). `Machines` says how many
hosts the machines of an overlay are worth.

Phoenix measures the arrival rate a = N_A / t and the service rate b = N_C / t, both over the same
time t. Then b can not be more than a while a host keeps up, and an idle host seems to be slow. Here
b is what the host does *while it has something to do*: events that it has served over the time that
was spent on it, all else that the process does meanwhile included. A machine has no clock within a
turn, but the turn after the one in which it worked begins later by just that time, if it begins at
once (host/visit_scheduler.py sees to that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec

from matching import Cut, Interval
from overlay.bounded import BoundedDict
from overlay.machine import Peer

KEEP = 0.9
"""The weight of what was measured before at the next sample of the service rate: about the last ten
samples count. Not measured; would be measured by bench/experiments/timeliness over this value."""

PERIOD = 0.25
"""Seconds over which arrivals are counted before they change the rate: long enough for some events
where a host is behind, short beside the seconds for which a burst lasts. Not measured; would be
measured as `KEEP`."""

PAUSE = 1.0
"""Seconds that no work takes that is done a slice of milliseconds at a time: the process stood
still, which says nothing of its speed."""


DRAIN = 1.0
"""Seconds within which a host that is behind should have caught up: what waits counts as if it
arrived within them. By the time until 99 % of deliveries are in time again after a burst (`canopy
sim scaling`)."""

MACHINES_MOST = 1_024
"""Machines of which the processors are remembered, as many as possible hosts."""

HOSTS_SHARE = 0.5
"""The share of a machine's processors that hosts are to have; the others are publishers' and
interested nodes'. Measured once on a busy machine: eight nodes on two processors take a third of
the processor time per event with one host that they take with four."""


EventRate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""Events per second. NaN is refused: a prediction by it would choose no host."""


class HostLoad(msgspec.Struct, frozen=True, array_like=True):
    """A host's report of its load. A service rate of 0 is unknown."""

    arrival: EventRate
    service: EventRate
    queue: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # events that wait


Share = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
"""A share of one host's time: 1.0 is all of it, or a second of it. What a host is asked for can be
more than it has."""


class VirtualNodeLoad(msgspec.Struct, frozen=True, array_like=True):
    """The load of one virtual node on one of its hosts."""

    attribute: str
    interval: Interval
    busy: Share
    alone: Share
    """The part of `busy` for events that visit no other tree here: what another host could take
    over without another visit for any event."""
    places: tuple[Cut, ...]
    """The places of events that came lately, drawn by chance."""
    seconds: Share = 0.0
    """Seconds of this host's time that one event takes here, by its service rate; 0: not known."""

    def __post_init__(self) -> None:
        """Raise ValueError for a place that no order has, which a peer could send."""
        for spot in self.places:
            Interval(spot, spot)


class ServedLoad(msgspec.Struct, frozen=True, array_like=True):
    """The load of a host, in total and by virtual nodes of one owner."""

    busy: Share
    nodes: tuple[VirtualNodeLoad, ...]


class LoadMeter:
    """Measures a host's own load. Times are the Port's seconds."""

    def __init__(self, now: float) -> None:
        self._arrived = 0
        self._since = now
        self._arrival = 0.0
        self._served = 0.0
        self._busy = 0.0
        self._asked_at = now  # when `demand` was asked last, and since then:
        self._asked_events = 0
        self._asked_busy = 0.0
        self._asked_served = 0
        self._asked_passed = 0

    def arrived(self, events: int, now: float) -> None:
        """Note that `events` events arrived at `now`."""
        self._arrived += events
        self._asked_events += events
        passed = now - self._since
        if passed >= PERIOD:
            rate = self._arrived / passed
            # After a long quiet the old rate says nothing; after one period it counts half.
            old = 0.5 ** (passed / PERIOD)
            self._arrival = old * self._arrival + (1 - old) * rate
            self._arrived = 0
            self._since = now

    def worked(self, events: int, seconds: float) -> None:
        """Note that `events` events were served in `seconds` seconds."""
        if events and 0 < seconds < PAUSE:
            self._served = KEEP * self._served + events
            self._busy = KEEP * self._busy + seconds
            self._asked_busy += seconds

    def taken_up(self, served: int, passed_on: int) -> None:
        """Note that of the events that arrived, `served` were served here and `passed_on` sent to
        other hosts."""
        self._asked_served += served
        self._asked_passed += passed_on

    @property
    def service(self) -> float:
        """Events per second of work; 0 while nothing is known."""
        return self._served / self._busy if self._busy else 0.0

    def report(self, queue: int) -> HostLoad:
        """The load to report to publishers, with `queue` events waiting."""
        return HostLoad(self._arrival, self.service, queue)

    def demand(self, queue: int, now: float) -> float:
        """Return the share of the host's time that events have asked for since the last call, with
        `queue` of them waiting; 0 while the service rate is unknown. Events for other hosts, as are
        most of a queue after virtual nodes have moved, do not count. The waiting events are assumed
        to be like those taken up since the last call."""
        passed = now - self._asked_at
        service = self.service
        taken = self._asked_served + self._asked_passed
        own = self._asked_served / taken if taken else 1.0
        if passed <= 0 or not service:
            share = 0.0
        else:
            arrived = max(0, self._asked_events - self._asked_passed)
            asked = (arrived / passed + own * queue / DRAIN) / service
            share = max(asked, self._asked_busy / passed)
        self._asked_at, self._asked_events, self._asked_busy = now, 0, 0.0
        self._asked_served = self._asked_passed = 0
        return share


def hosts_of(processors: int) -> int:
    """Return how many hosts a machine with `processors` processors counts as."""
    return max(1, int(processors * HOSTS_SHARE))


def machine_of(peer: Peer) -> str:
    """The machine that a node runs on."""
    return peer.address.rpartition(":")[0]


class Machines:
    """The processors of machines, as their nodes report them, and how many hosts these are worth.

    Processes on one machine share its processors: where these are busy, one host more does not
    serve an event more, and each event costs a visit more. Hosts take about half of what an event
    costs all nodes, so one host counts for every two processors of a machine, and at least one.
    Owners plan for this number (owner/placement.py), and a publisher turns to no more of its own
    machine where one is behind (publisher/replicas.py). A machine is the part of its nodes'
    addresses that is not the port; how many processors it has, its nodes say. One that has not said
    so yet counts with one."""

    def __init__(self) -> None:
        self._processors: BoundedDict[str, int] = BoundedDict(MACHINES_MOST)

    def reported(self, peer: Peer, processors: int) -> None:
        """Note how many processors the machine of a node has."""
        self._processors.renew(machine_of(peer), processors)

    def _worth(self, machine: str) -> int:
        return hosts_of(self._processors.get(machine, 1))

    def worth(self, hosts: Iterable[Peer]) -> int:
        """With how many of these hosts an owner may count."""
        there = Counter(map(machine_of, hosts))
        return sum([min(count, self._worth(machine)) for machine, count in there.items()])

    def is_full(self, machine: str, hosts: Iterable[Peer]) -> bool:
        """Whether a machine carries no host beside those that are on it already."""
        count = sum([machine_of(host) == machine for host in hosts])
        return count >= self._worth(machine)

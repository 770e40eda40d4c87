"""The virtual network: connections with latency, loss, cuts and partitions, all by one seed.

Theory of operation. A connection is a pair of `ConnectionEnd`s, one at each process. Frames that
one end writes reach the other in the order of writing (links rely on it, docs/design/links.md),
each after a latency of its own: a frame may never overtake the one before it, so its arrival is the
later of "now + latency" and the arrival of its predecessor. TCP would hide loss; here a lost frame
is simply gone, so that the links' numbers, gaps and retransmission are exercised, which a process
needs only after a resumed connection.

Bandwidth: a frame leaves when the process's uplink and then the connection have sent all earlier
frames, and takes its bytes' time on each; then comes the latency. A lost frame takes that time as
well. Receivers have no bandwidth limit.

Frames are passed as structs; the body of a batch is bytes, really encoded by the codec. Whether two
processes can talk is decided when a frame *arrives*: a partition swallows frames under way. A dial
into a partition is never answered, like a packet to a silent host; a dial to a process that does
not exist is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from canopy.sim.world.traffic import Traffic
from overlay.links.events import REFUSED
from overlay.links.messages import Batch, Frame

DIAL_TIMEOUT = 20.0
"""Seconds until the system gives up a dial without an answer. Longer than all time-outs of the
links, so that theirs apply (Linux: 127 s)."""


class Process(Protocol):
    """The callbacks of a running process (canopy/sim/world/driver.SimDriver)."""

    name: str

    def opened(self, connection: int) -> None:
        """Handle a successful dial of this process."""

    def accepted(self, connection: int) -> None:
        """Handle a connection that another process dialled; it is open under this number."""

    def arrived(self, connection: int, frame: Frame) -> None:
        """Handle a frame that arrived on an open connection, whole, and undamaged unless the
        network damaged it."""

    def closed(self, connection: int, reason: str) -> None:
        """Handle the end of a connection: the other side closed it, it was lost, or its dial
        failed, for `reason`."""


Bandwidth = Annotated[float, Meta(ge=0)]
"""Bytes per second; 0: without limit."""


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Latency, loss and faults of the network. Latency in seconds, uniform between the two
    bounds."""

    latency_low: float = 0.001
    latency_high: float = 0.020  # nodes of one continent; not measured
    backbone: float = 0.0  # seconds more from one region to another (`Network.place`) …
    away: dict[str, float] = {}  # … and these, by region, for each of the two
    loss: float = 0.0  # share of frames that vanish
    duplicate: float = 0.0  # share of frames that come twice
    damage: float = 0.0  # share of batches of which a bit is not what was sent (V3)
    link_bandwidth: Bandwidth = 0.0  # of each connection, in each direction
    node_bandwidth: Bandwidth = 0.0  # of all that a node sends, over all its connections


class ConnectionEnd:
    """One side of a connection: its process, the other side, and the arrival time of its last
    frame."""

    __slots__ = ("clear_at", "number", "open", "other", "process", "sent_at")

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.process = process
        self.other: ConnectionEnd | None = None
        self.open = True
        self.sent_at = 0.0  # when the last thing that this end wrote has left
        self.clear_at = 0.0  # … and when it arrives


class Network:
    """All connections between the processes of a world."""

    def __init__(
        self,
        rng: Random,
        schedule: Callable[..., None],
        now: Callable[[], float],
        traffic: Traffic,
    ) -> None:
        """`schedule`: called with a virtual time and an action with its arguments, which happens
        then."""
        self.conditions = Conditions()
        self.frames = 0
        """The number of frames written so far."""
        self.lost = 0
        """The number of frames lost on the way so far."""
        self.damaged = 0
        """The number of frames that arrived with a wrong bit."""
        self._rng = rng
        self._schedule = schedule
        self._now = now
        self._traffic = traffic
        self._ends: dict[int, ConnectionEnd] = {}
        self._listening: dict[str, Process] = {}
        self._regions: dict[str, str] = {}  # process name -> where its machine is
        self._sides: dict[str, int] = {}  # process name -> side of the partition, absent: 0
        self._blocked: dict[tuple[str, str], None] = {}  # (from, to) that swallow
        self._clogged: dict[tuple[str, str], list[tuple[Callable[..., object], tuple[Any, ...]]]]
        self._clogged = {}  # (from, to) that hold back, with what they hold, in order
        self._throttled: dict[tuple[str, str], float] = {}  # (from, to or "": all) -> bandwidth
        self._uplinks: dict[str, float] = {}  # process name -> when it has sent all
        self._numbers = 0

    # --- what processes do ---

    def listen(self, address: str, process: Process) -> None:
        """Let dials to `address` reach `process` from now on."""
        self._listening[address] = process

    def refuse(self, address: str) -> None:
        """Refuse dials to `address` from now on."""
        self._listening.pop(address, None)

    def open_connections(self) -> int:
        """The number of connections whose both ends are open."""
        return sum(end.other is not None and end.other.open for end in self._ends.values()) // 2

    def dial(self, process: Process, address: str) -> int:
        """Begin to connect; the process's `opened` or `closed` is called later. Returns the
        connection's number."""
        end = self._new_end(process)
        target = self._listening.get(address)
        delay = self._latency(process, target or process)
        self._schedule(self._now() + delay, self._knock, end, address)
        return end.number

    def write(self, connection: int, frame: Frame) -> None:
        """Send one frame, in order. Does nothing on a connection that the other side has closed."""
        end = self._ends.get(connection)
        if end is None:
            return
        other = end.other
        assert other is not None, "a frame was written before the connection opened"
        self.frames += 1
        size = self._traffic.written(frame)
        conditions = self.conditions
        leaves = self._now()
        if self._throttled or conditions.node_bandwidth or conditions.link_bandwidth:
            leaves = self._leaves(end, size)
        if conditions.loss and self._rng.random() < conditions.loss:
            self.lost += 1
            return
        if conditions.damage and type(frame) is Batch and self._rng.random() < conditions.damage:
            frame = self._damaged(frame)
        arrival = max(end.clear_at, leaves + self._latency(end.process, other.process))
        end.clear_at = arrival
        self._schedule(arrival, self._arrive, other, frame)
        if conditions.duplicate and self._rng.random() < conditions.duplicate:
            self._schedule(arrival, self._arrive, other, frame)

    def close(self, connection: int, reason: str) -> None:
        """Close after the written frames have arrived; only the other side is notified."""
        end = self._ends.pop(connection, None)
        if end is None:
            return
        end.open = False
        if end.other is not None:
            delay = self._latency(end.process, end.other.process)
            at = max(end.clear_at, max(self._now(), end.sent_at) + delay)
            self._schedule(at, self._hang_up, end.other, reason)

    def vanish(self, process: Process, *, silent: bool = False) -> None:
        """Note that the process died. Its system resets its connections, unless the machine died
        with it (`silent`): then no end is notified."""
        for address in [a for a, found in self._listening.items() if found is process]:
            del self._listening[address]
        for end in [end for end in self._ends.values() if end.process is process]:
            if silent:
                end.open = False
                del self._ends[end.number]
            else:
                self.close(end.number, "connection reset")

    def place(self, name: str, region: str) -> None:
        """Put the process of this name into `region`, whatever region its node claims."""
        self._regions[name] = region

    # --- faults ---

    def cut(self, one: str, two: str) -> int:
        """Break the connections between two processes at once; both notice. Returns their
        number."""
        pair = {one, two}
        broken = [
            end
            for end in self._ends.values()
            if end.other is not None and {end.process.name, end.other.process.name} == pair
        ]
        for end in broken:
            self._schedule(self._now(), self._hang_up, end, "cut")
        return len(broken) // 2

    def partition(self, groups: Iterable[Iterable[str]]) -> None:
        """Let only processes of the same group reach each other; those in none form another
        group."""
        self._sides = {name: side for side, group in enumerate(groups, start=1) for name in group}

    def sever(self, one: str, two: str) -> None:
        """Drop everything between these two until `heal`; both reach all others (P3)."""
        self.block(one, two)
        self.block(two, one)

    def block(self, sender: str, receiver: str) -> None:
        """Swallow all frames from `sender` to `receiver`, but not the other way: a one-way
        partition."""
        self._blocked[sender, receiver] = None

    def clog(self, sender: str, receiver: str) -> None:
        """Hold back frames from `sender` to `receiver`, in order, until `unclog` or `heal`."""
        self._clogged.setdefault((sender, receiver), [])

    def unclog(self, sender: str, receiver: str) -> None:
        """Deliver all frames that were held back, at once."""
        for action, arguments in self._clogged.pop((sender, receiver), []):
            self._schedule(self._now(), action, *arguments)

    def throttle(self, sender: str, receiver: str, bandwidth: float) -> None:
        """Limit the bandwidth from `sender` to `receiver` (on each of their connections), or with
        "" from `sender` to all together, in bytes per second; 0: as the conditions say."""
        self._throttled[sender, receiver] = bandwidth
        if not bandwidth:
            del self._throttled[sender, receiver]

    def heal(self) -> None:
        """Let all nodes reach each other, as fast as the conditions allow."""
        self._sides = {}
        self._throttled = {}
        self._blocked = {}
        for sender, receiver in list(self._clogged):
            self.unclog(sender, receiver)

    def reachable(self, sender: str, receiver: str) -> bool:
        """Return whether frames of `sender` reach `receiver`."""
        if (sender, receiver) in self._blocked:
            return False
        return self._sides.get(sender, 0) == self._sides.get(receiver, 0)

    # --- what happens later ---

    def _new_end(self, process: Process) -> ConnectionEnd:
        self._numbers += 1
        end = ConnectionEnd(self._numbers, process)
        self._ends[end.number] = end
        return end

    def _latency(self, one: Process, other: Process) -> float:
        conditions, regions = self.conditions, self._regions
        spread = conditions.latency_high - conditions.latency_low
        delay = conditions.latency_low + spread * self._rng.random()
        if regions:
            here, there = regions.get(one.name, ""), regions.get(other.name, "")
            if here != there:
                away = conditions.away
                delay += conditions.backbone + away.get(here, 0.0) + away.get(there, 0.0)
        return delay

    def _damaged(self, frame: Batch) -> Batch:
        body = bytearray(frame.body)
        body[self._rng.randrange(len(body))] ^= 1 << self._rng.randrange(8)
        self.damaged += 1
        return msgspec.structs.replace(frame, body=bytes(body))

    def _leaves(self, end: ConnectionEnd, size: int) -> float:
        """Return when a frame of `size` bytes has left, after all frames written before it."""
        assert end.other is not None
        name, conditions = end.process.name, self.conditions
        at = self._now()
        uplink = self._throttled.get((name, ""), conditions.node_bandwidth)
        if uplink:
            at = self._uplinks[name] = max(at, self._uplinks.get(name, 0.0)) + size / uplink
        link = self._throttled.get((name, end.other.process.name), conditions.link_bandwidth)
        at = max(at, end.sent_at) + (size / link if link else 0.0)
        end.sent_at = at
        return at

    def opposite(self, connection: int) -> Process | None:
        """Return the process at the other end of a connection; None if it is not open."""
        end = self._ends.get(connection)
        return None if end is None or end.other is None else end.other.process

    def _knock(self, end: ConnectionEnd, address: str) -> None:
        if not end.open:
            return
        target = self._listening.get(address)
        back = self._now() + self._latency(end.process, target or end.process)
        if target is None:
            self._schedule(back, self._hang_up, end, REFUSED)
        elif not self.reachable(end.process.name, target.name):
            self._schedule(back + DIAL_TIMEOUT, self._hang_up, end, "no answer")
        else:
            far = self._new_end(target)
            far.other, end.other = end, far
            far.clear_at = back  # what the far side writes comes after the answer to the dial
            end.clear_at = self._now()
            self._schedule(back, self._answer, end)
            target.accepted(far.number)

    def _answer(self, end: ConnectionEnd) -> None:
        if not end.open or self._held(end, self._answer, end):
            return
        assert end.other is not None
        if self.reachable(end.other.process.name, end.process.name):
            end.process.opened(end.number)
        else:  # for the other side it is open; here no answer ever comes
            self._schedule(self._now() + DIAL_TIMEOUT, self._give_up, end)

    def _give_up(self, end: ConnectionEnd) -> None:
        if end.open:
            self.close(end.number, "no answer")
            end.process.closed(end.number, "no answer")

    def _held(self, end: ConnectionEnd, action: Callable[..., object], *arguments: Any) -> bool:
        """Hold back an action on its way to `end`, if that way is clogged. Returns whether it
        is."""
        if not self._clogged or end.other is None:
            return False
        held = self._clogged.get((end.other.process.name, end.process.name))
        if held is not None:
            held.append((action, arguments))
        return held is not None

    def _arrive(self, end: ConnectionEnd, frame: Frame) -> None:
        if not end.open or self._held(end, self._arrive, end, frame):
            return
        assert end.other is not None
        if self.reachable(end.other.process.name, end.process.name):
            end.process.arrived(end.number, frame)
        else:
            self.lost += 1

    def _hang_up(self, end: ConnectionEnd, reason: str) -> None:
        if not end.open or self._held(end, self._hang_up, end, reason):
            return
        other = end.other
        if other is not None and not self.reachable(other.process.name, end.process.name):
            return  # the news is swallowed like everything else
        end.open = False
        del self._ends[end.number]
        end.process.closed(end.number, reason)

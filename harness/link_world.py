"""Links in virtual time on the simulator's network: dials that may fail, frames that are lost,
repeated, damaged or delayed, connections that are cut, other ways between two hosts than their link
(`Detours`). Deterministic by its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from canopy.sim.world.network import Network
from canopy.sim.world.scheduler import Scheduler
from canopy.sim.world.traffic import Traffic
from harness.list_codec import ListCodec
from overlay.links.events import Detours, LinkContext, LinkDown
from overlay.links.hybrid_clock import HybridClock
from overlay.links.links import Links
from overlay.links.messages import Frame, ProcessName
from overlay.machine import LocalEvent, Message, Peer
from overlay.settings import LinkSettings


class Note(Message, frozen=True):
    """A message for tests."""

    number: int
    text: str = ""


class Urgent(Message, frozen=True):
    """One that need not wait for those before it."""

    overtakes = True

    number: int


class Host:
    """One node's links, their transport, and what they emitted and delivered."""

    def __init__(
        self,
        world: LinkWorld,
        name: str,
        settings: LinkSettings,
        incarnation: int,
        overlay: str,
        id_: str = "",
        wall: float = 0.0,
        detours: Detours | None = None,
    ) -> None:
        self.world = world
        self.peer = Peer(id_ or name, f"{name}:1")
        self.events: list[LocalEvent] = []
        self.heard: list[tuple[str, Message]] = []
        self.counts: dict[str, int] = {}
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.written: list[tuple[int, Frame]] = []
        self.dialled: list[str] = []
        self.on_message: Callable[[Peer, Message], None] | None = None
        self._dialling: dict[int, None] = {}
        self.is_alive = True
        self.late = 0.0
        """Seconds after which it looks at a frame that has arrived, as a busy process does."""
        self.busy_until = 0.0
        """It looks at no frame before that."""
        self.name = name
        self.hybrid = HybridClock(lambda: world.now, wall)
        context = LinkContext(
            self.peer,
            ProcessName.of(self.peer, incarnation, 0),
            overlay,
            settings,
            Random(f"{world.seed}.{name}.{incarnation}"),
            lambda: world.now,
            self.hybrid,
            self.events.append,
            self._count,
            lambda kind, **fields: self.traces.append((kind, fields)),
        )
        self.links = Links(context, world.codec, self, self._dispatch)
        if detours is not None:
            self.links.use_detours(detours)

    def _dispatch(self, peer: Peer, message: Message) -> None:
        self.heard.append((peer.id, message))
        if self.on_message is not None:
            self.on_message(peer, message)

    def _count(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount

    # Transport

    def dial(self, address: str) -> int:
        self.dialled.append(address)
        connection = self.world.network.dial(self, address)
        if address in self.world.no_route:
            self.world.network.close(connection, "no route")
            self.world.after(self.world.delay, self.closed, connection, "no route")
        else:
            self._dialling[connection] = None
        return connection

    def write(self, connection: int, frame: Frame) -> None:
        self.written.append((connection, frame))
        if connection not in self._dialling:  # a test may forge what comes in before it opens
            self.world.network.write(connection, frame)

    def close(self, connection: int, reason: str) -> None:
        self.world.network.close(connection, reason)

    # What the network calls: each is a turn, which ends with flush

    def opened(self, connection: int) -> None:
        self._dialling.pop(connection, None)
        self._turn(lambda: self.links.on_opened(connection))

    def accepted(self, connection: int) -> None:
        self._turn(lambda: self.links.on_accepted(connection))

    def arrived(self, connection: int, frame: Frame) -> None:
        self.busy_until = max(self.busy_until, self.world.now + self.late)  # in order
        if self.busy_until > self.world.now:
            self.world.at(self.busy_until, self._read, connection, frame)
        else:
            self._read(connection, frame)

    def _read(self, connection: int, frame: Frame) -> None:
        self._turn(lambda: self.links.on_frame(connection, frame))

    def closed(self, connection: int, reason: str) -> None:
        self._turn(lambda: self.links.on_closed(connection, reason))

    def _turn(self, step: Callable[[], None]) -> None:
        if self.is_alive:
            step()
            self.links.flush()
            self.wake()

    def wake(self) -> None:
        """Have the links' next tick on the heap."""
        deadline = self.links.deadline()
        if deadline is not None:
            self.world.at(deadline, self._tick, deadline)

    def _tick(self, deadline: float) -> None:
        if self.is_alive and self.links.deadline() == deadline:
            self._turn(self.links.on_tick)

    # For tests

    def send(self, to: Host | Peer, *numbers: int, text: str = "") -> None:
        peer = to.peer if isinstance(to, Host) else to
        for number in numbers:
            self.links.send(peer, Note(number, text))
        self.links.flush()

    def numbers(self, sender: Host) -> list[int]:
        """The numbers of the notes from `sender`, as they arrived."""
        return [
            note.number
            for name, note in self.heard
            if name == sender.peer.id and isinstance(note, Note)
        ]

    def states(self) -> list[tuple[str, str]]:
        """Peer and state of each session."""
        return [(session.peer.id, session.state) for session in self.links.sessions()]

    def downs(self) -> list[LinkDown]:
        return [event for event in self.events if isinstance(event, LinkDown)]

    def of(self, kind: type[LocalEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def frames(self, kind: type[Frame]) -> list[Any]:
        return [frame for _, frame in self.written if isinstance(frame, kind)]


class LinkWorld(Scheduler):
    """Hosts by name. `delay` and `jitter` are of each frame, in seconds; the rest is as in
    `Conditions` (canopy/sim/world/network.py)."""

    def __init__(
        self,
        seed: int = 0,
        delay: float = 0.01,
        jitter: float = 0.0,
        settings: LinkSettings | None = None,
        **conditions: float,
    ) -> None:
        super().__init__(now=100.0)
        self.seed = seed
        self.codec = ListCodec(Note, Urgent)
        self.settings = settings or LinkSettings()
        self.delay = delay
        self.hosts: dict[str, Host] = {}
        self.no_route: dict[str, None] = {}
        """Addresses to which no way leads: a dial fails, and not because it is refused."""
        self.network = Network(Random(seed), self.at, lambda: self.now, Traffic())
        self.change(latency_low=delay, latency_high=delay + jitter, **conditions)

    def change(self, **conditions: float) -> None:
        """Change some of the network's conditions: loss, duplicate, damage …"""
        self.network.conditions = msgspec.structs.replace(self.network.conditions, **conditions)

    def host(
        self,
        name: str,
        incarnation: int = 1,
        overlay: str = "test",
        wall: float = 0.0,
        detours: Detours | None = None,
        **settings: Any,
    ) -> Host:
        """Start a node; one of the same name dies silently (its connections are reset). `wall`:
        what its wall clock shows then."""
        if name in self.hosts:
            self.kill(self.hosts[name])
        changed = msgspec.structs.replace(self.settings, **settings)
        host = self.hosts[name] = Host(
            self, name, changed, incarnation, overlay, wall=wall, detours=detours
        )
        self.network.listen(host.peer.address, host)
        return host

    def pair(self, *, pinned: bool = False) -> tuple[Host, Host]:
        """Hosts a and b with a session by which a has sent note 1, a second ago. `pinned`: a keeps
        watch over b."""
        a, b = self.host("a"), self.host("b")
        if pinned:
            a.links.pin("b")
        a.send(b, 1)
        self.run(1.0)
        return a, b

    def copy(self, of: Host, incarnation: int) -> Host:
        """Start a process with a copy of a node's data folder, at another address."""
        name = f"{of.name}-copy"
        host = self.hosts[name] = Host(self, name, self.settings, incarnation, "test", of.peer.id)
        self.network.listen(host.peer.address, host)
        return host

    def kill(self, host: Host, reset: bool = True) -> None:
        """A crash: without `reset` the others hear nothing, as after a power cut."""
        host.is_alive = False
        self.hosts.pop(host.name, None)
        self.network.vanish(host, silent=not reset)

    def cut(self) -> None:
        """Every connection is lost, with what is on it."""
        names = list(self.hosts)
        for at, one in enumerate(names):
            for two in names[at + 1 :]:
                self.network.cut(one, two)

    def live(self) -> int:
        """Connections that are open."""
        return self.network.open_connections()

    def run(self, seconds: float) -> None:
        """Let time pass. What tests called on links before is part of the first turn."""
        for host in list(self.hosts.values()):
            host.wake()
        super().run(seconds)


class OtherWays:
    """One host's ways around its links, by nobody in particular: each frame takes `delay`."""

    def __init__(self, world: DetourWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.delay = 0.04
        self.helpers = 3
        self.reaches: Callable[[], bool] = lambda: True
        self.opened: list[tuple[float, str]] = []
        self.frames = 0
        self.ends: dict[int, tuple[str, int]] = {}  # the host and the number at the other end
        self.last = 0

    def open(self, peer: Peer) -> list[int]:
        self.opened.append((self.world.now, peer.id))
        numbers = []
        for _ in range(self.helpers):
            self.last -= 1
            self.ends[self.last] = (peer.id, 0)
            numbers.append(self.last)
        return numbers

    def write(self, connection: int, frame: Frame) -> None:
        end = self.ends.get(connection)
        if end is None or not self.reaches():
            return
        self.frames += 1
        other, at = self.world.hosts.get(end[0]), self.world.now + self.delay
        if other is not None:
            at = max(at + other.late, other.busy_until)
        self.world.at(at, self.arrive, connection, frame)

    def arrive(self, connection: int, frame: Frame) -> None:
        name, number = self.ends.get(connection, ("", 0))
        other = self.world.hosts.get(name)
        if other is None or not other.is_alive:
            return
        ways = self.world.ways[name]
        if number == 0:
            ways.last -= 1
            number = ways.last
            ways.ends[number] = (self.name, connection)
            self.ends[connection] = (name, number)
            other.links.on_detour_accepted(number)
        if number in ways.ends:
            other._turn(lambda: other.links.on_frame(number, frame))

    def close(self, connection: int, reason: str) -> None:
        self.ends.pop(connection, None)


class DetourWorld(LinkWorld):
    """With ways around the links of the hosts a and b, by their names."""

    def __init__(self, delay: float) -> None:
        super().__init__(delay=delay)
        self.ways = {name: OtherWays(self, name) for name in "ab"}

    def hosts_with_ways(self) -> tuple[Host, Host]:
        """Hosts a and b, without a session."""
        a, b = (self.host(name, detours=self.ways[name]) for name in "ab")
        return a, b


def connected_pair(*, pinned: bool = False, delay: float = 0.02) -> tuple[DetourWorld, Host, Host]:
    """Hosts a and b, with other ways between them, and a session of a second."""
    world = DetourWorld(delay)
    a, b = world.hosts_with_ways()
    if pinned:
        a.links.pin("b")
    a.send(b, 1)
    world.run(1.0)
    return world, a, b

"""A world of Links in memory: virtual time, dials that may fail, frames that may be lost, repeated,
damaged or delayed, connections that may be cut. Deterministic by its seed; frames are encoded.

Per connection and direction frames stay in order (delays only grow), as the folder's contract
asks of a driver.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from overlay.links.events import REFUSED, LinkDown
from overlay.links.links import Links
from overlay.links.messages import Ack, Batch, Bye, Frame, Hello, Welcome
from overlay.machine import LocalEvent, Message, Peer
from overlay.settings import LinkSettings
from tests.support.list_codec import ListCodec

FRAMES = msgspec.msgpack.Decoder(Hello | Welcome | Batch | Ack | Bye)


class Note(Message, frozen=True):
    """A message for tests."""

    number: int
    text: str = ""


class Host:
    """One node's links, what they told, and the transport below them."""

    def __init__(
        self,
        world: World,
        name: str,
        settings: LinkSettings,
        incarnation: int,
        overlay: str,
    ) -> None:
        self.world = world
        self.peer = Peer(name, f"{name}:1")
        self.events: list[LocalEvent] = []
        self.arrived: list[tuple[str, Message]] = []
        self.counts: dict[str, int] = {}
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.written: list[tuple[int, Frame]] = []
        self.dialled: list[str] = []
        self.on_message: Callable[[Peer, Message], None] | None = None
        self.is_alive = True
        self.links = Links(
            self.peer,
            incarnation,
            overlay,
            settings,
            Random(f"{world.seed}.{name}.{incarnation}"),
            world.codec,
            self,
            lambda: world.now,
            self.events.append,
            self._dispatch,
            self._count,
            lambda kind, **fields: self.traces.append((kind, fields)),
        )

    def _dispatch(self, peer: Peer, message: Message) -> None:
        self.arrived.append((peer.id, message))
        if self.on_message is not None:
            self.on_message(peer, message)

    def _count(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount

    # Transport

    def dial(self, address: str) -> int:
        self.dialled.append(address)
        return self.world.dial(self, address)

    def write(self, connection: int, frame: Frame) -> None:
        self.written.append((connection, frame))
        self.world.carry(self, connection, frame)

    def close(self, connection: int, reason: str) -> None:
        self.world.close(self, connection, reason)

    # For tests

    def send(self, to: Host | Peer, *numbers: int, text: str = "") -> None:
        peer = to.peer if isinstance(to, Host) else to
        for number in numbers:
            self.links.send(peer, Note(number, text))
        self.links.flush()

    def numbers(self, sender: Host) -> list[int]:
        """The numbers of the notes from `sender`, as they arrived."""
        return [note.number for name, note in self.arrived if name == sender.peer.id]

    def downs(self) -> list[LinkDown]:
        return [event for event in self.events if isinstance(event, LinkDown)]

    def of(self, kind: type[LocalEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def frames(self, kind: type[Frame]) -> list[Any]:
        return [frame for _, frame in self.written if isinstance(frame, kind)]


class World:
    """Hosts by address, pending steps by (time, sequence)."""

    def __init__(
        self,
        seed: int = 0,
        delay: float = 0.01,
        jitter: float = 0.0,
        loss: float = 0.0,
        repeat: float = 0.0,
        damage: float = 0.0,
        settings: LinkSettings | None = None,
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now = 100.0
        self.codec = ListCodec(Note)
        self.settings = settings or LinkSettings()
        self.delay, self.jitter = delay, jitter
        self.loss, self.repeat, self.damage = loss, repeat, damage
        self.hosts: dict[str, Host] = {}
        self.partition: Callable[[Host, Host], bool] = lambda one, other: False
        self.cuts = 0
        self._steps: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._connections = itertools.count(1)
        self._ends: dict[tuple[Host, int], tuple[Host, int]] = {}  # the other end
        self._dialling: dict[tuple[Host, int], bool] = {}
        self._latest: dict[tuple[Host, int], float] = {}  # arrival of the last frame to this end

    def host(self, name: str, incarnation: int = 1, overlay: str = "test", **settings: Any) -> Host:
        """Start a node; one of the same name dies silently (its connections are reset)."""
        old = self.hosts.get(f"{name}:1")
        if old is not None:
            self.kill(old)
        changed = msgspec.structs.replace(self.settings, **settings)
        host = Host(self, name, changed, incarnation, overlay)
        self.hosts[host.peer.address] = host
        return host

    def kill(self, host: Host, reset: bool = True) -> None:
        """A crash: without `reset` the others hear nothing, as after a power cut."""
        host.is_alive = False
        self.hosts.pop(host.peer.address, None)
        for (one, connection), (other, far) in list(self._ends.items()):
            if one is host:
                self._ends.pop((one, connection), None)
                self._ends.pop((other, far), None)
                if reset:
                    self._closed(other, far, "connection reset")

    def cut(self) -> None:
        """Every connection is lost, with what is on it."""
        self.cuts += 1
        for one, connection in list(self._ends):
            if (one, connection) in self._ends:
                other, far = self._ends.pop((one, connection))
                self._ends.pop((other, far), None)
                self._closed(one, connection, "cut")
                self._closed(other, far, "cut")

    def live(self) -> int:
        """Connections that are open."""
        return len(self._ends) // 2

    def at(self, delay: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._steps, (self.now + delay, next(self._sequence), step))

    def run(self, seconds: float) -> None:
        """Let time pass; each step and tick is a turn that ends with flush."""
        end = self.now + seconds
        for _ in range(1_000_000):
            due = [
                (when, index, host)
                for index, host in enumerate(self.hosts.values())
                if (when := host.links.deadline()) is not None
            ]
            tick = min(due, default=None, key=lambda each: each[:2])
            step = self._steps[0][0] if self._steps else float("inf")
            if min(step, tick[0] if tick else float("inf")) > end:
                self.now = end
                return
            if tick is not None and tick[0] < step:
                self.now = max(self.now, tick[0])
                tick[2].links.on_tick()
                tick[2].links.flush()
            else:
                self.now = max(self.now, step)
                heapq.heappop(self._steps)[2]()
        raise AssertionError("the world runs hot")

    # What the hosts' transports do

    def dial(self, host: Host, address: str) -> int:
        connection = next(self._connections)
        self._dialling[host, connection] = True

        def answer() -> None:
            other = self.hosts.get(address)
            if (host, connection) not in self._dialling or not host.is_alive:
                return  # given up meanwhile
            del self._dialling[host, connection]
            if other is None or self.partition(host, other):
                host.links.on_closed(connection, REFUSED if other is None else "no route")
                host.links.flush()
                return
            far = next(self._connections)
            self._ends[host, connection] = (other, far)
            self._ends[other, far] = (host, connection)
            other.links.on_accepted(far)
            host.links.on_opened(connection)
            host.links.flush()

        self.at(self._pause(), answer)
        return connection

    def carry(self, host: Host, connection: int, frame: Frame) -> None:
        end = self._ends.get((host, connection))
        if end is None:
            return
        other, far = end
        data = msgspec.msgpack.encode(frame)
        if self.partition(host, other) or self.rng.random() < self.loss:
            return
        if isinstance(frame, Batch) and self.rng.random() < self.damage:
            broken = bytes([frame.body[0] ^ 0xFF]) + frame.body[1:]
            data = msgspec.msgpack.encode(msgspec.structs.replace(frame, body=broken))
        for _ in range(2 if self.rng.random() < self.repeat else 1):
            self._in_order(other, far, lambda: other.links.on_frame(far, FRAMES.decode(data)))

    def close(self, host: Host, connection: int, reason: str) -> None:
        self._dialling.pop((host, connection), None)
        end = self._ends.pop((host, connection), None)
        if end is None:
            return
        other, far = end

        def closed() -> None:
            if self._ends.pop((other, far), None) is not None:
                other.links.on_closed(far, f"closed by the peer: {reason}")

        self._in_order(other, far, closed, is_end=True)

    def _closed(self, host: Host, connection: int, reason: str) -> None:
        self._in_order(host, connection, lambda: host.links.on_closed(connection, reason), True)

    def _in_order(
        self, host: Host, connection: int, step: Callable[[], None], is_end: bool = False
    ) -> None:
        when = max(self.now + self._pause(), self._latest.get((host, connection), 0.0))
        self._latest[host, connection] = when

        def arrive() -> None:
            if host.is_alive and (is_end or (host, connection) in self._ends):
                step()
                host.links.flush()

        heapq.heappush(self._steps, (when, next(self._sequence), arrive))

    def _pause(self) -> float:
        return self.delay + self.rng.random() * self.jitter

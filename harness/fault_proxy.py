"""A proxy that spoils what runs between real nodes: TCP and UDP, by sender and receiver.

Each node has an *entrance*, a port of the proxy that it advertises as its own (`advertise`), so
all others dial it there. The first frame, a Hello, names who dialled; from then on every byte
has a sender and a receiver, and the faults of that direction apply:

* `hold`: nothing passes until it is lifted, then everything, in order. For TCP that is what a cut
  network, a clogged link and a one-way partition are: the system sends again what was not
  acknowledged. A connection that is dialled meanwhile opens and never gets an answer.
* `delay` in seconds, `rate` in bytes per second, `damage` as the share of reads in which one bit is
  turned over.

`close` resets connections, as a middlebox does that lost its state. Datagrams (the directory's)
pass under the same rules; those of a held direction are lost. Senders of datagrams are known by the
port that they use, which is the node's own number.

One thread with `poll`: enough for the dozen nodes of an experiment. (`select` takes descriptors
below 1,024 only, and nodes that dial each other through a cut open more than these.)
"""

from __future__ import annotations

import contextlib
import heapq
import select
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from overlay.links.messages import Hello

READ: Final = 64 * 1024
HELD_MOST: Final = 4 << 20
"""Bytes that wait in one direction of a connection; then its sender has to wait."""
LOOK: Final = 0.05
"""Seconds between two looks at what falls due."""

Address = tuple[str, int]


class Faults(NamedTuple):
    """The faults of one direction between two nodes."""

    hold: bool = False
    delay: float = 0.0
    rate: float = 0.0  # 0: without limit
    damage: float = 0.0


SOUND: Final = Faults()


def poll(
    reads: Sequence[socket.socket], writes: Sequence[socket.socket], wait: float | None
) -> tuple[set[socket.socket], set[socket.socket]]:
    """Wait up to `wait` seconds; the sockets that can be read and written, or have failed.

    Raises OSError or ValueError if one of them is closed."""
    waiter = select.poll()
    interests: dict[int, int] = {}
    for sockets, event in ((reads, select.POLLIN), (writes, select.POLLOUT)):
        for each in sockets:
            number = each.fileno()
            interests[number] = interests.get(number, 0) | event
    for number, events in interests.items():
        waiter.register(number, events)
    happened = dict(waiter.poll(None if wait is None else wait * 1_000))
    failed = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return (
        {one for one in reads if happened.get(one.fileno(), 0) & (select.POLLIN | failed)},
        {one for one in writes if happened.get(one.fileno(), 0) & (select.POLLOUT | failed)},
    )


class Line:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.sender = ""
        self.receiver = ""
        self.waiting: deque[tuple[float, bytes]] = deque()  # when it is due
        self.size = 0
        self.free_at = 0.0  # when all that came before has passed, at the rate of the line
        self.ended = False

    def take(self, data: bytes, faults: Faults, now: float) -> None:
        if faults.rate:
            self.free_at = max(now, self.free_at) + len(data) / faults.rate
        self.waiting.append((max(now + faults.delay, self.free_at), data))
        self.size += len(data)

    def is_due(self, now: float) -> bool:
        return bool(self.waiting) and self.waiting[0][0] <= now

    def pass_on(self, now: float) -> None:
        """Write what is due, as far as the target takes it."""
        while self.is_due(now):
            due, data = self.waiting.popleft()
            sent = self.target.send(data)
            self.size -= sent
            if sent < len(data):
                self.waiting.appendleft((due, data[sent:]))
                return


class Pair:
    """A connection: what the dialler says, and what it hears. `reader` until it said who it is."""

    def __init__(self, dialler: socket.socket, node: socket.socket, receiver: str) -> None:
        self.out, self.back = Line(dialler, node), Line(node, dialler)
        self.receiver = receiver
        self.reader: FrameReader | None = FrameReader(NODE_FRAMES)  # type: ignore[type-arg]
        self.unnamed: list[bytes] = []

    def name(self, sender: str) -> None:
        self.out.sender = self.back.receiver = sender
        self.out.receiver = self.back.sender = self.receiver
        self.reader = None


class Entrance:
    """The address at which other nodes reach one node, through the proxy."""

    def __init__(self, name: str, target: Address, address: Address) -> None:
        self.name = name
        self.target = target
        self.listener = socket.create_server(address)
        self.address: Address = self.listener.getsockname()
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.datagrams.bind(self.address)
        except OSError:
            self.listener.close()
            self.datagrams.close()
            raise
        for one in (self.listener, self.datagrams):
            one.setblocking(False)


class FaultProxy:
    """A context manager; its methods may be called from any thread."""

    def __init__(self, seed: int = 1) -> None:
        self.entrances: dict[str, Entrance] = {}
        self.pairs: list[Pair] = []
        self.passed: Counter[tuple[str, str]] = Counter()
        """Bytes that were taken on connections, by sender and receiver."""
        self._faults: dict[tuple[str, str], Faults] = {}
        self._rng = Random(seed)
        self._lock = threading.Lock()
        self._stopping = False
        self._late: list[tuple[float, int, socket.socket, bytes, Address]] = []  # datagrams: a heap
        self._number = 0
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._ring()
        self._thread.join(5.0)
        with self._lock:
            for pair in list(self.pairs):
                self._drop(pair)
            for entrance in self.entrances.values():
                entrance.listener.close()
                entrance.datagrams.close()
        self._bell.close()
        self._ear.close()

    def enter(self, name: str, port: int, entrance: str = "") -> str:
        """An entrance for the node that listens on `port`; the address to advertise. `entrance`:
        the one that it had before it left; else any. OSError if another socket is bound there, as
        one is that was closed while it was polled, for a moment."""
        address = ("127.0.0.1", int(entrance.rpartition(":")[2] or 0))
        with self._lock:
            made = self.entrances[name] = Entrance(name, ("127.0.0.1", port), address)
        self._ring()
        return f"127.0.0.1:{made.address[1]}"

    def leave(self, name: str) -> None:
        """The node is gone: who dials it is refused, as by its system."""
        with self._lock:
            entrance = self.entrances.pop(name)
            with contextlib.suppress(OSError):  # a socket that is polled listens until then
                entrance.listener.shutdown(socket.SHUT_RDWR)
            entrance.listener.close()
            entrance.datagrams.close()
        self._ring()

    # -- faults ----------------------------------------------------------------------------------

    def spoil(self, sender: str, receiver: str, faults: Faults) -> None:
        """Set the faults of one direction."""
        with self._lock:
            self._faults[sender, receiver] = faults
        self._ring()

    def cut(self, one: str, other: str) -> None:
        """Drop everything between these two, in both directions."""
        self.spoil(one, other, Faults(hold=True))
        self.spoil(other, one, Faults(hold=True))

    def isolate(self, name: str) -> None:
        """Drop everything between this node and all others."""
        for other in list(self.entrances):
            if other != name:
                self.cut(name, other)

    def heal(self) -> None:
        """No faults any more; what was held passes."""
        with self._lock:
            self._faults.clear()
        self._ring()

    def close(self, one: str, other: str) -> int:
        """Reset the connections between these two; how many there were."""
        with self._lock:
            found = [p for p in self.pairs if {p.out.sender, p.receiver} == {one, other}]
            for pair in found:
                for line in (pair.out, pair.back):
                    linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
                    line.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self._drop(pair)
        return len(found)

    def _of(self, sender: str, receiver: str) -> Faults:
        return self._faults.get((sender, receiver), SOUND)

    # -- the loop --------------------------------------------------------------------------------

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def _run(self) -> None:
        while not self._stopping:
            with self._lock:
                reads, writes, wait = self._interests(time.monotonic())
            try:
                ready, free = poll(reads, writes, wait)
            except (OSError, ValueError):  # another thread closed a socket of the list meanwhile
                continue
            with self._lock:
                self._turn(ready, free, time.monotonic())

    def _interests(
        self, now: float
    ) -> tuple[list[socket.socket], list[socket.socket], float | None]:
        reads, writes, wait = [self._ear], [], 1.0
        for entrance in self.entrances.values():
            reads += [entrance.listener, entrance.datagrams]
        for line in self._lines():
            if not self._of(line.sender, line.receiver).hold:
                if line.size < HELD_MOST and not line.ended:
                    reads.append(line.source)
                if line.is_due(now):
                    writes.append(line.target)
                elif line.waiting:
                    wait = min(wait, max(0.0, line.waiting[0][0] - now), LOOK)
        if self._late:
            wait = min(wait, max(0.0, self._late[0][0] - now))
        return reads, writes, wait

    def _lines(self) -> Iterator[Line]:
        for pair in self.pairs:
            yield pair.out
            yield pair.back

    def _turn(self, ready: set[socket.socket], free: set[socket.socket], now: float) -> None:
        if self._ear in ready:
            self._ear.recv(READ)
        for entrance in self.entrances.values():
            if entrance.listener in ready:
                self._accept(entrance)
            if entrance.datagrams in ready:
                self._datagram(entrance, now)
        for pair in list(self.pairs):
            try:
                self._serve(pair, ready, free, now)
            except (OSError, ValueError):  # a reset, or closed
                self._drop(pair)
        while self._late and self._late[0][0] <= now:
            _, _, way, data, to = heapq.heappop(self._late)
            with contextlib.suppress(OSError):
                way.sendto(data, to)

    def _accept(self, entrance: Entrance) -> None:
        with contextlib.suppress(OSError):
            dialler, _ = entrance.listener.accept()
            try:
                node = socket.create_connection(entrance.target, timeout=1.0)
            except OSError:  # no listener there: so it shall look from outside
                linger = struct.pack("ii", 1, 0)
                dialler.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                dialler.close()
                return
            for one in (dialler, node):
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs.append(Pair(dialler, node, entrance.name))

    def _serve(
        self, pair: Pair, ready: set[socket.socket], free: set[socket.socket], now: float
    ) -> None:
        for line in (pair.out, pair.back):
            if line.source in ready:
                data = line.source.recv(READ)
                line.ended = not data
                if data and line is pair.out and pair.reader is not None:
                    self._greet(pair, data, now)
                elif data:
                    self._take(line, data, now)
            if line.target in free and not self._of(line.sender, line.receiver).hold:
                line.pass_on(now)
            if line.ended and not line.waiting:
                self._drop(pair)
                return

    def _greet(self, pair: Pair, data: bytes, now: float) -> None:
        """The dialler has not said who it is yet: what it says waits for that."""
        assert pair.reader is not None
        pair.unnamed.append(data)
        frames = pair.reader.feed(data)
        if not frames and pair.reader.error is None:
            return
        address = frames[0].peer.address if frames and isinstance(frames[0], Hello) else ""
        pair.name(self._by_port(address.rpartition(":")[2]))
        for part in pair.unnamed:
            self._take(pair.out, part, now)
        pair.unnamed.clear()

    def _by_port(self, port: str) -> str:
        for entrance in self.entrances.values():
            if port in (str(entrance.address[1]), str(entrance.target[1])):
                return entrance.name
        return ""

    def _take(self, line: Line, data: bytes, now: float) -> None:
        faults = self._of(line.sender, line.receiver)
        self.passed[line.sender, line.receiver] += len(data)
        if faults.damage and self._rng.random() < faults.damage:
            damaged = bytearray(data)
            damaged[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
            data = bytes(damaged)
        line.take(data, faults, now)

    def _datagram(self, entrance: Entrance, now: float) -> None:
        """From a node to the node of this entrance, by the sender's entrance: answers find back."""
        with contextlib.suppress(OSError):
            data, (_, port) = entrance.datagrams.recvfrom(READ)
            sender = self._by_port(str(port))
            faults = self._of(sender, entrance.name)
            if faults.hold:
                return
            way = self.entrances[sender].datagrams if sender else entrance.datagrams
            self._number += 1
            entry = (now + faults.delay, self._number, way, data, entrance.target)
            heapq.heappush(self._late, entry)

    def _drop(self, pair: Pair) -> None:
        if pair in self.pairs:
            self.pairs.remove(pair)
        for line in (pair.out, pair.back):
            line.source.close()

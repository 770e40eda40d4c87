"""MQTT 5 packets, byte by byte as its specification has them, and a gateway in this process.

Nothing here uses the codec of the product: what it sends and understands is written from sections 2
and 3 of MQTT 5.0.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import trio
from trio.testing import memory_stream_pair

from canopy.client.client import AsyncClient
from canopy.client.publication import PublishResult
from canopy.gateway.access import GatewayRules
from canopy.gateway.mqtt.door import MqttDoor
from canopy.wire.log import Log
from canopy.wire.token_file import TokenFile
from matching import compile_selector
from overlay.client import Delivery, Draft, Event

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)


def variable(number: int) -> bytes:
    """A variable byte integer."""
    found = bytearray()
    while True:
        byte, number = number % 128, number // 128
        found.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(found)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def pair(name: str | bytes, value: str | bytes) -> bytes:
    """A user property."""
    return b"\x26" + text(name) + text(value)


def packet(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return bytes([kind << 4 | flags]) + variable(len(body)) + body


def with_length(properties: bytes) -> bytes:
    return variable(len(properties)) + properties


def connect(
    client: str | bytes = "c",
    properties: bytes = b"",
    *,
    flags: int = 0b10,
    keep_alive: int = 0,
    will: bytes = b"",
    password: str = "",
    name: str = "MQTT",
    version: int = 5,
) -> bytes:
    """`will`: its properties with their length, topic and payload."""
    flags |= (0b100 if will else 0) | (0b1100_0000 if password else 0)
    body = text(name) + bytes([version, flags]) + struct.pack(">H", keep_alive)
    body += with_length(properties) + text(client) + will
    return packet(CONNECT, body + (text("u") + text(password) if password else b""))


def will(topic: str = "gone", payload: bytes = b"x", properties: bytes = b"") -> bytes:
    return with_length(properties) + text(topic) + text(payload)


def publish(
    topic: str | bytes = "t",
    payload: bytes = b"x",
    properties: bytes = b"",
    *,
    qos: int = 1,
    number: int = 1,
    flags: int = 0,
) -> bytes:
    identifier = struct.pack(">H", number) if qos else b""
    return packet(
        PUBLISH, text(topic) + identifier + with_length(properties) + payload, flags | qos << 1
    )


def subscribe(
    *filters: str | tuple[str, int], number: int = 1, properties: bytes = b"", flags: int = 2
) -> bytes:
    """Filters, each with its options (1: quality of service 1)."""
    body = struct.pack(">H", number) + with_length(properties)
    for one in filters:
        pattern, options = one if isinstance(one, tuple) else (one, 1)
        body += text(pattern) + bytes([options])
    return packet(SUBSCRIBE, body, flags)


def unsubscribe(*filters: str, number: int = 1, flags: int = 2) -> bytes:
    body = struct.pack(">H", number) + b"\0" + b"".join(map(text, filters))
    return packet(UNSUBSCRIBE, body, flags)


def puback(number: int, code: int = 0) -> bytes:
    return packet(PUBACK, struct.pack(">HB", number, code) + b"\0")


class Reader:
    """The parts of a packet that came."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        found = shift = 0
        while True:
            byte = self.number(1)
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def properties(self) -> dict[int, list[Any]]:
        if self.at == len(self.data):
            return {}
        end = self.variable() + self.at
        found: dict[int, list[Any]] = {}
        while self.at < end:
            kind = self.variable()
            value: Any
            if kind in (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A):
                value = self.number(1)
            elif kind in (0x13, 0x21, 0x22, 0x23):
                value = self.number(2)
            elif kind in (0x02, 0x11, 0x18, 0x27):
                value = self.number(4)
            elif kind == 0x0B:
                value = self.variable()
            elif kind in (0x09, 0x16):
                value = self.take(self.number(2))
            elif kind == 0x26:
                value = (self.text(), self.text())
            else:
                value = self.text()
            found.setdefault(kind, []).append(value)
        return found

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)


class Came(NamedTuple):
    """A packet of the server."""

    kind: int
    flags: int = 0
    number: int = 0
    codes: tuple[int, ...] = ()
    properties: dict[int, list[Any]] = {}
    topic: str = ""
    payload: bytes = b""
    size: int = 0

    @property
    def code(self) -> int:
        return self.codes[0]

    @property
    def reason(self) -> str:
        return str(self.properties.get(0x1F, [""])[0])

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def user(self) -> list[tuple[str, str]]:
        return self.properties.get(0x26, [])


def understood(kind: int, flags: int, body: bytes) -> Came:
    reader = Reader(body)
    size = len(body) + 2
    if kind == PUBLISH:
        topic = reader.text()
        number = reader.number(2) if flags & 6 else 0
        properties = reader.properties()
        return Came(kind, flags, number, (), properties, topic, reader.rest(), size)
    assert flags == 0, "reserved bits"
    if kind == CONNACK:
        present = reader.number(1)
        return Came(kind, present, 0, (reader.number(1),), reader.properties(), size=size)
    if kind in (SUBACK, UNSUBACK):
        number, properties = reader.number(2), reader.properties()
        return Came(kind, 0, number, tuple(reader.rest()), properties, size=size)
    if kind == PUBACK:
        number = reader.number(2)
        code = reader.number(1) if len(body) > 2 else 0
        return Came(kind, 0, number, (code,), reader.properties(), size=size)
    if kind == DISCONNECT:
        code = reader.number(1) if body else 0
        return Came(kind, 0, 0, (code,), reader.properties(), size=size)
    assert kind == PINGRESP
    assert not body
    return Came(kind, size=size)


class Client:
    """The client's end of a connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, *packets: bytes) -> None:
        await self.stream.send_all(b"".join(packets))

    async def next(self, timeout: float = 5.0) -> Came | None:
        """The next packet; None: the server has closed."""
        with trio.fail_after(timeout):
            while True:
                found = self._first()
                if found is not None:
                    return found
                data = await self.stream.receive_some(65_536)
                if not data:
                    assert not self.buffer
                    return None
                self.buffer += data

    async def got(self, kind: int) -> Came:
        found = await self.next()
        assert found is not None, "closed"
        assert found.kind == kind, found
        return found

    async def ask(self, *packets: bytes) -> Came:
        await self.send(*packets)
        found = await self.next()
        assert found is not None, "closed"
        return found

    async def silent(self, seconds: float = 1.0) -> bool:
        """Whether nothing comes."""
        with trio.move_on_after(seconds):
            assert await self.next(math.inf) is None, "something came"
            return False
        return True

    async def is_closed(self) -> bool:
        return await self.next() is None

    def _first(self) -> Came | None:
        reader = Reader(self.buffer)
        try:
            first, size = reader.number(1), reader.variable()
            body = reader.take(size)
        except AssertionError:
            return None
        self.buffer = reader.rest()
        return understood(first >> 4, first & 15, body)


class Source:
    """A subscription at the node."""

    def __init__(self, selector: str, bus: Bus) -> None:
        self.predicate = compile_selector(selector)
        self.send, self._receive = trio.open_memory_channel[Delivery](math.inf)
        self._bus = bus

    async def receive(self, timeout: float) -> list[Delivery]:
        try:
            return [await self._receive.receive()]
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return []

    def close(self) -> None:
        self._bus.sources.discard(self)
        self.send.close()


class Bus:
    """A node: what is published goes to the subscriptions that match."""

    def __init__(self) -> None:
        self.sources: set[Source] = set()
        self.published: list[Draft] = []
        self.age = 0.0
        """Seconds for which each event has been on its way."""

    async def publish_many(
        self, drafts: Iterable[Draft], *, receipt: bool = False, timeout: float = 0.0
    ) -> PublishResult:
        await trio.lowlevel.checkpoint()
        for draft in drafts:
            self.published.append(draft)
            event = Event(
                *("n", 1, len(self.published), time.time() - self.age),
                *(draft.attributes, draft.payload, draft.payload_type),
            )
            for source in self.sources:
                if source.predicate.matches(draft.attributes):
                    source.send.send_nowait(Delivery("s", event, "a", "n", "n", 1, 0.0))
        return PublishResult(("n.1.1",) * len(self.published))

    async def subscribe(self, selector: str, *, timeout: float = 0.0) -> Source:
        await trio.lowlevel.checkpoint()
        made = Source(selector, self)
        self.sources.add(made)
        return made


def socket_pair(room: int) -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """Two ends of a connection whose system keeps about `room` bytes (of TCP it keeps more)."""
    ours, theirs = trio.socket.socketpair()
    theirs.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, room)
    return trio.SocketStream(ours), trio.SocketStream(theirs)


class Gateway:
    """A gateway with MQTT, and its node."""

    def __init__(self, nursery: trio.Nursery, tokens: TokenFile | None) -> None:
        self.bus = Bus()
        self.logged: list[tuple[str, dict[str, Any]]] = []
        log = log_into(self.logged)
        self.door = MqttDoor(cast(AsyncClient, self.bus), GatewayRules(tokens), log)
        self._nursery = nursery

    def open(self, room: int = 0) -> Client:
        """A connection; with `room` one that takes about so many bytes before they are read."""
        ours, theirs = socket_pair(room) if room else memory_stream_pair()

        async def serve() -> None:
            async with theirs:
                await self.door.serve(theirs, "test")

        self._nursery.start_soon(serve)
        return Client(ours)

    async def client(self, name: str = "c", properties: bytes = b"", **words: Any) -> Client:
        """A client that is connected."""
        made = self.open()
        found = await made.ask(connect(name, properties, **words))
        assert (found.kind, found.code) == (CONNACK, 0), found
        return made

    async def reader(self, *filters: str, name: str = "reader") -> Client:
        """A client that is subscribed."""
        made = await self.client(name)
        found = await made.ask(subscribe(*(filters or ("#",))))
        assert found.kind == SUBACK
        assert max(found.codes) < 0x80
        return made


class _Recorder:
    def __init__(self, logged: list[tuple[str, dict[str, Any]]]) -> None:
        self._logged = logged

    def info(self, what: str, **fields: Any) -> None:
        self._logged.append((what, fields))

    debug = warning = info


def log_into(lines: list[tuple[str, dict[str, Any]]]) -> Log:
    """A log that adds each line, its word and fields, to `lines`."""
    return cast(Log, _Recorder(lines))


@asynccontextmanager
async def gateway(folder: Path | None = None) -> AsyncIterator[Gateway]:
    """A gateway; with tokens if there is a folder for them."""
    tokens = TokenFile(folder / "tokens.json") if folder is not None else None
    async with trio.open_nursery() as nursery:
        yield Gateway(nursery, tokens)
        nursery.cancel_scope.cancel()


def numbered(names: Sequence[str]) -> set[str]:
    """Statements, of which some are ranges: ``3.1.2-1 to 5``."""
    found: set[str] = set()
    for name in names:
        section, _, rest = name.partition("-")
        first, _, last = rest.partition(" to ")
        found |= {f"{section}-{n}" for n in range(int(first), int(last or first) + 1)}
    return found

"""Kademlia with mends: what ``kademlia`` 2.2.3 needs before a node may live with it.

Each was seen to be necessary (issue 2, *Facts*):

- Datagrams are decoded typed and bounded by msgspec, from loopback only, and only the four remote
  calls of the paper are answered; the library decodes anything and one malformed datagram ended
  the program.
- An answer after its time-out, or for a question that was given up, is ignored instead of raising.
- A dead peer costs `WAIT` instead of five seconds.
- Newcomers get the values that belong to them (the library hashes the keys once more and so sends
  wrong ones), at most `WELCOME_MOST`: one ping drew 1,001 datagrams from a node with 1,000 values.
- `set` keeps the value here too, so that a node alone can answer the next one's question, and does
  not raise when all neighbours are dead.
- Storage is bounded in number, size and age.

Nothing here is authenticated: that is why the directory stays on loopback and is never believed
(`canopy.wire.directory.directory`). The library's saved state is a pickle and is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import msgspec
from kademlia.crawling import NodeSpiderCrawl
from kademlia.network import Server
from kademlia.node import Node as Contact
from kademlia.protocol import KademliaProtocol
from kademlia.storage import IStorage
from msgspec import Meta

from canopy.wire.config import is_loopback
from canopy.wire.transport.framing import MALFORMED

K: Final = 8  # contacts per bucket and copies of a value; the paper's 20 is for millions of nodes
ALPHA: Final = 3  # questions in parallel; Kademlia's paper, 2.3
WAIT: Final = 0.3  # seconds for an answer on loopback (issue 2, Facts)
WELCOME_MOST: Final = 8  # values pushed to one newcomer; wild guess
DATAGRAM: Final = 8 * 1024 + 64  # bytes; rpcudp sends no larger ones than 8 KiB and its header
HEADER: Final = 21  # rpcudp: one byte (0 question, 1 answer) and a message id of 20
ID: Final = 20  # bytes of SHA-1
VALUES: Final = 1_000  # stored values; wild guess
VALUE_LIMIT: Final = 1_024  # bytes of one value: some addresses
VALUE_AGE: Final = (
    300.0  # seconds without being told again: five periods of canopy.wire.directory.finding
)

Id = Annotated[bytes, Meta(min_length=ID, max_length=ID)]
Value = Annotated[str, Meta(max_length=VALUE_LIMIT)]
Answer = bytes | bool | list[tuple[bytes, str, int]] | dict[str, str] | None

QUESTIONS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "ping": msgspec.msgpack.Decoder(tuple[Id]),
    "store": msgspec.msgpack.Decoder(tuple[Id, Id, Value]),
    "find_node": msgspec.msgpack.Decoder(tuple[Id, Id]),
    "find_value": msgspec.msgpack.Decoder(tuple[Id, Id]),
}
"""The remote calls that are answered, with their arguments: who asks, a key, a value."""

QUESTION: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
ANSWER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Answer)


class BoundedStorage(IStorage):  # type: ignore[misc]
    """Values by digest; bounded in number, size and age. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[bytes, tuple[float, str]] = {}  # oldest first

    def __setitem__(self, key: bytes, value: str) -> None:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > VALUE_LIMIT:
            return
        self._values.pop(key, None)
        self._values[key] = (self._clock(), value)
        while len(self._values) > VALUES:
            del self._values[next(iter(self._values))]

    def __getitem__(self, key: bytes) -> str:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: bytes, default: str | None = None) -> str | None:
        """The value, unless it is too old."""
        self._forget()
        found = self._values.get(key)
        return default if found is None else found[1]

    def iter_older_than(self, seconds_old: float) -> list[tuple[bytes, str]]:
        """Nothing: `canopy.wire.directory.finding` tells its own values again, nobody tells those
        of others."""
        return []

    def __iter__(self) -> Iterator[tuple[bytes, str]]:
        self._forget()
        return iter([(key, value) for key, (_, value) in self._values.items()])

    def _forget(self) -> None:
        oldest = self._clock() - VALUE_AGE
        while self._values:
            key = next(iter(self._values))
            if self._values[key][0] > oldest:
                break
            del self._values[key]


class MendedProtocol(KademliaProtocol):  # type: ignore[misc]
    """The library's protocol over typed, bounded datagrams. `refused` counts bad ones."""

    def __init__(self, source: Contact, storage: BoundedStorage, k: int) -> None:
        super().__init__(source, storage, k)
        self._wait_timeout = WAIT
        self.refused = 0

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """One datagram: a question or an answer, or nothing that concerns us."""
        if not HEADER < len(data) <= DATAGRAM or not is_loopback(address[0]):
            self.refused += 1
            return
        number, body = data[1:HEADER], data[HEADER:]
        try:
            if data[0] == 0:
                name, raw = QUESTION.decode(body)
                decoder = QUESTIONS.get(name)
                if decoder is None:
                    self.refused += 1
                    return
                answer = getattr(self, f"rpc_{name}")(address, *decoder.decode(raw))
                packed = msgspec.msgpack.encode(answer)
                self.transport.sendto(b"\x01" + number + packed, address)
            elif data[0] == 1:
                self._accept_response(number, ANSWER.decode(body), address)
            else:
                self.refused += 1
        except MALFORMED:
            self.refused += 1

    def _accept_response(self, number: bytes, data: Any, address: tuple[str, int]) -> None:
        future, alarm = self._outstanding.pop(number, (None, None))
        if future is None:
            return  # too late, or never asked
        alarm.cancel()
        if not future.done():
            future.set_result((True, data))

    def _timeout(self, number: bytes) -> None:
        future, _ = self._outstanding.pop(number, (None, None))
        if future is not None and not future.done():
            future.set_result((False, None))

    async def call_find_node(self, asked: Contact, wanted: Contact) -> Any:
        """The contacts that `asked` knows near `wanted`; only sound ones."""
        happened, data = await super().call_find_node(asked, wanted)
        return happened, sound_contacts(data)

    async def call_find_value(self, asked: Contact, wanted: Contact) -> Any:
        """The value, or contacts nearer to it; only sound ones."""
        happened, data = await super().call_find_value(asked, wanted)
        if isinstance(data, dict):
            value = data.get("value")
            good = isinstance(value, str) and len(value.encode(errors="replace")) <= VALUE_LIMIT
            return happened, {"value": value} if good else []
        return happened, sound_contacts(data)

    def welcome_if_new(self, node: Contact) -> None:
        """Give a newcomer the values that are nearer to it than to us, and remember it."""
        if not self.router.is_new_node(node):
            return
        given = 0
        for key, value in self.storage:
            place = Contact(key)
            if given < WELCOME_MOST and node.distance_to(place) < self.source_node.distance_to(
                place
            ):
                given += 1
                self.spawn(self.call_store(node, key, value))
        self.router.add_contact(node)

    def spawn(self, job: Any) -> None:
        """Run `job` beside; its failure concerns nobody."""
        task = asyncio.ensure_future(job)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


def sound_contacts(data: Any) -> list[tuple[bytes, str, int]]:
    """The contacts of an answer that can be ones: an id, a loopback address, a port; at most K."""
    if not isinstance(data, list):
        return []
    return [
        (node, host, port)
        for node, host, port in data[:K]
        if len(node) == ID and is_loopback(host) and 0 < port < 1 << 16
    ]


class MendedServer(Server):  # type: ignore[misc]
    """A Kademlia node that survives what its neighbours do."""

    protocol_class = MendedProtocol

    def __init__(self, identity: bytes, clock: Callable[[], float]) -> None:
        super().__init__(ksize=K, alpha=ALPHA, node_id=identity, storage=BoundedStorage(clock))

    @property
    def alone(self) -> bool:
        """Whether no other node is known."""
        return not self.protocol.router.find_neighbors(self.node)

    async def set_digest(self, dkey: bytes, value: str) -> bool:
        """Keep the value here and at the nodes nearest to its key; whether any of them took it."""
        self.storage[dkey] = value
        place = Contact(dkey)
        nearest = self.protocol.router.find_neighbors(place)
        if not nearest:
            return False
        spider = NodeSpiderCrawl(self.protocol, place, nearest, self.ksize, self.alpha)
        found = await spider.find()
        stored = await asyncio.gather(*(self.protocol.call_store(n, dkey, value) for n in found))
        return any(happened for happened, _ in stored)

"""What had to be changed in ``kademlia`` 2.2.3 before a node can rely on it.

Each fault was observed:

- Datagrams are decoded typed and bounded by msgspec, are accepted from loopback only, and only the
  four remote calls of the paper (Maymounkov and Mazières 2002) are answered. The library decodes
  anything, and one malformed datagram ended the program.
- An answer after its time-out is ignored instead of raising.
- A dead contact costs `CONTACT_TIMEOUT` instead of five seconds.
- A new contact gets the values that are nearest to it (the library hashes the keys once more and so
  sends wrong ones), at most `WELCOME_MOST`: one ping caused 1,001 datagrams from a node with 1,000
  values.
- `set` stores the value here too, so that a node without contacts can answer the next one, and does
  not raise when all contacts are dead.
- Storage is bounded in number, size and age.

Nothing here is authenticated: that is why the directory stays on loopback and what it says is only
ever dialled (`canopy.wire.directory.directory`). The library's saved state is a pickle and is not
used.
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

from canopy.wire.addresses import is_loopback
from canopy.wire.constants import (
    BUCKET_SIZE,
    CONTACT_TIMEOUT,
    DATAGRAM_LIMIT,
    PARALLEL_QUERIES,
    STORED_VALUES,
    VALUE_AGE,
    VALUE_LIMIT,
    WELCOME_MOST,
)
from canopy.wire.transport.framing import MALFORMED
from overlay.bounded import BoundedDict

HEADER: Final = 21  # rpcudp: one byte (0 request, 1 response) and a message id of 20
ID: Final = 20  # bytes of SHA-1

Id = Annotated[bytes, Meta(min_length=ID, max_length=ID)]
Value = Annotated[str, Meta(max_length=VALUE_LIMIT)]
Response = bytes | bool | list[tuple[bytes, str, int]] | dict[str, str] | None

REQUESTS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "ping": msgspec.msgpack.Decoder(tuple[Id]),
    "store": msgspec.msgpack.Decoder(tuple[Id, Id, Value]),
    "find_node": msgspec.msgpack.Decoder(tuple[Id, Id]),
    "find_value": msgspec.msgpack.Decoder(tuple[Id, Id]),
}
"""The remote calls that are answered, with their arguments: the caller, a key, a value."""

REQUEST: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
RESPONSE: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Response)


class BoundedStorage(IStorage):  # type: ignore[misc]
    """Values by digest; bounded in number, size and age. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: BoundedDict[bytes, tuple[float, str]] = BoundedDict(STORED_VALUES)

    def __setitem__(self, key: bytes, value: str) -> None:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > VALUE_LIMIT:
            return
        self._values.renew(key, (self._clock(), value))

    def __getitem__(self, key: bytes) -> str:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: bytes, default: str | None = None) -> str | None:
        """The value, or `default` if there is none or it is older than `VALUE_AGE`."""
        self._expire()
        found = self._values.get(key)
        return default if found is None else found[1]

    def iter_older_than(self, seconds_old: float) -> list[tuple[bytes, str]]:
        """Nothing, so that values are not republished: each node announces its own ones again."""
        return []

    def __iter__(self) -> Iterator[tuple[bytes, str]]:
        self._expire()
        return iter([(key, value) for key, (_, value) in self._values.items()])

    def _expire(self) -> None:
        oldest = self._clock() - VALUE_AGE
        while self._values and next(iter(self._values.values()))[0] <= oldest:
            self._values.popitem(last=False)


class HardenedProtocol(KademliaProtocol):  # type: ignore[misc]
    """The library's protocol over typed, bounded datagrams. `refused` counts malformed ones."""

    def __init__(self, source: Contact, storage: BoundedStorage, k: int) -> None:
        super().__init__(source, storage, k)
        self._wait_timeout = CONTACT_TIMEOUT
        self.refused = 0

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Take one datagram: answer a request, or complete the request that it responds to."""
        if not HEADER < len(data) <= DATAGRAM_LIMIT or not is_loopback(address[0]):
            self.refused += 1
            return
        number, body = data[1:HEADER], data[HEADER:]
        try:
            if data[0] == 0:
                name, raw = REQUEST.decode(body)
                decoder = REQUESTS.get(name)
                if decoder is None:
                    self.refused += 1
                    return
                answer = getattr(self, f"rpc_{name}")(address, *decoder.decode(raw))
                packed = msgspec.msgpack.encode(answer)
                self.transport.sendto(b"\x01" + number + packed, address)
            elif data[0] == 1:
                self._accept_response(number, RESPONSE.decode(body), address)
            else:
                self.refused += 1
        except MALFORMED:
            self.refused += 1

    def _accept_response(self, number: bytes, data: Any, address: tuple[str, int]) -> None:
        future, alarm = self._outstanding.pop(number, (None, None))
        if future is None:
            return  # it timed out, or there was no such request
        alarm.cancel()
        if not future.done():
            future.set_result((True, data))

    def _timeout(self, number: bytes) -> None:
        future, _ = self._outstanding.pop(number, (None, None))
        if future is not None and not future.done():
            future.set_result((False, None))

    async def call_find_node(self, asked: Contact, wanted: Contact) -> Any:
        """The valid contacts that `asked` knows near `wanted`."""
        happened, data = await super().call_find_node(asked, wanted)
        return happened, sound_contacts(data)

    async def call_find_value(self, asked: Contact, wanted: Contact) -> Any:
        """The value, or valid contacts nearer to it."""
        happened, data = await super().call_find_value(asked, wanted)
        if isinstance(data, dict):
            value = data.get("value")
            good = isinstance(value, str) and len(value.encode(errors="replace")) <= VALUE_LIMIT
            return happened, {"value": value} if good else []
        return happened, sound_contacts(data)

    def welcome_if_new(self, node: Contact) -> None:
        """Send a new contact the values that are nearer to it than to us, and add it."""
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
        """Run `job` as a task whose failure is ignored."""
        task = asyncio.ensure_future(job)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


def sound_contacts(data: Any) -> list[tuple[bytes, str, int]]:
    """The valid contacts of a response (id, loopback address, port), at most `BUCKET_SIZE`."""
    if not isinstance(data, list):
        return []
    return [
        (node, host, port)
        for node, host, port in data[:BUCKET_SIZE]
        if len(node) == ID and is_loopback(host) and 0 < port < 1 << 16
    ]


class HardenedServer(Server):  # type: ignore[misc]
    """A Kademlia node over `HardenedProtocol` and `BoundedStorage`."""

    protocol_class = HardenedProtocol

    def __init__(self, identity: bytes, clock: Callable[[], float]) -> None:
        super().__init__(
            ksize=BUCKET_SIZE,
            alpha=PARALLEL_QUERIES,
            node_id=identity,
            storage=BoundedStorage(clock),
        )

    @property
    def alone(self) -> bool:
        """Whether the routing table has no contact: nothing can be stored elsewhere or looked
        up."""
        return not self.protocol.router.find_neighbors(self.node)

    async def set_digest(self, dkey: bytes, value: str) -> bool:
        """Store the value here and at the contacts nearest to its key.

        Returns whether any of them stored it.
        """
        self.storage[dkey] = value
        place = Contact(dkey)
        nearest = self.protocol.router.find_neighbors(place)
        if not nearest:
            return False
        spider = NodeSpiderCrawl(self.protocol, place, nearest, self.ksize, self.alpha)
        found = await spider.find()
        stored = await asyncio.gather(*(self.protocol.call_store(n, dkey, value) for n in found))
        return any(happened for happened, _ in stored)

"""Corrections of ``kademlia`` 2.2.3 without which a node could not rely on it.

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
- A lookup asks at most `CRAWL_MOST` contacts: a contact that named nearer and nearer ones made it
  endless.

Nothing here is authenticated. So without keys the directory stays on loopback and its addresses are
only dialled (`canopy.wire.directory.directory`); with keys, see `signed_kademlia`. The library's
saved state is a pickle and is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import msgspec
from kademlia.crawling import NodeSpiderCrawl, ValueSpiderCrawl
from kademlia.network import Server
from kademlia.node import Node as Contact
from kademlia.protocol import KademliaProtocol
from kademlia.storage import IStorage
from kademlia.utils import digest
from msgspec import Meta

from canopy.wire.addresses import is_loopback
from canopy.wire.constants import (
    BUCKET_SIZE,
    CONTACT_TIMEOUT,
    CRAWL_MOST,
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


def request_decoders(value: Any) -> dict[str, msgspec.msgpack.Decoder[Any]]:
    """Return decoders for the arguments of the answered remote calls: the caller, a key, and a
    value of this type."""
    return {
        "ping": msgspec.msgpack.Decoder(tuple[Id]),
        "store": msgspec.msgpack.Decoder(tuple[Id, Id, value]),
        "find_node": msgspec.msgpack.Decoder(tuple[Id, Id]),
        "find_value": msgspec.msgpack.Decoder(tuple[Id, Id]),
    }


REQUEST: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def response_decoder(value: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of answers, with values of this type."""
    return msgspec.msgpack.Decoder(
        bytes | bool | list[tuple[bytes, str, int]] | dict[str, value] | None
    )


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
        """Return the value, or `default` if there is none or it is older than `VALUE_AGE`."""
        self._expire()
        found = self._values.get(key)
        return default if found is None else found[1]

    def iter_older_than(self, seconds_old: float) -> list[tuple[bytes, str]]:
        """Return nothing, so that values are not republished: each node announces its own values
        again."""
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

    requests = request_decoders(Value)
    responses = response_decoder(str)

    def __init__(self, source: Contact, storage: Any, k: int) -> None:
        super().__init__(source, storage, k)
        self._wait_timeout = CONTACT_TIMEOUT
        self.admits: Callable[[str], bool] = is_loopback
        """Returns whether a contact may have this address."""
        self.refused = 0

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Handle one datagram: answer a request, or complete the request to which it responds."""
        if not HEADER < len(data) <= DATAGRAM_LIMIT or not is_loopback(address[0]):
            self.refused += 1
            return
        number, body = data[1:HEADER], data[HEADER:]
        try:
            if data[0] == 0:
                self.answer(number, body, address)
            elif data[0] == 1:
                self._accept_response(number, self.responses.decode(body), address)
            else:
                self.refused += 1
        except MALFORMED:
            self.refused += 1

    def answer(
        self, number: bytes, body: bytes, address: tuple[str, int], caller: bytes | None = None
    ) -> None:
        """Carry out a request, and send the answer. `caller`: the sender's id, if known, which the
        request must name. Raises one of `MALFORMED`."""
        name, raw = REQUEST.decode(body)
        decoder = self.requests.get(name)
        arguments = () if decoder is None else decoder.decode(raw)
        if not arguments or (caller is not None and arguments[0] != caller):
            self.refused += 1
            return
        packed = msgspec.msgpack.encode(getattr(self, f"rpc_{name}")(address, *arguments))
        self.transport.sendto(b"\x01" + number + packed, address)

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
        """Return the valid contacts that `asked` knows near `wanted`."""
        happened, data = await super().call_find_node(asked, wanted)
        return happened, sound_contacts(data, self.admits)

    async def call_find_value(self, asked: Contact, wanted: Contact) -> Any:
        """Return the value, or valid contacts nearer to it."""
        happened, data = await super().call_find_value(asked, wanted)
        if isinstance(data, dict):
            value = data.get("value")
            return happened, {"value": value} if self.is_sound(wanted.id, value) else []
        return happened, sound_contacts(data, self.admits)

    def is_sound(self, key: bytes, value: Any) -> bool:
        """Return whether a found value is one that could have been stored."""
        return isinstance(value, str) and len(value.encode(errors="replace")) <= VALUE_LIMIT

    def welcome_if_new(self, node: Contact) -> None:
        """Send a new contact the values that are nearer to it than to this node, and add it."""
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


def sound_contacts(
    data: Any, admits: Callable[[str], bool] = is_loopback
) -> list[tuple[bytes, str, int]]:
    """Return the valid contacts of a response (id, address, port), at most `BUCKET_SIZE`."""
    if not isinstance(data, list):
        return []
    return [
        (node, host, port)
        for node, host, port in data[:BUCKET_SIZE]
        if len(node) == ID and admits(host) and 0 < port < 1 << 16
    ]


class NodeCrawl(NodeSpiderCrawl):  # type: ignore[misc]
    """The library's search for the contacts nearest to a key, within bounds."""

    async def _find(self, rpcmethod: Any) -> Any:
        if len(self.nearest.contacted) >= CRAWL_MOST:
            return list(self.nearest)
        return await super()._find(rpcmethod)


class ValueCrawl(ValueSpiderCrawl):  # type: ignore[misc]
    """The library's search for a value, within bounds."""

    async def _find(self, rpcmethod: Any) -> Any:
        if len(self.nearest.contacted) >= CRAWL_MOST:
            return None
        return await super()._find(rpcmethod)


class HardenedServer(Server):  # type: ignore[misc]
    """A Kademlia node over `HardenedProtocol` and `BoundedStorage`."""

    protocol_class = HardenedProtocol

    def __init__(self, identity: bytes, clock: Callable[[], float], storage: Any = None) -> None:
        super().__init__(
            ksize=BUCKET_SIZE,
            alpha=PARALLEL_QUERIES,
            node_id=identity,
            storage=BoundedStorage(clock) if storage is None else storage,
        )

    @property
    def alone(self) -> bool:
        """Whether the routing table has no contact: values can be neither stored at others nor
        looked up."""
        return not self.protocol.router.find_neighbors(self.node)

    async def bootstrap(self, addrs: list[tuple[str, int]]) -> Any:
        """Contact the nodes at these addresses, and then those near this node's own place."""
        found = await asyncio.gather(*map(self.bootstrap_node, addrs))
        return await self._nearest(self.node, [node for node in found if node is not None])

    async def _refresh_table(self) -> None:
        for key in self.protocol.get_refresh_ids():
            place = Contact(key)
            await self._nearest(place, self.protocol.router.find_neighbors(place, self.alpha))

    async def _nearest(self, place: Contact, known: list[Contact]) -> list[Contact]:
        return list(await NodeCrawl(self.protocol, place, known, self.ksize, self.alpha).find())

    async def find_values(self, dkey: bytes, crawl: Any = ValueCrawl) -> Any:
        """Return the values that `crawl` finds under a key at other nodes; None if it finds
        none."""
        place = Contact(dkey)
        nearest = self.protocol.router.find_neighbors(place)
        if not nearest:
            return None
        return await crawl(self.protocol, place, nearest, self.ksize, self.alpha).find()

    async def get(self, key: str) -> Any:
        """Return the value of a key: the one stored here, else one from other nodes."""
        dkey = digest(key)
        stored = self.storage.get(dkey)
        return await self.find_values(dkey) if stored is None else stored

    async def set_digest(self, dkey: bytes, value: Any) -> bool:
        """Store the value here and at the contacts nearest to its key.

        Returns whether any of them stored it.
        """
        self.storage[dkey] = value
        place = Contact(dkey)
        nearest = self.protocol.router.find_neighbors(place)
        if not nearest:
            return False
        found = await self._nearest(place, nearest)
        stored = await asyncio.gather(*(self.protocol.call_store(n, dkey, value) for n in found))
        return any(happened for happened, _ in stored)

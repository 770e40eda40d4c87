"""The records of the directory if nodes have keys: addresses, each signed by its node.

A record has its entry, the node and its address, an expiry time, and its number in the sequence of
that node's records. With it travel the signature and the certificates that vouch for the node, so
that any receiver can verify it, whoever passed it on. A node can sign only its own address: a lying
member misdirects others to one address and to no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from canopy.wire.addresses import split_address
from canopy.wire.constants import (
    ENTRIES_OF_NODE,
    RECORD_LIMIT,
    RECORDS_OF_ENTRY,
    STORED_BYTES,
    STORED_VALUES,
    VALUE_AGE,
)
from canopy.wire.keys.beliefs import Beliefs
from canopy.wire.keys.certificates import KeySigner
from canopy.wire.transport.framing import MALFORMED
from overlay.bounded import BoundedDict
from overlay.links.statements import Chain, Signature, statement
from overlay.machine import NodeId, Uint53
from overlay.rights import Role

REMEMBERED: Final = 4 * STORED_VALUES
"""The most sequence numbers of records that are remembered, those of dropped records included."""

Text = Annotated[str, Meta(max_length=300)]


class RecordError(Exception):
    """A record is not valid; the message says why."""


class AddressRecord(msgspec.Struct, frozen=True, array_like=True):
    """A node is reached at an address."""

    overlay: Text
    name: Text
    """The entry to which it belongs."""
    node: NodeId
    address: Text
    """HOST:PORT."""
    sequence: Uint53
    """Of two records of a node for an entry, the one with the greater number is valid."""
    expires: Uint53
    """The expiry time in milliseconds since 1970."""


class SignedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as it is sent and stored."""

    body: Annotated[bytes, Meta(max_length=RECORD_LIMIT)]
    signature: Signature
    chain: Chain


class DirectoryKeys(NamedTuple):
    """The part of a node's keys that the directory's thread uses. `beliefs` returns a value that
    never changes, so that threads need no lock."""

    signer: KeySigner
    beliefs: Callable[[], Beliefs]
    now: Callable[[], float]
    """Returns seconds since 1970."""

    def vouches(self, node: NodeId, chain: Chain) -> bool:
        """Return whether the overlay has certified this node as one that serves others, and has not
        revoked it."""
        beliefs = self.beliefs()
        found = beliefs.look_at(chain)
        return (
            found is not None
            and found.node.principal.id == node
            and found.node.principal.role >= Role.MEMBER
            and not beliefs.refusal(found, self.now())
        )


def entry_key(overlay: str, name: str) -> bytes:
    """Return the place of an entry in the key space."""
    return sha1(f"canopy/{overlay}/{name}".encode()).digest()


class RecordSigning:
    """Makes this node's records, and verifies those of others."""

    def __init__(self, keys: DirectoryKeys) -> None:
        self._keys = keys
        self._sequence = 0

    def make(self, name: str, address: str) -> bytes:
        """Make this node's record for the entry `name`. Its number is the time, so that it grows
        across restarts."""
        keys, now = self._keys, int(self._keys.now() * 1e3)
        self._sequence = max(self._sequence + 1, now)
        beliefs = keys.beliefs()
        record = AddressRecord(
            beliefs.overlay,
            name,
            beliefs.own.principal.id,
            address,
            self._sequence,
            now + int(VALUE_AGE * 1e3),
        )
        body = msgspec.msgpack.encode(record)
        signature = keys.signer.sign(statement("directory record", body))
        return msgspec.msgpack.encode(SignedRecord(body, signature, beliefs.chain))

    def read(self, data: bytes, key: bytes) -> AddressRecord:
        """Decode a record for the entry at `key`. Raises RecordError if it is not from a node of
        this overlay for that entry, or has expired."""
        if len(data) > RECORD_LIMIT:
            raise RecordError(f"{len(data)} bytes, and {RECORD_LIMIT} are allowed")
        try:
            signed = msgspec.msgpack.decode(data, type=SignedRecord)
            record = msgspec.msgpack.decode(signed.body, type=AddressRecord)
            _, port = split_address(record.address)
        except (*MALFORMED, ValueError) as error:
            raise RecordError(f"no record: {error}") from None
        keys, life = self._keys, VALUE_AGE * 1e3
        if key != entry_key(keys.beliefs().overlay, record.name) or not port:
            raise RecordError("it belongs to another entry")
        if record.overlay != keys.beliefs().overlay:
            raise RecordError("it is of another overlay")
        if not -life < record.expires - keys.now() * 1e3 <= 2 * life:
            raise RecordError("it has expired, or its node's clock is wrong")
        if signed.signature.signer != record.node or not keys.signer.holds(
            signed.signature, statement("directory record", signed.body)
        ):
            raise RecordError("its node has not signed it")
        if not keys.vouches(record.node, signed.chain):
            raise RecordError("the overlay does not vouch for its node")
        return record


class _Kept(NamedTuple):
    since: float
    data: bytes
    name: str


class RecordStorage:
    """Records by entry and node, as the library's `IStorage`; bounded in number, bytes and age, for
    each node and for each entry. `clock` is monotonic seconds."""

    def __init__(self, records: RecordSigning, clock: Callable[[], float]) -> None:
        self._records = records
        self._clock = clock
        self._kept: BoundedDict[tuple[bytes, NodeId], _Kept] = BoundedDict(STORED_VALUES)
        self._newest: BoundedDict[tuple[bytes, NodeId], int] = BoundedDict(REMEMBERED)
        self._turn = 0
        self.refused = 0
        """The number of records that were refused."""

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.take(key, value)

    def take(self, key: bytes, data: bytes) -> AddressRecord | None:
        """Store a valid record, unless a later one of its node was here. Returns it, or None if it
        is refused. Readers use this to verify records too."""
        try:
            record = self._records.read(data, key)
        except RecordError:
            self.refused += 1
            return None
        place = key, record.node
        if record.sequence < self._newest.get(place, 0):
            self.refused += 1
            return None
        self._newest.renew(place, record.sequence)
        self._kept.renew(place, _Kept(self._clock(), data, record.name))
        self._drop([k for k in self._kept if k[0] == key][:-RECORDS_OF_ENTRY])
        self._drop([k for k in self._kept if k[1] == record.node][:-ENTRIES_OF_NODE])
        while sum(len(kept.data) for kept in self._kept.values()) > STORED_BYTES:
            self._kept.popitem(last=False)
        return record

    def _drop(self, places: list[tuple[bytes, NodeId]]) -> None:
        for place in places:
            del self._kept[place]

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """Return one record of the entry, another one each time. An answer has only one, so that it
        fits into a datagram."""
        found = self.all(key)
        if not found:
            return default
        self._turn += 1
        return found[self._turn % len(found)]

    def all(self, key: bytes) -> list[bytes]:
        """Return the records of an entry."""
        self._expire()
        return [kept.data for (at, _), kept in self._kept.items() if at == key]

    def iter_older_than(self, seconds_old: float) -> list[tuple[bytes, bytes]]:
        """Return nothing: each node announces its own records again."""
        return []

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self._expire()
        return iter([(key, kept.data) for (key, _), kept in self._kept.items()])

    def _expire(self) -> None:
        oldest = self._clock() - VALUE_AGE
        while self._kept and next(iter(self._kept.values())).since <= oldest:
            self._kept.popitem(last=False)

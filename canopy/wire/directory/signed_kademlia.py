"""Kademlia between nodes that have keys, on any address.

Datagrams can have forged sources, and the library answers them all. Here

* a caller that has not shown that it receives datagrams at its address gets a *cookie* and nothing
  else: 37 bytes for at least as many, so that the directory amplifies nothing. A cookie is a hash
  of the address, so that nothing is stored for strangers;
* a caller that shows its cookie has to prove, with the key in its certificate, which node of the
  overlay it is. No other caller is asked, answered or named to others, and a node's place in the
  key space follows from its id;
* values are records that a node has signed (`signed_records`).

Each datagram is the library's with a cookie after its header::

    0 request    number (20) cookie (16) name and arguments
    1 response   number (20) answer
    2 cookie     number (20) cookie (16)
    3 proof      number (20) cookie (16) `Proof` over the cookie; answered by one over the number

Datagrams are not encrypted, and a response is known by its number alone: an attacker on the path
between two nodes can read along, or answer in place of one. Its answer can be that there is no
record, or a record that a node has signed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hashlib import blake2b, sha1
from ipaddress import ip_address
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from kademlia.node import Node as Contact

from canopy.wire.addresses import is_loopback
from canopy.wire.constants import (
    CALLERS_MOST,
    CALLERS_PER_SECOND,
    CONTACT_TIMEOUT,
    COOKIE_TERM,
    DATAGRAM_LIMIT,
    LOCAL_CALLERS_PER_SECOND,
    PROVEN_FOR,
    PROVEN_MOST,
    RECORD_LIMIT,
    REMOTE_CONTACT_TIMEOUT,
    STRANGERS_PER_SECOND,
)
from canopy.wire.directory.kademlia_fixes import (
    HEADER,
    HardenedProtocol,
    HardenedServer,
    ValueCrawl,
    request_decoders,
    response_decoder,
)
from canopy.wire.directory.signed_records import DirectoryKeys, RecordSigning, RecordStorage
from canopy.wire.transport.accept_limits import whose
from canopy.wire.transport.framing import MALFORMED
from overlay.bounded import BoundedDict
from overlay.links.statements import Chain, Signature, statement
from overlay.machine import NodeId
from overlay.tenants.policy import Bucket

ASK, ANSWER, COOKIE, PROVE = range(4)
COOKIE_BYTES: Final = 16
BEGINNING: Final = HEADER + COOKIE_BYTES
NO_COOKIE: Final = bytes(COOKIE_BYTES)

Address = tuple[str, int]
Value = Annotated[bytes, msgspec.Meta(max_length=RECORD_LIMIT)]


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a sender: a signature over the number that the other side has drawn, and the
    certificates."""

    signature: Signature
    chain: Chain


PROOF: Final = msgspec.msgpack.Decoder(Proof)


def kademlia_id(node: NodeId) -> bytes:
    """Return a node's place in the key space."""
    return sha1(node.encode()).digest()


class Cookies:
    """Makes and checks cookies, by which addresses show that they receive datagrams. `clock` is
    monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = os.urandom(32)

    def make(self, address: Address, terms_ago: int = 0) -> bytes:
        """Return the cookie of this address, which stays the same for `COOKIE_TERM` seconds."""
        term = int(self._clock() // COOKIE_TERM) - terms_ago
        said = f"{address[0]} {address[1]} {term}".encode()
        return blake2b(said, key=self._secret, digest_size=COOKIE_BYTES).digest()

    def holds(self, cookie: bytes, address: Address) -> bool:
        """Return whether the cookie was given to this address in the present or the last term."""
        return cookie in (self.make(address), self.make(address, terms_ago=1))


class Callers:
    """Limits the rate of callers, by what is known about them. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._strangers, self._proofs = Bucket(), Bucket()
        self._callers: BoundedDict[str, Bucket] = BoundedDict(CALLERS_MOST)

    def admits_stranger(self, now: float) -> bool:
        """Return whether a datagram without a cookie may be answered. All strangers share one
        limit: their addresses may be forged."""
        return self._strangers.take(1.0, STRANGERS_PER_SECOND, STRANGERS_PER_SECOND, now)

    def admits_proof(self, now: float) -> bool:
        """Return whether a proof may be verified, which takes half a millisecond: anybody with an
        address can send one."""
        return self._proofs.take(1.0, STRANGERS_PER_SECOND, STRANGERS_PER_SECOND, now)

    def admits(self, host: str, now: float) -> bool:
        """Return whether a datagram with a valid cookie may be handled."""
        rate = LOCAL_CALLERS_PER_SECOND if is_loopback(host) else CALLERS_PER_SECOND
        bucket = self._callers.get(whose(host)) or Bucket()
        self._callers.renew(whose(host), bucket)
        return bucket.take(1.0, rate, 2 * rate, now)


class Proven(NamedTuple):
    """The node that is at an address."""

    node: NodeId
    until: float

    @property
    def id(self) -> bytes:
        """The node's place in the key space."""
        return kademlia_id(self.node)


class Introduced(NamedTuple):
    """The data that this node needs to ask another one."""

    cookie: bytes
    id: bytes
    """Its place in the key space."""


class SignedProtocol(HardenedProtocol):
    """The library's protocol between nodes that have proven their identity."""

    requests = request_decoders(Value)
    responses = response_decoder(Value)

    def __init__(
        self,
        source: Contact,
        storage: RecordStorage,
        k: int,
        keys: DirectoryKeys,
        clock: Callable[[], float],
        is_local: bool,
    ) -> None:
        """`is_local`: it listens on loopback, and all contacts are there; otherwise none is."""
        super().__init__(source, storage, k)
        self._wait_timeout = CONTACT_TIMEOUT if is_local else REMOTE_CONTACT_TIMEOUT
        self.admits = is_loopback if is_local else is_unicast
        self._keys = keys
        self._clock = clock
        self._cookies = Cookies(clock)
        self._callers = Callers()
        self._proven: BoundedDict[Address, Proven] = BoundedDict(PROVEN_MOST)
        self._sessions: BoundedDict[Address, Introduced] = BoundedDict(PROVEN_MOST)

    # -- what comes ------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, address: tuple[Any, ...]) -> None:
        """Handle a datagram as question, answer or cookie; others count as refused."""
        where: Address = (address[0], address[1])
        kind, number, body = data[:1], data[1:HEADER], data[HEADER:]
        if not HEADER < len(data) <= DATAGRAM_LIMIT or not self.admits(where[0]):
            self.refused += 1
            return
        try:
            if kind[0] in (ASK, PROVE) and len(data) > BEGINNING:
                self._asked(kind[0], number, body[:COOKIE_BYTES], body[COOKIE_BYTES:], where)
            elif kind[0] == ANSWER:
                self._accept_response(number, body, where)
            elif kind[0] == COOKIE and len(body) == COOKIE_BYTES:
                self._accept_response(number, Given(body), where)
            else:
                self.refused += 1
        except MALFORMED:
            self.refused += 1

    def _asked(self, kind: int, number: bytes, cookie: bytes, body: bytes, where: Address) -> None:
        """Handle a request or a proof. An address that shows no cookie is not served, and is not
        sent more bytes than came from it."""
        now = self._clock()
        if not self._cookies.holds(cookie, where):
            if self._callers.admits_stranger(now):
                self._give_cookie(number, where)
        elif not self._callers.admits(where[0], now):
            return
        elif kind == PROVE:
            if self._callers.admits_proof(now):
                self._prove_back(number, cookie, PROOF.decode(body), where)
        elif (caller := self._known(where)) is None:
            self._give_cookie(number, where)  # it has to prove again who it is
        else:
            self.answer(number, body, where, caller.id)

    def _give_cookie(self, number: bytes, where: Address) -> None:
        self.transport.sendto(bytes([COOKIE]) + number + self._cookies.make(where), where)

    def _known(self, where: Address) -> Proven | None:
        """Return the node that has proven to be at an address; None if the proof has expired or the
        node was revoked since."""
        found = self._proven.get(where)
        if found is None or found.until <= self._clock():
            return None
        return None if found.node in self._keys.beliefs().revoked else found

    def _prove_back(self, number: bytes, cookie: bytes, proof: Proof, where: Address) -> None:
        if not self._is_proof(proof, self._said(cookie)):
            self.refused += 1
            return
        node = proof.signature.signer
        self._proven.renew(where, Proven(node, self._clock() + PROVEN_FOR))
        packed = msgspec.msgpack.encode(self._proof(self._said(number)))
        self.transport.sendto(bytes([ANSWER]) + number + packed, where)

    def _said(self, drawn: bytes) -> bytes:
        """Return the statement that is signed to prove the sender's identity. (Cookies and numbers
        differ in length.)"""
        return statement("directory proof", self._keys.beliefs().overlay, drawn)

    def _proof(self, said: bytes) -> Proof:
        return Proof(self._keys.signer.sign(said), self._keys.beliefs().chain)

    def _is_proof(self, proof: Proof, said: bytes) -> bool:
        return self._keys.signer.holds(proof.signature, said) and self._keys.vouches(
            proof.signature.signer, proof.chain
        )

    def rpc_store(self, sender: Address, caller: bytes, key: bytes, value: bytes) -> bool:
        """Store a record. Returns whether it is valid."""
        self.welcome_if_new(Contact(caller, *sender))
        return self.storage.take(key, value) is not None

    # -- what this node asks ---------------------------------------------------------------------

    async def ping(self, where: Address, caller: bytes) -> Any:
        """Ask a node for its id, to check that it is there."""
        return await self._ask(where, "ping", caller)

    async def store(self, where: Address, caller: bytes, key: bytes, value: bytes) -> Any:
        """Ask a node to store a record."""
        return await self._ask(where, "store", caller, key, value)

    async def find_node(self, where: Address, caller: bytes, key: bytes) -> Any:
        """Ask for the contacts near a key."""
        return await self._ask(where, "find_node", caller, key)

    async def find_value(self, where: Address, caller: bytes, key: bytes) -> Any:
        """Ask for a record, or for contacts near its key."""
        return await self._ask(where, "find_value", caller, key)

    async def _ask(self, where: Address, name: str, *arguments: bytes) -> tuple[bool, Any]:
        """Return whether the node has answered, and the answer. A node that was restarted, or has
        forgotten this one, answers with another cookie; then this node proves its identity
        again."""
        body = msgspec.msgpack.encode((name, arguments))
        for _ in range(2):
            session = self._sessions.get(where) or await self._open(where)
            if session is None:
                break
            answer = await self._send(ASK, where, session.cookie + body)
            if not isinstance(answer, Given):
                try:
                    found = None if answer is None else self.responses.decode(answer)
                except MALFORMED:
                    break
                is_other = name == "ping" and found != session.id
                return answer is not None and not is_other, found
            self._sessions.pop(where, None)
        return False, None

    async def _open(self, where: Address) -> Introduced | None:
        """Prove this node's identity to the node at an address, and learn the identity of that
        node."""
        given = await self._send(PROVE, where, NO_COOKIE + b"?")
        if not isinstance(given, Given):
            return None
        number, proof = new_number(), self._proof(self._said(given.cookie))
        body = given.cookie + msgspec.msgpack.encode(proof)
        answer = await self._send(PROVE, where, body, number)
        try:
            theirs = PROOF.decode(answer) if isinstance(answer, bytes) else None
        except MALFORMED:
            return None
        if theirs is None or not self._is_proof(theirs, self._said(number)):
            return None
        session = Introduced(given.cookie, kademlia_id(theirs.signature.signer))
        self._sessions.renew(where, session)
        return session

    async def _send(
        self, kind: int, where: Address, body: bytes, number: bytes = b""
    ) -> bytes | Given | None:
        """Send a request and return the answer; None if none arrived in time."""
        number = number or new_number()
        future = asyncio.get_running_loop().create_future()
        alarm = asyncio.get_running_loop().call_later(self._wait_timeout, self._timeout, number)
        self._outstanding[number] = (future, alarm)
        self.transport.sendto(bytes([kind]) + number + body, where)
        _, answer = await future
        return answer  # type: ignore[no-any-return]

    def handle_call_response(self, result: tuple[bool, Any], node: Contact) -> tuple[bool, Any]:
        """Handle the result as the library does. A contact that is another node than stated counts
        as unanswered."""
        session = self._sessions.get((node.ip, node.port))
        if result[0] and (session is None or session.id != node.id):
            result = False, None
        return super().handle_call_response(result, node)  # type: ignore[no-any-return]

    def is_sound(self, key: bytes, value: Any) -> bool:
        """Return whether a found record is valid."""
        return isinstance(value, bytes) and self.storage.take(key, value) is not None


class Given(NamedTuple):
    """A cookie instead of an answer."""

    cookie: bytes


def new_number() -> bytes:
    """Return a random number for a request. Only a receiver of the request can answer with it."""
    return os.urandom(HEADER - 1)


def is_unicast(host: str) -> bool:
    """Return whether an address can be that of one other machine."""
    try:
        found = ip_address(host)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_multicast or found.is_unspecified)


class AllValues(ValueCrawl):
    """Finds the records that several nodes return."""

    async def _handle_found_values(self, values: list[bytes]) -> list[bytes]:
        return values


class SignedServer(HardenedServer):
    """A Kademlia node over `SignedProtocol` and `RecordStorage`."""

    def __init__(
        self, node: NodeId, keys: DirectoryKeys, clock: Callable[[], float], is_local: bool
    ) -> None:
        self.records = RecordSigning(keys)
        super().__init__(kademlia_id(node), clock, RecordStorage(self.records, clock))
        self._arguments = keys, clock, is_local

    def _create_protocol(self) -> SignedProtocol:
        return SignedProtocol(self.node, self.storage, self.ksize, *self._arguments)

    async def addresses(self, key: bytes) -> list[str]:
        """Return the addresses in valid records of an entry, from those stored here and at other
        nodes."""
        found = [*self.storage.all(key), *(await self.find_values(key, AllValues) or ())]
        return list(dict.fromkeys(self.records.read(data, key).address for data in found))

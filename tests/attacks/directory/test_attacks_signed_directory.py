"""The directory where nodes have keys: who is answered, with how much, and what is believed.

Attacks speak in bytes of their own; where it matters who receives what, over real sockets.
"""

from __future__ import annotations

import asyncio
import io
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from canopy.wire.constants import (
    CALLERS_PER_SECOND,
    COOKIE_TERM,
    ENTRIES_OF_NODE,
    RECORD_LIMIT,
    RECORDS_OF_ENTRY,
    STORED_BYTES,
    STRANGERS_PER_SECOND,
    VALUE_AGE,
)
from canopy.wire.directory.directory import Directory
from canopy.wire.directory.signed_kademlia import Proof, SignedProtocol, SignedServer, kademlia_id
from canopy.wire.directory.signed_records import (
    AddressRecord,
    DirectoryKeys,
    RecordSigning,
    RecordStorage,
    SignedRecord,
    entry_key,
)
from canopy.wire.log import Log
from canopy.wire.process.security import NodeSecurity
from overlay.links.statements import statement
from overlay.rights import Role
from tests.canopy.wire.directory.test_wire_directory import Book
from tests.support.real.keys import Keys

RING = entry_key("canopy", "ring")
NODE = ("192.0.2.1", 4470)
MEMBER = ("192.0.2.2", 4470)
STRANGER = ("192.0.2.3", 4470)
ASK, ANSWER, COOKIE, PROVE = range(4)


def datagram(kind: int, cookie: bytes, body: bytes, number: bytes = bytes(20)) -> bytes:
    return bytes([kind]) + number + cookie + body


def words(name: str, *arguments: Any) -> bytes:
    return msgspec.msgpack.encode([name, arguments])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Net:
    """Protocols that hand datagrams to each other, in the loop that runs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.at: dict[Any, SignedProtocol] = {}
        self.sent: list[tuple[Any, bytes]] = []

    def join(self, where: Any, security: NodeSecurity, kind: Any = SignedProtocol) -> SignedServer:
        own, given = security.own.principal.id, security.directory_keys()
        server = SignedServer(own, given, self.clock, is_local=False)
        protocol = kind(server.node, server.storage, server.ksize, given, self.clock, False)
        protocol.transport = SimpleNamespace(sendto=lambda data, to: self.carry(where, to, data))
        server.protocol = self.at[where] = protocol
        return server

    def carry(self, source: Any, to: Any, data: bytes) -> None:
        self.sent.append((to, data))
        if to in self.at:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.at[to].datagram_received, data, source)

    def drawn(self, source: Any, data: bytes) -> list[bytes]:
        """What a datagram to the node draws at once, wherever that is sent."""
        before = len(self.sent)
        self.at[NODE].datagram_received(data, source)
        return [sent for _, sent in self.sent[before:]]

    def cookie(self, source: Any) -> bytes:
        (given,) = self.drawn(source, datagram(PROVE, bytes(16), b"?"))
        assert given[0] == COOKIE
        return given[21:]

    def prove(self, source: Any, security: NodeSecurity) -> tuple[bytes, list[bytes]]:
        """The cookie, and what the proof draws."""
        cookie = self.cookie(source)
        said = statement("directory proof", "canopy", cookie)
        proof = Proof(security.signer().sign(said), security.chain())
        return cookie, self.drawn(source, datagram(PROVE, cookie, msgspec.msgpack.encode(proof)))


def sign(
    security: NodeSecurity, name: str = "ring", *, by: NodeSecurity | None = None, **changes: Any
) -> bytes:
    """A record, with something in it that is not so."""
    now = int(time.time() * 1e3)
    record = AddressRecord(
        "canopy",
        name,
        security.own.principal.id,
        "192.0.2.9:4470",
        now,
        now + int(VALUE_AGE * 1e3),
    )
    record = msgspec.structs.replace(record, **changes)
    body = msgspec.msgpack.encode(record)
    signature = (by or security).signer().sign(statement("directory record", body))
    return msgspec.msgpack.encode(SignedRecord(body, signature, security.chain()))


def forgeries(keys: Keys, tmp_path: Path) -> dict[str, bytes]:
    """RecordSigning of which none is to be believed."""
    member, other = (keys.security(keys.folder(f"forger {n}")) for n in range(2))
    foreign = Keys(tmp_path / "foreign").security()
    good = sign(member)
    signed = msgspec.msgpack.decode(good, type=SignedRecord)
    body = msgspec.msgpack.decode(signed.body, type=AddressRecord)
    moved = msgspec.msgpack.encode(msgspec.structs.replace(body, address="192.0.2.66:1"))
    past = int((time.time() - 2 * VALUE_AGE) * 1e3)
    return {
        "another address": msgspec.msgpack.encode(msgspec.structs.replace(signed, body=moved)),
        "signed by another node": sign(member, by=other),
        "another node's certificate": msgspec.msgpack.encode(
            msgspec.structs.replace(signed, chain=other.chain())
        ),
        "no certificate": msgspec.msgpack.encode(msgspec.structs.replace(signed, chain=())),
        "a node of other keys": sign(foreign),
        "a leaf": sign(keys.security(keys.folder("leaf of records", Role.LEAF))),
        "another entry": sign(member, "other"),
        "another overlay": sign(member, overlay="other"),
        "expired": sign(member, expires=past),
        "for ever": sign(member, expires=1 << 52),
        "no address": sign(member, address="192.0.2.9"),
        "no port": sign(member, address="192.0.2.9:0"),
        "oversized": good + bytes(RECORD_LIMIT),
        "nothing": b"",
        "noise": bytes(range(256)),
    }


# -- who is answered, and with how much -----------------------------------------------------------


@pytest.mark.trio
async def test_no_address_is_sent_more_than_was_sent_in_its_name(keys: Keys) -> None:
    """Over real sockets: bytes out by bytes in, at an address that shows no cookie of its own."""
    log = io.StringIO()
    node = SignedBook(keys.security(), "127.0.0.2", log)
    await node.start()
    try:
        node.directory.put("ring", (node.address,))
        await node.wait_for("ring", (node.address,))
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker,
        ):
            victim.bind(("127.0.0.3", 0))
            attacker.bind(("127.0.0.4", 0))
            for each in (victim, attacker):
                each.settimeout(0.3)
            attacker.sendto(datagram(PROVE, bytes(16), b"?"), ("127.0.0.2", node.port))
            cookie = (await trio.to_thread.run_sync(attacker.recv, 9_000))[21:]
            bodies = [
                *(b"", b"?", words("ping", RING), words("find_node", RING, RING)),
                *(words("find_value", RING, RING), words("store", RING, RING, b"x" * 900)),
            ]
            spent = 0
            for kind in range(5):
                for each in (bytes(16), cookie):
                    for body in bodies:
                        data = datagram(kind, each, body)
                        spent += len(data)
                        victim.sendto(data, ("127.0.0.2", node.port))
            received = []
            try:
                while True:
                    received.append(len(await trio.to_thread.run_sync(victim.recv, 9_000)))
            except TimeoutError:
                pass
        assert received
        assert sum(received) < spent / 4
        assert max(received) == 1 + 20 + 16
    finally:
        node.directory.stop()


def test_each_datagram_without_a_cookie_draws_no_more_than_it_has(keys: Keys) -> None:
    async def attack() -> None:
        net = Net()
        net.join(NODE, keys.security())
        other = net.cookie(MEMBER)
        for length in range(60):
            for kind in range(5):
                for cookie in (bytes(16), other):
                    net.clock.now += 1.0
                    data = datagram(kind, cookie, bytes(length))[: 21 + length]
                    assert sum(map(len, net.drawn(STRANGER, data))) <= len(data)

    asyncio.run(attack())


def test_who_cannot_prove_that_it_is_of_the_overlay_draws_nothing(
    keys: Keys, tmp_path: Path
) -> None:
    """It receives at its address, and has keys of its own making."""

    async def attack() -> None:
        net = Net()
        server = net.join(NODE, keys.security())
        revoked = keys.security(keys.folder("revoked"))
        assert server.protocol._keys.vouches(revoked.own.principal.id, revoked.chain())
        strangers = {
            "foreign": Keys(tmp_path / "other").security(),
            "leaf": keys.security(keys.folder("leaf", Role.LEAF)),
        }
        for number, stranger in enumerate(strangers.values()):
            where = ("192.0.2.3", 1_000 + number)
            cookie, drawn = net.prove(where, stranger)
            assert drawn == []
            (given,) = net.drawn(where, datagram(ASK, cookie, words("find_value", RING, RING)))
            assert given[0] == COOKIE
        cookie, drawn = net.prove(MEMBER, revoked)
        assert [each[0] for each in drawn] == [ANSWER]
        own = kademlia_id(revoked.own.principal.id)
        ask = datagram(ASK, cookie, words("find_node", own, RING))
        assert net.drawn(MEMBER, ask)[0][0] == ANSWER
        other = datagram(ASK, cookie, words("find_node", RING, RING))  # under another id
        assert net.drawn(MEMBER, other) == []
        # A proof is for one cookie, and this one is another address's.
        assert net.drawn(STRANGER, ask)[0][0] == COOKIE
        held = server.protocol._keys.beliefs()
        gone = replace(held, revoked=frozenset({revoked.own.principal.id}))
        server.protocol._keys = server.protocol._keys._replace(beliefs=lambda: gone)
        assert net.drawn(MEMBER, ask)[0][0] == COOKIE

    asyncio.run(attack())


def test_a_cookie_ends(keys: Keys) -> None:
    async def attack() -> None:
        net = Net()
        net.join(NODE, keys.security())
        member = keys.security(keys.folder("member of cookies"))
        cookie, _ = net.prove(MEMBER, member)
        ask = datagram(ASK, cookie, words("ping", kademlia_id(member.own.principal.id)))
        assert net.drawn(MEMBER, ask)[0][0] == ANSWER
        net.clock.now += 2 * COOKIE_TERM
        assert net.drawn(MEMBER, ask)[0][0] == COOKIE

    asyncio.run(attack())


def test_a_flood_of_strangers_takes_nothing_from_who_is_known(keys: Keys) -> None:
    async def attack() -> None:
        net = Net()
        net.join(NODE, keys.security())
        member = keys.security(keys.folder("member of floods"))
        cookie, _ = net.prove(MEMBER, member)
        ask = datagram(ASK, cookie, words("ping", kademlia_id(member.own.principal.id)))
        drawn = 0
        for number in range(2_000):
            source = MEMBER if number % 2 else (f"198.51.{number % 256}.7", 4470)
            drawn += len(net.drawn(source, datagram(ASK, bytes(16), b"?")))
        assert drawn <= STRANGERS_PER_SECOND
        assert net.drawn(MEMBER, ask)[0][0] == ANSWER
        answers = sum(len(net.drawn(MEMBER, ask)) for _ in range(2_000))
        assert answers < 2 * CALLERS_PER_SECOND

    asyncio.run(attack())


# -- what is stored, and what is read -------------------------------------------------------------


def test_what_no_node_has_signed_is_not_stored(keys: Keys, tmp_path: Path) -> None:
    async def attack() -> None:
        net = Net()
        server = net.join(NODE, keys.security())
        liar = keys.security(keys.folder("liar"))
        cookie, _ = net.prove(MEMBER, liar)
        own = kademlia_id(liar.own.principal.id)

        def stores(record: bytes) -> bool:
            net.clock.now += 1.0
            asked = datagram(ASK, cookie, words("store", own, RING, record))
            answers = [a[21:] for a in net.drawn(MEMBER, asked) if a[0] == ANSWER]
            return any(msgspec.msgpack.decode(answer) is True for answer in answers)

        for what, record in forgeries(keys, tmp_path).items():
            assert not stores(record), what
        assert list(server.storage) == []
        assert stores(sign(liar))

    asyncio.run(attack())


class Lies(SignedProtocol):
    """Answers with what it likes."""

    lie = b""
    told = 0

    def rpc_find_value(self, sender: Any, caller: bytes, key: bytes) -> Any:
        self.told += 1
        return {"value": self.lie}


def test_what_no_node_has_signed_is_not_read(keys: Keys, tmp_path: Path) -> None:
    async def attack() -> None:
        net = Net()
        reader = net.join(NODE, keys.security())
        liar = net.join(MEMBER, keys.security(keys.folder("liar of reading")), Lies)
        for told, (what, record) in enumerate(forgeries(keys, tmp_path).items(), 1):
            liar.protocol.lie = record
            net.clock.now += 1.0
            await reader.bootstrap([MEMBER])  # it is forgotten where its answer is none
            assert await reader.addresses(RING) == [], what
            assert liar.protocol.told == told, what
        liar.protocol.lie = sign(keys.security(keys.folder("honest")))
        assert await reader.addresses(RING) == ["192.0.2.9:4470"]

    asyncio.run(attack())


def test_an_older_record_takes_the_place_of_no_later_one(keys: Keys) -> None:
    async def attack() -> None:
        net = Net()
        reader = net.join(NODE, keys.security())
        liar = net.join(MEMBER, keys.security(keys.folder("liar of age")), Lies)
        mover = keys.security(keys.folder("mover"))
        now = int(time.time() * 1e3)
        old = sign(mover, sequence=now, address="192.0.2.10:1")
        new = sign(mover, sequence=now + 1, address="192.0.2.11:1")
        await reader.bootstrap([MEMBER])
        assert reader.storage.take(RING, new) is not None
        assert reader.storage.take(RING, new) is not None  # told again
        assert reader.storage.take(RING, old) is None
        liar.protocol.lie = old
        assert await reader.addresses(RING) == ["192.0.2.11:1"]
        net.clock.now += VALUE_AGE  # the later one is forgotten, and not its number
        assert reader.storage.all(RING) == []
        assert reader.storage.take(RING, old) is None

    asyncio.run(attack())


def test_storage_has_bounds(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where members store all that they may."""
    believed = {}

    def read(self: RecordSigning, data: bytes, key: bytes) -> AddressRecord:
        return believed[data]

    monkeypatch.setattr(RecordSigning, "read", read)
    given: Any = None
    storage = RecordStorage(RecordSigning(given), Clock())

    def store(name: str, node: str, size: int = 100) -> None:
        data = f"{name} {node}".encode().ljust(size)
        believed[data] = AddressRecord("canopy", name, node, "192.0.2.1:1", 1, 1)
        storage.take(entry_key("canopy", name), data)

    for number in range(100):
        store("ring", f"node {number}")
    assert len(list(storage)) == RECORDS_OF_ENTRY
    assert b"node 99" in b"".join(storage.all(RING))
    for number in range(100):
        store(f"entry {number}", "node")
    assert len(list(storage)) == RECORDS_OF_ENTRY + ENTRIES_OF_NODE
    for number in range(500):
        store(f"entry {number}", f"node {number}", RECORD_LIMIT)
    kept = [len(data) for _, data in storage]
    assert sum(kept) <= STORED_BYTES
    assert storage.refused == 0


# -- what honest nodes have of it -----------------------------------------------------------------


class SignedBook(Book):
    """A directory with keys, on an address of its own."""

    def __init__(self, security: NodeSecurity, host: str, log: io.StringIO) -> None:
        super().__init__("", log)
        self.host, self.address = host, f"{host}:{self.port}"
        given: DirectoryKeys = security.directory_keys()
        node = security.own.principal.id
        self.directory = Directory("canopy", node, Log("debug", log), given)


@pytest.mark.trio
async def test_what_nodes_sign_is_found_on_other_addresses(keys: Keys) -> None:
    """Also by a node that was alone, after another one was started again under another key."""
    members = [keys.security(keys.folder(f"book {number}")) for number in range(4)]
    found = [SignedBook(m, f"127.0.0.{n + 2}", io.StringIO()) for n, m in enumerate(members[:3])]
    try:
        for book in found:
            await book.start()
        first, second, third = found
        await first.finds("ring", (second.address,), second)
        await third.finds("ring", (second.address,), second)
        third.directory.put("ring", (third.address,))
        await until(lambda: first.get("ring"), {second.address, third.address}, third, first)
        second.directory.stop()
        again = SignedBook(members[3], "127.0.0.3", second.log)
        again.port, again.address = second.port, second.address
        found.append(again)
        await again.start()
        await until(lambda: again.get("ring"), {second.address, third.address}, again, first)
    finally:
        for book in found:
            book.directory.stop()


async def until(
    ask: Callable[[], Awaitable[tuple[str, ...]]], wanted: set[str], asker: Book, *through: Book
) -> None:
    with trio.fail_after(20):
        while set(await ask()) != wanted:
            await asker.join(*through)
            await trio.sleep(0.02)

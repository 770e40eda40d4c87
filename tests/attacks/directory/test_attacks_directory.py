"""The directory: nobody else's datagrams are heard, and what a liar puts in is only dialled."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from hashlib import sha1
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
from kademlia.node import Node as Contact

from canopy.wire.config import load_config
from canopy.wire.constants import (
    BUCKET_SIZE,
    CRAWL_MOST,
    DATAGRAM_LIMIT,
    FOUND_MOST,
    WELCOME_MOST,
)
from canopy.wire.directory.directory import Directory
from canopy.wire.directory.discovery import Discovery
from canopy.wire.directory.kademlia_fixes import HardenedServer
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log
from overlay.driver import DrivenNode
from overlay.machine import Peer
from tests.canopy.wire.directory.test_wire_directory import Book, books
from tests.support.real.echo_node import NoOutputs

pytestmark = pytest.mark.trio
RING = sha1(b"canopy/test/ring").digest()


def request(name: str, *arguments: Any) -> bytes:
    return b"\x00" + bytes(20) + msgspec.msgpack.encode([name, arguments])


def near(key: bytes, number: int) -> bytes:
    """An id that has all but the last bits of `key`: nearer to it than any honest node's."""
    return key[:-1] + bytes([key[-1] ^ (number + 1)])


@pytest.mark.parametrize("address", ["192.0.2.7:4470", "[2001:db8::1]:4470", "node.example:4470"])
async def test_a_node_that_others_reach_has_none(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    started: list[object] = []
    monkeypatch.setattr(Directory, "start", lambda *arguments: started.append(arguments))
    log = Log("debug", io.StringIO())
    driver = TrioDriver(log)
    driver.attach(cast(DrivenNode, SimpleNamespace(ready=False)), NoOutputs())
    discovery = Discovery(driver, load_config(flags={}), log)
    async with trio.open_nursery() as nursery:
        await discovery.start(nursery, Peer("a" * 32, address))
        discovery.publish("ring", (address,))
        assert not nursery.child_tasks
    discovery.stop()
    assert not started


async def test_a_datagram_from_elsewhere_draws_none() -> None:
    """Its source may be anybody's address: no answer is sent there, be it small or large."""
    sent: list[tuple[bytes, Any]] = []
    server = HardenedServer(bytes(20), trio.current_time)
    protocol = server.protocol = server._create_protocol()
    protocol.transport = SimpleNamespace(sendto=lambda *one: sent.append(one))
    for source in ("192.0.2.1", "10.0.0.1", "::2", "0.0.0.0", "224.0.0.1"):
        for words in (
            request("ping", bytes(20)),
            request("find_node", bytes(20), RING),
            request("find_value", bytes(20), RING),
            request("store", bytes(20), RING, "x"),
        ):
            protocol.datagram_received(words, (source, 53))
    assert sent == []
    assert protocol.refused == 20
    assert list(server.storage) == []


async def test_one_datagram_draws_few() -> None:
    """On loopback as well: one answer, and to a new contact a welcome that is bounded."""
    async with books(1) as (first,):
        for number in range(100):
            first.directory.put(f"name {number}", ("127.0.0.1:9",))
        await first.wait_for("name 99", ("127.0.0.1:9",))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(0.3)
            drawn: list[int] = []
            for name in ("find_value", "find_node", "find_node"):
                asked = request(name, near(RING, 1), RING)
                sock.sendto(asked, ("127.0.0.1", first.port))
                try:
                    while True:
                        drawn.append(len(await trio.to_thread.run_sync(sock.recv, 65_536)))
                except TimeoutError:
                    pass
        assert len(drawn) <= 3 + 3 * WELCOME_MOST
        assert max(drawn) <= DATAGRAM_LIMIT


async def test_a_lookup_ends_though_nearer_contacts_are_named_for_ever() -> None:
    server = HardenedServer(bytes(20), time.monotonic)
    protocol = server.protocol = server._create_protocol()
    asked = 0

    async def name_nearer(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        number = int.from_bytes(RING, "big") ^ (1 << 158) // 3**asked
        nearer = [((number ^ each).to_bytes(20, "big"), "127.0.0.1", 9) for each in range(8)]
        return True, nearer

    async def store(*arguments: Any) -> Any:
        return True, True

    protocol.find_node = protocol.find_value = name_nearer
    protocol.store, protocol.welcome_if_new = store, lambda node: None
    for crawl in (server.find_values(RING), server.set_digest(RING, "x")):
        asked = 0
        protocol.router.add_contact(Contact(bytes(19) + b"\x01", "127.0.0.1", 9))
        await trio.to_thread.run_sync(asyncio.run, crawl)
        assert CRAWL_MOST <= asked < CRAWL_MOST + BUCKET_SIZE


async def test_ids_near_a_key_give_addresses_to_dial_and_no_more() -> None:
    """Who sits around the key answers for it: with loopback addresses, so many."""
    async with books(2) as (first, second):
        liars = [near(RING, number) for number in range(2 * BUCKET_SIZE)]
        entry = msgspec.json.encode([f"127.0.0.1:{port}" for port in range(1, 101)]).decode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for liar in liars:
                for words in (request("ping", liar), request("store", liar, RING, entry[:1_000])):
                    sock.sendto(words, ("127.0.0.1", first.port))
            sock.sendto(
                request("store", liars[0], RING, '["192.0.2.1:80"]'), ("127.0.0.1", first.port)
            )
        found: tuple[str, ...] = await first.get("ring")
        assert len(found) <= FOUND_MOST
        assert all(address.startswith("127.") for address in found)
        await told_again(second, first)


async def told_again(teller: Book, asker: Book) -> None:
    """What an honest node tells again and again is found in spite of them."""
    await asker.finds("ring", ("127.0.0.1:9",), teller)

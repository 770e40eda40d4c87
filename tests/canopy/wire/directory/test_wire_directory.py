"""The directory over Kademlia: what is announced is found, and no datagram does harm."""

from __future__ import annotations

import io
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha1
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest
import trio

from canopy.wire.config import load_config
from canopy.wire.directory.directory import Directory, sound_addresses
from canopy.wire.directory.discovery import Discovery
from canopy.wire.directory.kademlia_fixes import BoundedStorage, sound_contacts
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log
from overlay.driver import DrivenNode
from overlay.machine import Peer
from tests.support.real.echo_node import NoOutputs

DEADLINE = 20.0  # seconds after which a test that waits has failed


def free_port() -> int:
    """A UDP port of loopback that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Book:
    """A running directory; its calls can be awaited."""

    host = "127.0.0.1"

    def __init__(self, name: str, log: io.StringIO) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.log = log
        self.directory = Directory("test", name, Log("debug", log))

    async def start(self) -> None:
        """Listen; on another port if ours was taken since it was free."""
        for _ in range(4):
            running = trio.Event()
            self.directory.start(self.host, self.port, running.set)
            with trio.move_on_after(DEADLINE / 4):
                while "directory_off" not in self.log.getvalue():
                    if running.is_set():
                        return
                    await trio.sleep(0.005)
            log = self.log.getvalue()
            self.directory.stop()
            self.log.truncate(0)
            self.port = free_port()
            self.address = f"{self.host}:{self.port}"
        raise AssertionError(f"it does not start: {log}")

    async def join(self, *others: Book) -> None:
        addresses = [other.address for other in others]
        await self.called(lambda done: self.directory.join(addresses, done))

    async def get(self, name: str) -> tuple[str, ...]:
        found: tuple[str, ...] = await self.called(lambda done: self.directory.get(name, done))
        return found

    async def wait_for(self, name: str, value: tuple[str, ...], *through: Book) -> None:
        with trio.fail_after(DEADLINE):
            while await self.get(name) != value:
                await self.join(*through)
                await trio.sleep(0.02)

    async def finds(self, name: str, value: tuple[str, ...], teller: Book) -> None:
        """Wait until this book knows what `teller` tells again and again, as a node does.

        One datagram may be lost, or be answered after `WAIT` on a busy machine; then the asker
        forgets the other until it joins again (`canopy.wire.directory.discovery`).
        """
        with trio.fail_after(DEADLINE):
            while await self.get(name) != value:
                await teller.join(self)
                await self.join(teller)
                teller.directory.put(name, value)
                await trio.sleep(0.02)

    async def called(self, begin: Callable[[Callable[..., None]], None]) -> Any:
        """Begin something and wait until its callback is called; what it was called with."""
        event, results = trio.Event(), []

        def done(*values: Any) -> None:
            results.extend(values)
            event.set()

        begin(done)
        with trio.fail_after(DEADLINE):
            await event.wait()
        return results[0] if results else None


@asynccontextmanager
async def books(count: int) -> AsyncIterator[list[Book]]:
    found = [Book(f"node {i}", io.StringIO()) for i in range(count)]
    try:
        for book in found:
            await book.start()
        for book in found[1:]:
            await book.join(found[0])
        yield found
    finally:
        for book in found:
            book.directory.stop()


class Names:
    """In the place of the directory: which names are put, and which are asked for."""

    running = True
    put_names: ClassVar[dict[str, None]] = {}
    asked_names: ClassVar[dict[str, None]] = {}

    def __init__(self, overlay: str, node: str, log: Log, keys: object) -> None: ...

    def start(self, host: str, port: int, running: Callable[[], None]) -> None:
        running()

    def join(self, addresses: Sequence[str], done: Callable[[], None]) -> None:
        done()

    def put(self, name: str, addresses: Sequence[str]) -> None:
        self.put_names[name] = None

    def get(self, name: str, found: Callable[[Sequence[str]], None]) -> None:
        self.asked_names[name] = None


@pytest.mark.trio
async def test_only_what_some_node_looks_up_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canopy.wire.directory.discovery.Directory", Names)
    log = Log("debug", io.StringIO())
    driver = TrioDriver(log)
    driver.attach(cast(DrivenNode, SimpleNamespace(ready=False)), NoOutputs())
    discovery = Discovery(driver, load_config(flags={}), log)
    async with trio.open_nursery() as nursery:
        await discovery.start(nursery, Peer("a" * 16, "127.0.0.1:4470"))
        discovery.publish("ring", ("127.0.0.1:4470",))  # as a primary does
        nursery.cancel_scope.cancel()
    assert Names.put_names == Names.asked_names == {"ring": None}


@pytest.mark.trio
async def test_what_one_node_announces_every_other_finds() -> None:
    async with books(5) as (first, *others):
        for book in (first, *others):
            await book.finds("ring", ("127.0.0.1:1", "127.0.0.1:2"), others[0])


@pytest.mark.trio
async def test_a_node_that_was_alone_answers_the_first_new_node() -> None:
    async with books(1) as (alone,):
        alone.directory.put("ring", (alone.address,))
        await alone.wait_for("ring", (alone.address,))
        newcomer = Book("newcomer", io.StringIO())
        await newcomer.start()
        try:
            await newcomer.wait_for("ring", (alone.address,), alone)
        finally:
            newcomer.directory.stop()


@pytest.mark.trio
async def test_it_answers_after_the_death_of_neighbours() -> None:
    async with books(4) as (first, second, third, fourth):
        second.directory.stop()
        third.directory.stop()
        await first.finds("ring", ("127.0.0.1:9",), fourth)  # its neighbours are partly dead


@pytest.mark.trio
async def test_a_node_whose_neighbours_are_all_dead_keeps_what_it_offers() -> None:
    async with books(2) as (first, second):
        first.directory.stop()
        second.directory.put("ring", ("127.0.0.1:9",))
        await second.wait_for("ring", ("127.0.0.1:9",))


@pytest.mark.trio
async def test_two_overlays_do_not_see_each_other() -> None:
    async with books(2) as (first, second):
        stranger = Book("stranger", io.StringIO())
        stranger.directory = Directory("another", "stranger", Log("debug", stranger.log))
        await stranger.start()
        try:
            await stranger.join(first)
            await first.finds("ring", ("127.0.0.1:9",), second)
            assert await stranger.get("ring") == ()
        finally:
            stranger.directory.stop()


def datagrams() -> list[bytes]:
    """Garbage of every kind, from a fixed seed."""
    rng = random.Random(7)
    pack = msgspec.msgpack.encode
    head = b"\x00" + bytes(20)
    found = [rng.randbytes(rng.randrange(0, 200)) for _ in range(200)]
    found += [head + rng.randbytes(rng.randrange(0, 60)) for _ in range(200)]
    found += [b"\x01" + rng.randbytes(20) + pack(value) for value in (None, [], {}, 1, b"x" * 20)]
    found += [head + pack(value) for value in (None, 1, [], ["ping"], ["ping", []], {"a": 1})]
    found += [head + pack([name, [b"short"]]) for name in ("ping", "stun", "store", "nothing")]
    found += [head + pack(["store", [bytes(20), bytes(20), "x" * 5000]])]
    found += [head + pack(["store", [bytes(20), bytes(20), 5]])]
    found += [head + pack(["_accept_response", [bytes(20)]]), head + b"\x91" * 7000]
    return found


@pytest.mark.trio
async def test_garbage_changes_nothing() -> None:
    async with books(2) as (first, second):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for datagram in datagrams():
                sock.sendto(datagram, ("127.0.0.1", first.port))
        await first.finds("ring", ("127.0.0.1:9",), second)
        assert "Traceback" not in first.log.getvalue()
        assert "directory_off" not in first.log.getvalue()


@pytest.mark.trio
async def test_a_forged_entry_is_no_entry() -> None:
    async with books(1) as (first,):
        key = sha1(b"canopy/test/ring").digest()
        entry = msgspec.json.encode(["10.0.0.1:80", "nonsense", "127.0.0.1:0", "127.0.0.1:7"])
        question = ["store", [bytes(20), key, entry.decode()]]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"\x00" + bytes(20) + msgspec.msgpack.encode(question),
                        ("127.0.0.1", first.port))  # fmt: skip
        await first.wait_for("ring", ("127.0.0.1:7",))


@pytest.mark.trio
async def test_a_new_contact_draws_few_datagrams() -> None:
    async with books(1) as (first,):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(0.5)
            for number in range(500):
                first.directory.put(f"name {number}", ("127.0.0.1:9",))
            await first.wait_for("name 499", ("127.0.0.1:9",))
            ping = b"\x00" + bytes(20) + msgspec.msgpack.encode(["ping", [b"\x01" * 20]])
            sock.sendto(ping, ("127.0.0.1", first.port))
            drawn = 0
            while True:
                try:
                    await trio.to_thread.run_sync(sock.recv, 9000)
                except TimeoutError:
                    break
                drawn += 1
        assert 1 < drawn <= 1 + 8  # the answer, and the welcome


@pytest.mark.trio
async def test_a_port_in_use_turns_it_off_and_says_so() -> None:
    async with books(1) as (first,):
        second = Book("second", io.StringIO())
        second.directory.start("127.0.0.1", first.port, lambda: None)
        with trio.fail_after(DEADLINE):
            while "directory_off" not in second.log.getvalue():
                await trio.sleep(0.01)
        assert not second.directory.running
        second.directory.put("ring", ("127.0.0.1:9",))  # does nothing, raises nothing
        second.directory.stop()


def test_storage_is_bounded_and_forgets() -> None:
    now = 0.0
    storage = BoundedStorage(lambda: now)
    for number in range(1_500):
        storage[number.to_bytes(20, "big")] = "x"
    assert len(list(storage)) == 1_000
    assert storage.get((0).to_bytes(20, "big")) is None
    storage[bytes(20)] = "y" * 2_000
    assert storage.get(bytes(20)) is None
    now = 301.0
    assert list(storage) == []


@pytest.mark.parametrize("text", [None, "", "x", "{}", "[1]", '["10.0.0.1:1"]', '["127.0.0.1"]'])
def test_what_is_no_entry_gives_no_address(text: str | None) -> None:
    assert sound_addresses(text) == ()


def test_contacts_beyond_loopback_are_dropped() -> None:
    good = (bytes(20), "127.0.0.1", 5)
    bad = [(bytes(19), "127.0.0.1", 5), (bytes(20), "10.0.0.1", 5), (bytes(20), "127.0.0.1", 0)]
    assert sound_contacts([good, *bad]) == [good]
    assert sound_contacts([good] * 50) == [good] * 8
    assert sound_contacts({"a": 1}) == []

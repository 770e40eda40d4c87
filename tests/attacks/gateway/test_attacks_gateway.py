"""Attacks on the gateway's doors: by strangers before any token, and with a lost token."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any, Final, cast

import pytest
import trio
import trio.testing

from canopy.client.client import AsyncClient
from canopy.gateway.access import GatewayRules
from canopy.gateway.http.paths import HttpDoor
from canopy.wire.token_file import TokenFile
from overlay.client import Draft
from tests.canopy.gateway.raw_mqtt import (
    CONNACK,
    DISCONNECT,
    PUBLISH,
    Bus,
    connect,
    gateway,
    log_into,
    pair,
    publish,
    subscribe,
    text,
    will,
    with_length,
)

pytestmark = pytest.mark.trio

MALFORMED = 0x81


async def test_texts_are_looked_at_before_the_codec(
    capfd: pytest.CaptureFixture[str], autojump_clock: Any
) -> None:
    """The codec panics at a text that is not UTF-8, with pages on standard error for each."""
    async with gateway() as world:
        for _ in range(3):
            bad = with_length(b"\x03" + text(b"\xff")) + text("t") + text("x")
            for raw in (connect(b"\xff"), connect(will=bad)):
                found = await world.open().ask(raw)
                assert (found.kind, found.code) == (CONNACK, MALFORMED)
        for raw in (publish(b"\xff"), publish(properties=pair("a", b"\xed\xa0\x80"))):
            client = await world.client()
            assert (await client.ask(raw)).code == MALFORMED
            assert await client.is_closed()
    assert "panicked" not in capfd.readouterr().err


async def test_a_will_needs_a_token_that_is_good_when_it_comes(
    tmp_path: Path, autojump_clock: Any
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    good = file.add("all", ("publish", "subscribe"))
    thief = file.add("lost", ("publish",))
    only_reads = file.add("reads", ("subscribe",))
    async with gateway(tmp_path) as world:
        reader = await world.client("r", password=good)
        await reader.ask(subscribe("#"))
        leaving = await world.client("a", will=will("kept"), password=good)
        revoked = await world.client("b", will=will("bad"), password=thief)
        cut = await world.client("c", will=will("worse"), password=thief)
        file.remove("lost")
        await cut.stream.aclose()  # before the gateway has looked
        found = await revoked.next(60.0)
        assert found is not None
        assert (found.kind, found.code) == (DISCONNECT, 0x87)
        await leaving.stream.aclose()
        assert (await reader.got(PUBLISH)).topic == "kept"
        assert await reader.silent()
        refused = await world.open().ask(connect("d", will=will(), password=only_reads))
        assert (refused.kind, refused.code) == (CONNACK, 0x87)
        assert "publish" in refused.reason


async def test_no_client_takes_over_that_of_another_token(
    tmp_path: Path, autojump_clock: Any
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    one, other = (file.add(name, ("publish", "subscribe")) for name in ("one", "other"))
    async with gateway(tmp_path) as world:
        mine = await world.client("device", password=one)
        await world.client("device", password=other)
        assert await mine.silent()
        await world.client("device", password=one)
        assert (await mine.got(DISCONNECT)).code == 0x8E


async def test_nobody_speaks_for_the_gateway() -> None:
    """A notice of a gap has a topic that no publisher's event has, whatever filter it matches."""
    async with gateway() as world:
        reader = await world.reader("$where/TRUE", "+", "#")
        await world.bus.publish_many([Draft({"topic": "$gap"}, b'{"cause": "overflow"}')])
        assert (await reader.got(PUBLISH)).topic == "_gap"
        writer = await world.client()
        await writer.ask(publish("$gap"))
        assert (await reader.got(PUBLISH)).topic == "_gap"


HEAD: Final = "Host: 127.0.0.1:8470\r\nContent-Type: application/json\r\n"
UPGRADE: Final = (
    "GET /events HTTP/1.1\r\nHost: 127.0.0.1:8470\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
CHUNKED: Final = f"POST /events HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
PARTS: Final = 3_000


def http(nursery: trio.Nursery) -> trio.abc.Stream:
    """A connection to a gateway's HTTP."""
    ours, theirs = trio.testing.memory_stream_pair()
    door = HttpDoor(cast(AsyncClient, Bus()), GatewayRules(None), log_into([]))

    async def serve() -> None:
        async with theirs:
            await door.serve(theirs, "test")

    nursery.start_soon(serve)
    return ours


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (UPGRADE, b"\x00\x86\0\0\0\0" + "é€".encode() + b"!"),
        (CHUNKED, b"2\r\n{ \r\n"),
    ],
)
async def test_a_message_in_many_parts_takes_no_more_memory_than_in_one(
    head: str, part: bytes
) -> None:
    """Each part as an object of its own would take many times what it is."""
    async with trio.open_nursery() as nursery:
        stream = http(nursery)
        await stream.send_all(head.encode())
        if head is UPGRADE:
            assert b" 101 " in await stream.receive_some(65_536)
            await stream.send_all(b"\x01\x80\0\0\0\0")  # the first part of a text
        await trio.testing.wait_all_tasks_blocked()
        many = part * PARTS
        tracemalloc.start()
        await stream.send_all(many)
        await trio.testing.wait_all_tasks_blocked()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken < 16 * PARTS + 30_000
        nursery.cancel_scope.cancel()


async def test_a_body_has_one_end() -> None:
    """Of two lengths a proxy may take the other one, and its next request is an attacker's."""
    async with trio.open_nursery() as nursery:
        stream = http(nursery)
        both = CHUNKED.replace("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\n")
        await stream.send_all(f"{both}2\r\n{{}}\r\n0\r\n\r\n".encode())
        found = b""
        while data := await stream.receive_some(65_536):
            found += data
        assert found.startswith(b"HTTP/1.1 400 ")
        assert b"both Content-Length and Transfer-Encoding" in found

"""Attacks on the gateway's MQTT door: by strangers before any token, and with a lost token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canopy.wire.token_file import TokenFile
from tests.canopy.gateway.raw_mqtt import (
    CONNACK,
    DISCONNECT,
    PUBLISH,
    connect,
    gateway,
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

"""The numbered statements of MQTT 5.0, against raw packets; docs/reference/mqtt.md has them all."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from canopy.gateway.constants import FILTERS, OPENED_TOGETHER
from canopy.wire.token_file import TokenFile
from overlay.client import Draft
from tests.canopy.gateway.raw_mqtt import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    UNSUBSCRIBE,
    Client,
    Gateway,
    connect,
    gateway,
    numbered,
    packet,
    pair,
    puback,
    publish,
    subscribe,
    text,
    unsubscribe,
    will,
    with_length,
)

pytestmark = pytest.mark.trio

PAGE: Final = Path(__file__).parent / "statements.md"

STATEMENTS: Final = numbered(
    (
        *("1.5.4-1 to 3", "1.5.5-1", "1.5.7-1", "2.1.3-1", "2.2.1-2 to 6", "2.2.2-1"),
        *("3.1.0-1 to 2", "3.1.2-1 to 30", "3.1.3-1 to 12", "3.1.4-1 to 6", "3.2.0-1 to 2"),
        *("3.2.2-1 to 22", "3.3.1-1 to 13", "3.3.2-1 to 20", "3.3.4-1 to 10", "3.4.2-1 to 3"),
        *("3.5.2-1 to 3", "3.6.1-1", "3.6.2-1 to 3", "3.7.2-1 to 3", "3.8.1-1", "3.8.3-1 to 5"),
        *("3.8.4-1 to 8", "3.9.2-1 to 2", "3.9.3-1 to 2", "3.10.1-1", "3.10.3-1 to 2"),
        *("3.10.4-1 to 6", "3.11.2-1 to 2", "3.11.3-1 to 2", "3.12.4-1", "3.14.0-1", "3.14.1-1"),
        *("3.14.2-1 to 4", "3.14.4-1 to 3", "3.15.1-1", "3.15.2-1 to 3", "4.1.0-1 to 2"),
        *("4.2.0-1", "4.3.1-1", "4.3.2-1 to 5", "4.3.3-1 to 13", "4.4.0-1 to 2", "4.5.0-1 to 2"),
        *("4.6.0-1 to 6", "4.7.0-1", "4.7.1-1 to 2", "4.7.2-1", "4.7.3-1 to 4", "4.8.2-1 to 6"),
        *("4.9.0-1 to 3", "4.12.0-1 to 7", "4.12.1-1 to 2", "4.13.1-1", "4.13.2-1"),
        "6.0.0-1 to 4",
    )
)
"""Appendix B of MQTT 5.0 (OASIS Standard, 7 March 2019)."""

Check = Callable[[Gateway], Awaitable[None]]
CHECKS: Final[dict[Check, set[str]]] = {}


def holds(*names: str) -> Callable[[Check], Check]:
    """Register what checks these statements."""

    def register(check: Check) -> Check:
        CHECKS.setdefault(check, set()).update(numbered(names))
        return check

    return register


def rows() -> list[tuple[set[str], str]]:
    """The rows of the page: statements, and what is done."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.match(r"\d", cells[0]):
            found.append((numbered(cells[0].split(", ")), cells[-1]))
    return found


async def test_the_page_has_each_statement_once_and_each_that_is_ours_is_checked() -> None:
    named = [name for names, _ in rows() for name in sorted(names)]
    assert sorted(named) == sorted(set(named))
    assert set(named) == STATEMENTS
    checked = set().union(*CHECKS.values())
    assert checked <= STATEMENTS
    for names, here in rows():
        word = here.partition(":")[0].partition(";")[0]
        assert word in ("kept", "client", "not served", "differs"), here
        assert word == "client" or names <= checked, (names - checked, here)


MALFORMED: Final = 0x81
PROTOCOL: Final = 0x82

BAD_PACKETS: Final[list[tuple[tuple[str, ...], bytes, int]]] = [
    (("1.5.4-1", "3.3.2-1"), publish(b"\xff"), MALFORMED),
    (("1.5.4-1",), publish(b"\xed\xa0\x80"), MALFORMED),  # half of a character
    (("1.5.4-1",), publish(b"\xc0\xaf"), MALFORMED),  # overlong
    (("1.5.4-2", "4.7.3-2"), publish("a\0"), MALFORMED),
    (("1.5.4-2",), publish(properties=pair("a", "b\0")), MALFORMED),
    (("1.5.4-2",), publish(properties=pair("a\0", "é")), MALFORMED),
    (("1.5.4-2",), publish(properties=b"\x03" + text("\0")), MALFORMED),
    (("1.5.4-2",), publish(properties=b"\x08" + text("\0")), MALFORMED),
    (("1.5.7-1",), publish(properties=pair("a", b"\xff")), MALFORMED),
    (("1.5.7-1",), publish(properties=pair(b"\xff", "a")), MALFORMED),
    (("3.3.2-13",), publish(properties=b"\x08" + text(b"\xff")), MALFORMED),
    (("3.3.2-19",), publish(properties=b"\x03" + text(b"\xff")), MALFORMED),
    (("3.8.3-1",), packet(8, b"\0\1\0" + text(b"\xff") + b"\1", 2), MALFORMED),
    (("3.10.3-1",), packet(10, b"\0\1\0" + text(b"\xff"), 2), MALFORMED),
    (("1.5.4-1",), packet(DISCONNECT, b"\0" + with_length(b"\x1f" + text(b"\xff"))), MALFORMED),
    (("1.5.4-1",), packet(PUBACK, b"\0\1\0" + with_length(b"\x1f" + text(b"\xff"))), MALFORMED),
    (("1.5.5-1",), b"\x30\xff\xff\xff\xff\x7f", MALFORMED),
    (("2.1.3-1", "3.8.1-1"), subscribe("a", flags=0), MALFORMED),
    (("3.10.1-1",), unsubscribe("a", flags=0), MALFORMED),
    (("3.14.1-1",), packet(DISCONNECT, flags=1), MALFORMED),
    (("3.15.1-1",), packet(AUTH, b"\0\0", 1), MALFORMED),
    (("3.6.1-1",), packet(PUBREL, b"\0\1", 0), MALFORMED),
    (("2.1.3-1",), packet(PINGREQ, flags=1), MALFORMED),
    (("2.2.1-3",), publish(number=0), PROTOCOL),
    (("2.2.1-3",), subscribe("a", number=0), PROTOCOL),
    (("2.2.1-3",), unsubscribe("a", number=0), PROTOCOL),
    (("3.1.0-2", "4.13.1-1"), connect(), PROTOCOL),
    (("3.3.1-2", "4.3.1-1"), publish(qos=0, flags=8), MALFORMED),
    (("3.3.1-4",), publish(qos=3), MALFORMED),
    (("3.3.1-5 to 7",), publish(flags=1), 0x9A),
    (("3.3.2-2", "4.7.0-1"), publish("a/+"), 0x90),
    (("3.3.2-2",), publish("#"), 0x90),
    (("4.7.3-1",), publish(""), PROTOCOL),
    (("3.3.2-8",), publish(properties=b"\x23\0\0"), 0x94),
    (("3.3.2-9", "3.3.2-12", "3.2.2-17 to 18"), publish(properties=b"\x23\0\1"), 0x94),
    (("3.3.2-14",), publish(properties=b"\x08" + text("a/#")), PROTOCOL),
    (("3.3.4-6",), publish(properties=b"\x0b\1"), PROTOCOL),
    (("3.2.2-15",), b"\x30\xff\xff\x7f", 0x95),
    (("3.8.3-2",), subscribe(), PROTOCOL),
    (("3.10.3-2",), unsubscribe(), PROTOCOL),
    (("3.8.3-4",), subscribe(("$share/a/b", 0b101)), PROTOCOL),
    (("3.8.3-5",), subscribe(("a", 0x41)), MALFORMED),
    (("3.8.3-5",), subscribe(("a", 0x81)), MALFORMED),
    (("3.2.2-11", "4.3.3-1 to 13"), publish(qos=2), 0x9B),
    (("4.3.3-1 to 13",), packet(PUBREL, b"\0\1", 2), PROTOCOL),
    (("4.3.3-1 to 13",), packet(PUBREC, b"\0\1"), PROTOCOL),
    (("4.12.0-7", "4.12.1-1 to 2"), packet(AUTH, b"\x19\4\x15\0\1m"), PROTOCOL),
    ((), publish(properties=b"\x01\2"), PROTOCOL),
    ((), publish(properties=b"\x02\0\0\0\1\x02\0\0\0\1"), PROTOCOL),
    ((), publish(properties=b"\x7f\0"), MALFORMED),
    ((), packet(DISCONNECT, b"\0" + with_length(b"\x11\0\0\0\1")), PROTOCOL),
    ((), packet(PUBLISH, text("t"), 0), MALFORMED),  # it ends too early
]  # fmt: skip

BAD_CONNECTS: Final[list[tuple[tuple[str, ...], bytes, int]]] = [
    (("3.1.3-4",), connect(b"\xff"), MALFORMED),
    (("3.1.3-11",), connect(will=with_length(b"") + text(b"\xff") + text("x")), MALFORMED),
    (("3.1.3-12",), packet(1, connect(flags=0b1000_0010)[2:] + text(b"\xff")), MALFORMED),
    (("3.1.2-3",), connect(flags=0b11), MALFORMED),
    (("3.1.2-11",), connect(flags=0b1010), MALFORMED),
    (("3.1.2-13",), connect(flags=0b10_0010), MALFORMED),
    (("3.1.2-12",), connect(will=will(), flags=0b1_1010), MALFORMED),
    (("3.2.2-13", "3.1.2-15"), connect(will=will(), flags=0b10_0010), 0x9A),
    (("3.2.2-12",), connect(will=will(), flags=0b1_0010), 0x9B),
    (("4.7.0-1",), connect(will=will("a/+")), 0x90),
    (("4.12.0-1 to 5", "3.1.2-30"), connect(properties=b"\x15" + text("SCRAM")), 0x8C),
    ((), connect(properties=b"\x16" + text("x")), PROTOCOL),
    (("3.1.2-16 to 19", "3.1.4-1", "3.1.2-9"), connect(flags=0b1100_0010), MALFORMED),
    (("3.1.2-16 to 19",), packet(1, connect()[2:] + text("u")), MALFORMED),
]  # fmt: skip


@holds(*sorted(set().union(*(numbered(names) for names, _, _ in BAD_PACKETS))))
async def bad_packets(world: Gateway) -> None:
    for place, (_, raw, code) in enumerate(BAD_PACKETS):
        client = await world.client(f"c{place}")
        found = await client.ask(raw)
        assert (found.kind, found.code) == (DISCONNECT, code), (raw, found)
        assert await client.is_closed()
    assert not world.bus.published


@holds(*sorted(set().union(*(numbered(names) for names, _, _ in BAD_CONNECTS))))
async def bad_connects(world: Gateway) -> None:
    for _, raw, code in BAD_CONNECTS:
        client = world.open()
        found = await client.ask(raw, publish())
        assert (found.kind, found.code) == (CONNACK, code), (raw, found)
        assert found.flags == 0
        assert await client.is_closed()
    assert not world.bus.published


@holds("3.1.0-1", "3.14.0-1", "3.1.4-6", "3.1.2-1 to 2")
async def who_does_not_begin_with_connect(world: Gateway) -> None:
    for raw in (
        publish(),
        packet(PINGREQ),
        packet(DISCONNECT, flags=1),
        b"\0" * 8,
        publish(b"\xff"),
    ):
        client = world.open()
        await client.send(raw)
        assert await client.is_closed()
    client = world.open()
    await client.send(connect(version=4))
    assert await client.stream.receive_some(10) == b"\x20\2\0\1"  # the CONNACK of MQTT 3.1.1
    found = await world.open().ask(connect(name="MQXX"))
    assert found.code == MALFORMED
    assert not world.bus.published


@holds("1.5.4-3", "4.7.3-4", "3.3.2-15 to 18", "3.1.3-10", "3.3.2-4", "3.3.2-20", "3.3.2-3")
@holds("3.3.1-3", "3.3.1-8", "3.3.1-12 to 13", "4.3.2-1 to 4", "2.2.1-2", "2.2.1-4 to 5")
async def what_is_passed_on(world: Gateway) -> None:
    reader = await world.reader("#", "\ufeffx/+", "\ufeffx")
    client = await world.client()
    sent = [("b", "1"), ("a", "1e3"), ("a", '"q"'), ("", "x"), ("$r", "-0"), ("mqttexpiry", "7")]
    properties = b"".join(pair(*one) for one in sent)
    properties += (
        b"\x01\1"
        + b"\x03"
        + text("a/b; c")
        + b"\x08"
        + text("r/\ufeff")
        + b"\x09"
        + text(b"\0\xff")
    )
    found = await client.ask(publish("\ufeffx", "é".encode(), properties, flags=8))
    assert (found.kind, found.number, found.code) == (PUBACK, 1, 0)
    assert all(word in found.reason for word in ('"a" (given twice)', '""', "$r", "mqttexpiry"))
    numbers = set()
    for _ in range(2):  # one for each subscription that matches
        got = await reader.got(PUBLISH)
        assert (got.topic, got.payload, got.flags) == ("\ufeffx", "é".encode(), 2)
        assert got.user[: len(sent)] == sent
        assert (got.properties[1], got.properties[3]) == ([1], ["a/b; c"])
        assert (got.properties[8], got.properties[9]) == (["r/\ufeff"], [b"\0\xff"])
        numbers.add(got.number)
    assert len(numbers) == 2
    assert 0 not in numbers
    assert await reader.silent()
    await client.send(publish("\ufeffx", b"", b"\x09" + text(b""), qos=0))
    got = await reader.got(PUBLISH)
    assert (got.properties[9], 8 in got.properties, 1 in got.properties) == ([b""], False, False)


@holds("3.3.2-5 to 6")
async def expiry(world: Gateway) -> None:
    reader = await world.reader()
    client = await world.client()
    interval = b"\x02" + (60).to_bytes(4, "big")
    for age, left in ((0.0, {60}), (20.5, {39, 40}), (61.0, None), (1e9, None)):
        world.bus.age = age
        await client.ask(publish("t", b"x", interval))
        if left is None:
            assert await reader.silent()
            continue
        got = await reader.got(PUBLISH)
        assert set(got.properties[2]) <= left
        await reader.send(puback(got.number))
    world.bus.age = 1e9
    await client.ask(publish())
    assert 2 not in (await reader.got(PUBLISH)).properties
    await client.ask(publish("t", b"x", b"\x02\0\0\0\0"))
    assert await reader.silent()


@holds("3.4.2-1 to 3", "3.3.4-1", "3.1.2-29", "3.9.2-1 to 2", "3.14.2-1 to 4", "3.1.2-24 to 25")
@holds("3.2.2-19 to 20", "3.11.2-1 to 2")
async def sizes_and_reasons(world: Gateway) -> None:
    """Reasons go to who takes them, and nothing is larger than the client takes."""
    bad = publish("t", b'{"a": NaN, "%s": NaN, "b": 1}' % (b"x" * 60))
    wordy = await world.client("wordy")
    assert "NaN" in (await wordy.ask(bad)).reason
    terse = await world.client("terse", b"\x17\0")
    found = await terse.ask(bad)
    assert (found.kind, found.code, found.properties) == (PUBACK, 0, {})
    found = await terse.ask(subscribe("a/#/b"))
    assert (found.codes, found.properties) == ((0x8F,), {})
    small = await world.client("small", b"\x27" + (90).to_bytes(4, "big"))
    long = subscribe("a/#/" + "b" * 90)
    for raw, kind in ((bad, PUBACK), (long, SUBACK), (subscribe("#"), SUBACK)):
        found = await small.ask(raw)
        assert (found.kind, found.size <= 90) == (kind, True)
    await wordy.ask(publish("t", b"y" * 90))
    await wordy.send(publish("t", b"y", qos=0))
    assert (await small.got(PUBLISH)).payload == b"y"  # the larger one is as if it was sent
    found = await small.ask(publish(flags=1))
    assert (found.kind, found.code, found.size <= 90) == (DISCONNECT, 0x9A, True)
    tiny = world.open()
    await tiny.send(connect("tiny", b"\x27" + (5).to_bytes(4, "big")))
    assert await tiny.is_closed()


@holds("3.1.3-1 to 3", "3.1.3-5 to 8", "3.2.2-16", "3.1.4-5", "3.2.0-1 to 2", "3.2.2-1 to 3")
@holds("3.2.2-6 to 9", "3.1.2-4 to 6", "3.1.2-23", "3.1.2-28", "3.1.4-4", "4.1.0-2", "4.12.0-6")
@holds("2.2.2-1", "3.2.2-10", "3.1.2-26 to 27", "3.3.2-7", "3.3.2-11", "4.4.0-1", "4.2.0-1")
async def what_a_client_is_told(world: Gateway) -> None:
    told = []
    for properties in (b"", b"\x11\0\0\1\0" + b"\x19\1"):  # session expiry, response information
        client = world.open()
        found = await client.ask(connect("", properties))
        assert (found.kind, found.flags, found.code) == (CONNACK, 0, 0)
        told.append(found.properties.pop(0x12)[0])
        assert found.properties == {
            0x11: [0],
            0x21: [64],
            0x24: [1],
            0x25: [0],
            0x27: [1 << 20],
            0x2A: [0],
        }
    assert told[0] != told[1]
    for name in ("0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "é" * 200):
        found = await world.open().ask(connect(name))
        assert found.code == 0
        assert 0x12 not in found.properties
    for flags in (0, 0b10):  # whether a clean start is wanted or not
        client = await world.client("again", b"\x11\0\0\1\0", flags=flags)
        await client.ask(subscribe("#"))
        await client.send(packet(DISCONNECT))
        assert await client.is_closed()
        client = world.open()
        assert (await client.ask(connect("again", flags=flags))).flags == 0  # no session is present
        await (await world.client("writer")).ask(publish())
        assert await client.silent()


@holds("3.1.2-20 to 22", "3.2.2-21 to 22", "3.12.4-1")
async def keep_alive(world: Gateway) -> None:
    client = await world.client("k", keep_alive=2, will=will())
    for _ in range(3):
        await trio.sleep(2.9)
        assert (await client.ask(packet(PINGREQ))).kind == PINGRESP
    began = trio.current_time()
    found = await client.got(DISCONNECT)
    assert (found.code, trio.current_time() - began) == (0x8D, pytest.approx(3.0))
    assert await client.is_closed()
    assert [draft.attributes["topic"] for draft in world.bus.published] == ["gone"]
    forever = await world.client("f")
    assert await forever.silent(1e3)


@holds("3.1.2-7 to 8", "3.1.2-10", "3.1.2-14", "3.14.4-3", "3.1.3-9")
async def wills(world: Gateway) -> None:
    reader = await world.reader("gone")
    sent = with_length(
        b"\x02\0\0\0\x3c" + b"\x03" + text("a/b") + b"\x09" + text("7") + pair("u", "1")
    )
    made = sent + text("gone") + text("bye")
    for raw, is_published in (
        (packet(DISCONNECT), False),
        (packet(DISCONNECT, b"\0"), False),
        (packet(DISCONNECT, b"\4"), True),  # with the will
        (packet(DISCONNECT, b"\x80"), True),
        (b"", True),  # without a word
        (publish(flags=1), True),  # the server closes
        (packet(PUBREL, b"\0\1", 0), True),
    ):
        client = await world.client("w", will=made)
        if raw:
            await client.send(raw)
        else:
            await client.stream.aclose()
        if not is_published:
            assert await reader.silent()
            continue
        got = await reader.got(PUBLISH)
        assert (got.topic, got.payload, got.flags & 1) == ("gone", b"bye", 0)
        assert (got.properties[2], got.properties[3], got.properties[9]) == ([60], ["a/b"], [b"7"])
        assert ("u", "1") in got.user
        await reader.send(puback(got.number))
    assert await reader.silent()


@holds("3.1.4-3", "3.1.2-8", "3.14.4-1 to 2", "4.13.2-1", "3.2.2-7")
async def taken_over(world: Gateway) -> None:
    """Whoever connects again ends what was there before it is welcomed; its will comes first."""
    reader = await world.reader()
    delayed = will(
        "gone", properties=b"\x18\0\0\0\x05"
    )  # it ends with the session, which is at once
    for one in (will("gone"), delayed):
        former = await world.client("device", will=one)
        await former.ask(subscribe("#"))
        again = await world.client("device")
        found = await former.got(DISCONNECT)
        assert found.code == 0x8E
        assert await former.is_closed()
        await again.ask(publish("back"))
        assert [(await reader.got(PUBLISH)).topic for _ in range(2)] == ["gone", "back"]
        assert await reader.silent(60.0)
        assert (await again.ask(packet(PINGREQ))).kind == PINGRESP
        await again.send(packet(DISCONNECT))
    several = [world.open() for _ in range(4)]
    for client in several:  # all at once: one is left
        await client.send(connect("device"))
    left = []
    for client in several:
        await client.got(CONNACK)
        with trio.move_on_after(1) as alone:
            assert (await client.got(DISCONNECT)).code == 0x8E
        left += [client] * alone.cancelled_caught
    assert len(left) == 1


@holds("3.8.4-1 to 2", "3.8.4-5 to 7", "3.9.3-1 to 2", "2.2.1-6", "4.7.1-1 to 2", "4.8.2-1 to 6")
@holds("3.8.3-3", "4.7.3-1")
async def subscribed(world: Gateway) -> None:
    client = await world.client()
    wanted = [
        *(("a/b", 0), ("a/+", 1), ("#", 2), ("a#", 1), ("a/#/b", 1), ("$share/g/a", 1)),
        *(
            ("x", 0b101),
            ("", 1),
            ("$where/a = 1", 1),
            ("$where/a =", 1),
            ("$SYS/a", 1),
            ("$gap", 1),
        ),
    ]
    found = await client.ask(subscribe(*wanted, number=77))
    assert (found.kind, found.number) == (SUBACK, 77)
    assert found.codes == (0, 1, 1, 0x8F, 0x8F, 0x9E, 0x80, 0x8F, 1, 0x8F, 0x8F, 0)
    assert "No Local" in found.reason


@holds("3.3.1-9 to 11", "3.8.4-3 to 4", "3.3.4-2 to 5", "3.8.4-8", "4.5.0-1", "4.7.2-1", "4.1.0-1")
async def delivered(world: Gateway) -> None:
    client, writer = await world.client("r"), await world.client("w")
    await client.ask(subscribe(("a/+", 0), number=1, properties=b"\x0b\7"))
    await client.ask(subscribe(("a/b", 1), number=2, properties=b"\x0b\x81\1"))
    for qos in (0, 1):
        await writer.send(publish("a/b", qos=qos))
        got = [await client.got(PUBLISH) for _ in range(2)]
        assert {(one.qos, one.properties[0x0B][0]) for one in got} == {(0, 7), (1, 129)}
        for one in got:
            if one.qos:
                await client.send(puback(one.number))
    await client.ask(subscribe(("a/b", 0), number=3))  # in its place
    await client.ask(subscribe(("a/+", 0b10_0001), number=4))  # retain handling 2: there are none
    await writer.got(PUBACK)
    await writer.ask(publish("a/b"))
    got = [await client.got(PUBLISH) for _ in range(2)]
    assert {(one.qos, 0x0B in one.properties) for one in got} == {(0, False), (1, False)}
    await client.ask(subscribe("#", "+/x", number=5))
    await writer.ask(publish("$x/x"))
    assert await client.silent()


@holds("3.10.4-1 to 6", "3.11.3-1 to 2")
async def unsubscribed(world: Gateway) -> None:
    client, writer = await world.client("r"), await world.client("w")
    await client.ask(subscribe("a/+", "a/b"))
    await writer.ask(publish("a/b"))
    assert {(await client.got(PUBLISH)).topic for _ in range(2)} == {"a/b"}
    found = await client.ask(unsubscribe("a/b", "a/#", "a/+", number=9))
    assert (found.kind, found.number, found.codes) == (UNSUBACK, 9, (0, 17, 0))
    await writer.ask(publish("a/b"))
    assert await client.silent()
    assert (await client.ask(unsubscribe("a/b"))).codes == (17,)


@holds("4.9.0-1 to 3", "3.3.4-9 to 10", "4.4.0-2", "3.3.1-1", "4.6.0-5 to 6", "4.5.0-2")
async def flow(world: Gateway) -> None:
    """No more are under way than the client takes, in their order; all else goes on."""
    client = await world.client("r", b"\x21\0\2")
    await client.ask(subscribe("#"))
    writer = await world.client("w")
    for number in range(1, 7):
        await writer.ask(publish("t", str(number).encode(), number=number))
    first, second = [await client.got(PUBLISH) for _ in range(2)]
    assert await client.silent()
    assert (await client.ask(packet(PINGREQ))).kind == PINGRESP
    assert (await client.ask(subscribe("other", number=2))).kind == SUBACK
    got = [first, second]
    await client.send(puback(first.number, 0x80), puback(first.number), puback(second.number))
    for _ in range(4):
        got.append(await client.got(PUBLISH))
        await client.send(puback(got[-1].number))
    assert [one.payload for one in got] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert not any(one.flags & 8 for one in got)
    assert await client.silent()


@holds("4.3.2-5", "4.6.0-2")
async def acknowledged(world: Gateway) -> None:
    writer = await world.client()
    for _ in range(2):  # the same number again is another message, whatever its DUP says
        assert (await writer.ask(publish(flags=8))).number == 1
    assert len(world.bus.published) == 2
    numbers = [5, 3, 9]
    await writer.send(
        *(
            publish("t", b"{" if n == 3 else b"x", b"\x03" + text("a/json"), number=n)
            for n in numbers
        )
    )
    found = [await writer.got(PUBACK) for _ in numbers]
    assert [(one.number, one.code) for one in found] == [(5, 0x99), (3, 0x99), (9, 0x99)]


@holds("6.0.0-1 to 4", "3.5.2-1 to 3", "3.6.2-1 to 3", "3.7.2-1 to 3", "3.15.2-1 to 3")
async def what_is_never_sent(world: Gateway) -> None:
    """There is no MQTT over WebSockets, no PUBREC, PUBREL, PUBCOMP or AUTH."""
    client = world.open()
    await client.send(b"GET /mqtt HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
    assert await client.next(60) is None
    for raw in (publish(qos=2), packet(PUBREL, b"\0\1", 2), packet(AUTH, b"\x18\0")):
        client = await world.client()
        assert (await client.ask(raw)).kind == DISCONNECT
        assert await client.is_closed()


@holds("4.7.3-3")
async def long_topics(world: Gateway) -> None:
    reader, writer = await world.reader(), await world.client()
    topic = "a/" + "é" * 32_766
    assert (await writer.ask(publish(topic))).code == 0
    assert (await reader.got(PUBLISH)).topic == topic


@holds("3.1.4-2")
async def no_token(world: Gateway) -> None:
    world.door._access._tokens = TokenFile(Path("/nonexistent/tokens.json"))
    found = await world.open().ask(connect())
    assert found.code in (0x87, 0x88)


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
async def test_statements(check: Check, autojump_clock: Any) -> None:
    async with gateway() as world:
        await check(world)


@pytest.mark.parametrize("kind", [b"", b"\x03" + text("application/json")], ids=["", "JSON"])
@pytest.mark.parametrize(
    ("field", "says"),
    [
        ('"a": 18446744073709551615', "64 bits"),
        ('"a": 1e400', "infinity"),
        ('"a": NaN', "NaN"),
        ('"a": "\\ud800"', "surrogate"),
        ('"a": 1, "a": 2', "given twice"),
        ('"a": ' + "9" * 5000, "infinity"),
        ('"\\ud800": 1', "surrogate"),
        ('"mqttexpiry": 5', "reserved"),
    ],
)
async def test_a_field_that_is_no_attribute_takes_no_other_along(
    field: str, says: str, kind: bytes, autojump_clock: Any
) -> None:
    payload = f'{{"first": 1, {field}, "b": "x", "deep": [1]}}'.encode()
    async with gateway() as world:
        reader, writer = await world.reader("$where/b = 'x' AND first = 1"), await world.client()
        found = await writer.ask(publish("t", payload, kind + pair("u", "2")))
        assert (found.kind, found.code) == (PUBACK, 0)
        assert says in found.reason
        got = await reader.got(PUBLISH)
        assert got.payload == payload
        attributes = world.bus.published[0].attributes
        assert {n: v for n, v in attributes.items() if n not in ("id", "type", "topic")} == {
            "first": 1,
            "b": "x",
            "u": 2,
        }


@pytest.mark.parametrize(
    ("value", "attribute"),
    [("12345678901234567890", str), ("1e400", str), ('"\\ud800"', str), ("7", int), ("1e3", float)],
)
async def test_a_user_property_is_a_text_unless_it_is_a_value(
    value: str, attribute: type, autojump_clock: Any
) -> None:
    async with gateway() as world:
        reader, writer = await world.reader(), await world.client()
        await writer.send(publish("t", b"x", pair("serial", value), qos=0))
        assert ("serial", value) in (await reader.got(PUBLISH)).user
        assert type(world.bus.published[0].attributes["serial"]) is attribute


async def test_what_is_not_answered_is_logged(autojump_clock: Any) -> None:
    async with gateway() as world:
        writer = await world.client()
        for _ in range(2):
            await writer.send(publish("t", b"{", b"\x03" + text("a/json"), qos=0))
            await writer.ask(packet(PINGREQ))
        (what, fields), _ = world.logged
        assert (what, fields["topic"], fields["client"]) == ("not_published", "t", "c")


async def test_a_response_topic_of_another_door_is_one_over_mqtt(autojump_clock: Any) -> None:
    async with gateway() as world:
        reader = await world.reader()
        good = {"mqttresponsetopic": "r/1", "mqttcorrelation": "AA==", "mqttformat": 1}
        bad = {"mqttresponsetopic": "r/#", "mqttcorrelation": "%", "mqttexpiry": -1}
        await world.bus.publish_many([Draft({"topic": "t", **one}) for one in (good, bad)])
        got = await reader.got(PUBLISH)
        assert (got.properties[8], got.properties[9], got.properties[1]) == (["r/1"], [b"\0"], [1])
        assert got.user == []
        got = await reader.got(PUBLISH)
        assert json.loads(json.dumps(sorted(got.user))) == sorted(
            [[name, str(value)] for name, value in bad.items()]
        )
        assert got.properties.keys() == {0x26}


async def test_filters_of_one_packet_are_opened_together_and_answered_in_order(
    autojump_clock: Any,
) -> None:
    """As many as a connection may have, also where some before are refused; of one pattern the last
    one counts."""
    async with gateway() as world:
        client = await world.client()
        made, open_now, most = world.bus.subscribe, 0, 0

        async def slow(selector: str, *, timeout: float = 0.0) -> Any:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            await trio.sleep(10.0 if "f/3" in selector else 1.0)
            open_now -= 1
            return await made(selector, timeout=timeout)

        world.bus.subscribe = slow  # type: ignore[method-assign]
        many = [(f"f/{number}", 0) for number in range(FILTERS + 1)]
        since = trio.current_time()
        await client.send(subscribe(("a#", 0), ("f/0", 1), *many))
        found = await client.next(60.0)
        assert found is not None
        assert found.codes == (0x8F, 1, *[0] * FILTERS, 0x97)
        assert 1 < most <= OPENED_TOGETHER
        assert trio.current_time() - since < 20.0


LARGE: Final = {"topic": "a"}, bytes(200_000)


@asynccontextmanager
async def half_read(world: Gateway) -> AsyncIterator[Client]:
    """A client that is being sent a packet larger than what its connection takes unread."""
    client = world.open(4_096)
    await client.ask(connect("half"))
    await client.ask(subscribe(("a", 0), ("b", 0)))
    await world.bus.publish_many([Draft(*LARGE)])
    client.buffer = await client.stream.receive_some(1_000)
    assert client.buffer[0] >> 4 == PUBLISH
    async with client.stream:
        yield client


@pytest.mark.parametrize("ending", [unsubscribe("a"), subscribe(("a", 0))])
async def test_a_subscription_that_ends_cuts_no_packet_off(ending: bytes) -> None:
    """What came next would be taken for the packet's rest: another payload, and then no MQTT."""
    async with gateway() as world, half_read(world) as client:
        await client.send(ending)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await client.got(PUBLISH)).payload == LARGE[1]
        await client.got(UNSUBACK if ending[0] >> 4 == UNSUBSCRIBE else SUBACK)
        await world.bus.publish_many([Draft({"topic": "b"}, b"next")])
        assert (await client.got(PUBLISH)).payload == b"next"


async def cut_off(client: Client) -> bool:
    """Whether the connection ends with a part of the packet, and nothing behind that."""
    got = client.buffer
    with trio.fail_after(5.0):
        while data := await client.stream.receive_some(65_536):
            got += data
    whole = packet(PUBLISH, text("a") + b"\0" + LARGE[1])
    return len(got) < len(whole) and whole.startswith(got)


async def test_nothing_follows_a_packet_that_was_cut_off() -> None:
    async with gateway() as world, half_read(world) as client, trio.open_nursery() as nursery:
        nursery.start_soon(world.client, "half")  # takes the session over
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await cut_off(client)


async def test_who_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canopy.gateway.http.exchange.SEND_TIMEOUT", 0.01)
    async with gateway() as world, half_read(world) as client:
        await trio.sleep(0.05)
        assert await cut_off(client)
        assert [what for what, _ in world.logged] == ["gone"]

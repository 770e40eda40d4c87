"""Reading a stream with the three faces of the library, from a node that answers by a script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy import Positions
from canopy.client.streams.reading import AsyncReading, parse_start, wanted_reading
from overlay.client import BeginReading, CommitReading, EndReading, TakeEvents
from tests.support.real.scripted_stream import ScriptedStream

ROWS = [list(range(10)), [100, 101, 102, 103]]
RUN: dict[str, Callable[..., Any]] = {
    "trio": lambda main: trio.run(main, strict_exception_groups=True),
    "asyncio": lambda main: asyncio.run(main()),
}
CONNECT: dict[str, Any] = {"trio": canopy.trio.connect, "asyncio": canopy.aio.connect}

both = pytest.mark.parametrize("kind", ["trio", "asyncio"])


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", *ROWS) as made:
        yield made


def numbers(events: list[canopy.StreamEvent]) -> list[Any]:
    return [event.attributes["n"] for event in events]


@both
def test_a_task_reads_from_its_positions_commits_and_ends(
    stream: ScriptedStream, kind: str
) -> None:
    async def main() -> dict[int, int]:
        async with CONNECT[kind](stream.data) as client:
            places = {1: 2}
            async with client.read("s", start="first", positions=places, durable="d") as reading:
                assert reading.begins == {0: 0, 1: 2}
                assert (reading.ends, reading.stream_id) == ({0: 10, 1: 4}, "id of s")
                assert numbers(await reading.take(30)) == [0, 1, 2, 102, 103]
                await reading.commit()
                return dict(reading.positions)

    assert RUN[kind](main) == {0: 3, 1: 4}
    begun, taken, committed, ended = stream.commands
    assert isinstance(begun, BeginReading)
    assert begun.positions == ((1, 2),)
    assert isinstance(taken, TakeEvents)
    assert isinstance(committed, CommitReading)
    assert committed.positions == ((0, 3), (1, 4))
    assert isinstance(ended, EndReading)


@both
def test_a_task_that_is_cut_off_loses_no_event_and_goes_on_over_another_connection(
    stream: ScriptedStream, kind: str
) -> None:
    stream.is_mute_at_end = True

    async def first(reading: AsyncReading, most: int) -> list[Any]:
        found: list[Any] = []
        async for event in reading:
            found.append(event.attributes["n"])
            if len(found) == most:
                break
        return found

    async def main() -> tuple[list[Any], dict[int, int]]:
        async with CONNECT[kind](stream.data) as client:
            reading = await client.read("s", start="first")
            found = await first(reading, 4)
            assert reading.positions == {0: 3, 1: 1}, "of 6 that have come 4 are handed out"
            found += await first(reading, 8)
            stream.hang_up()
            found += await first(reading, 2)
            assert await reading.take(0.01) == []
            if kind == "trio":
                with trio.move_on_after(0.01):
                    await reading.take()
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reading.take(), 0.01)
            stream.shards[0].append(10)
            stream.hang_up()
            return found + numbers(await reading.take(30)), reading.positions

    found, positions = RUN[kind](main)
    assert sorted(found) == sorted(ROWS[0][:10] + ROWS[1] + [10])
    assert positions == {0: 11, 1: 4}
    assert stream.begun[0] == {0: 0, 1: 0}
    del stream.shards[0][10:]


def test_an_event_counts_as_handed_out_when_the_loop_gets_it(stream: ScriptedStream) -> None:
    with canopy.connect(stream.data) as client, client.read("s", start="first") as reading:
        found = []
        for event in reading:
            found.append((event.shard, event.offset))
            if len(found) == 2:
                break
        assert found == [(0, 0), (0, 1)]
        assert reading.positions == {0: 2, 1: 0}
        assert numbers(reading.take(30)) == [2, 100, 101, 102]
        assert reading.positions == {0: 3, 1: 3}


def test_rows_are_taken_in_the_form_for_which_the_reading_was_begun(stream: ScriptedStream) -> None:
    with canopy.connect(stream.data) as client:
        with client.read("s") as reading, pytest.raises(ValueError, match="packed=True"):
            reading.take_packed(0)
        with client.read("s", packed=True) as packed, pytest.raises(ValueError, match="packed"):
            packed.take(0)


def test_each_time_of_a_calendar_is_a_place_in_a_stream() -> None:
    """Also one that is outside of 64 bits of nanoseconds, or of the calendar in another zone."""
    for text in ("0001-01-01", "0001-01-01T00:00:00+23:59", "1969-12-31"):
        assert parse_start(text) == ("time", 0)
    for text in ("9999-12-31T23:59:59-23:59", "2300-01-01"):
        assert parse_start(text) == ("time", 2**63 - 1)
    assert parse_start("2026-11-23T08:00+01:00") == ("time", 1_795_417_200 * 10**9)


def test_a_reading_expires_after_seconds_that_there_are() -> None:
    def wanted(expire_after: float) -> int:
        return wanted_reading("s", "", "new", 0, {}, "d", expire_after).expire_after

    assert [wanted(0), wanted(0.5), wanted(30)] == [0, 1, 30], "0: never"
    for bad in (math.nan, math.inf, -1.0, 1e300):
        with pytest.raises(ValueError, match="expire_after"):
            wanted(bad)


def test_another_stream_of_the_same_name_ends_a_reading(stream: ScriptedStream) -> None:
    with canopy.connect(stream.data) as client, client.read("s", start="first") as reading:
        reading.take(30)
        stream.stream_id = "another"
        stream.hang_up()
        with pytest.raises(canopy.CommandFailed, match="of another stream") as failed:
            reading.take(30)
        assert failed.value.code == "position-lost"


@both
def test_positions_carry_whose_they_are_also_as_a_text(stream: ScriptedStream, kind: str) -> None:
    stream.losses = (0, 2)
    with canopy.connect(stream.data) as client:
        with client.read("s", start="first") as reading:
            reading.take(30)
        kept = str(reading.positions)
        assert kept == "id of s@0:3,1:3.2"
    told = Positions({0: 3, 1: 3}, "id-of-s", {0: 0, 1: 2})
    assert str(told) == "id-of-s@0:3,1:3.2"
    assert Positions.parse(str(told)) == told
    assert Positions.parse(str(told)).losses == told.losses
    amid = Positions.parse("id-of-s@0:1-3,1:2.2-2")
    assert (str(amid), amid.open_tables(amid)) == ("id-of-s@0:1-3,1:2.2", ((0, 3),))
    amid.stream = "id of s"

    async def main() -> None:
        async with CONNECT[kind](stream.data) as client:
            await client.read("s", positions=reading.positions)
            await client.read("s", positions={0: 3, 1: 3})
            resumed = await client.read("s", positions=amid)
            assert (str(resumed.positions), resumed.in_table) == (str(amid), True)
            with pytest.raises(canopy.CommandFailed) as failed:
                await client.read("s", positions=told)
            assert failed.value.code == "position-lost"

    RUN[kind](main)
    asked = [one for one in stream.commands if isinstance(one, BeginReading)]
    assert [(one.stream_id, one.losses, one.tables) for one in asked[1:]] == [
        ("id of s", ((0, 0), (1, 2)), ()),
        ("", (), ()),
        ("id of s", ((0, 0), (1, 2)), ((0, 3),)),
        ("id-of-s", ((0, 0), (1, 2)), ()),
    ]
    for text in ("", "id@", "0", "0:1,", "id@0:1.x", "id@0:1-", "i d@0:1", "a@b@0:1", "0:1\n"):
        with pytest.raises(ValueError, match="is no position in a stream"):
            Positions.parse(text)

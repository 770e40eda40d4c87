"""Gathered events leave the control socket together, encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from canopy.wire.transport.framing import COMMAND_FRAMES, LENGTH, PREFIX, REPLY_FRAMES
from overlay.client import Event, Gathered, Reply, Subscribe
from tests.support.real.wire_rig import PATIENCE, Rig, rig

pytestmark = pytest.mark.trio


async def raw(one: Rig) -> trio.SocketStream:
    stream = await trio.open_unix_socket(one.path)
    one.streams.append(stream)
    return stream


async def replies(stream: trio.SocketStream, count: int) -> list[Reply]:
    """The next `count` replies, and no byte more."""

    async def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += await stream.receive_some(size - len(data))
        return data

    with trio.fail_after(PATIENCE):
        return [
            REPLY_FRAMES.decode(await read(*LENGTH.unpack(await read(PREFIX))))
            for _ in range(count)
        ]


async def test_what_is_gathered_comes_in_one_frame_per_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tuple(Event("p", 1, number, 0.0, {"x": number}, b"1234") for number in range(300))
    async with rig(socket=tmp_path / "control.sock") as one:
        streams = [await raw(one), await raw(one)]
        for number, stream in enumerate(streams, 1):
            await stream.send_all(COMMAND_FRAMES.encode(Subscribe(number, "a = 1")))
            await replies(stream, 1)
        encodings = 0
        encode = one.control._output._encode

        def counted(what: Any) -> bytes:
            nonlocal encodings
            encodings += 1
            return encode(what)

        monkeypatch.setattr(one.control._output, "_encode", counted)

        framings = 0
        frames = one.control._output._frames

        def framed(kind: int, parts: Sequence[bytes]) -> list[bytes]:
            nonlocal framings
            framings += bool(parts)
            return frames(kind, parts)

        monkeypatch.setattr(one.control._output, "_frames", framed)

        def both() -> None:
            one.driver.share(events[:200], {1: range(200), 2: range(200)})
            one.driver.share(events[200:], {9: range(100), 1: range(50, 100), 2: range(100)})

        one.driver.turn(both)
        first = Gathered(0, events[:200])
        assert await replies(streams[0], 2) == [first, Gathered(0, events[250:])]
        assert await replies(streams[1], 2) == [first, Gathered(0, events[200:])]
        assert encodings == 300, "once for both clients"
        assert framings == 3, "once for both where they want the same"
        monkeypatch.setattr("canopy.wire.control.client_output.CLIENT_FRAME", 1_000)
        one.driver.turn(lambda: one.driver.share(events, {1: range(300)}))
        came: list[tuple[Event, ...]] = []
        while sum(map(len, came)) < 300:
            (frame,) = await replies(streams[0], 1)
            assert isinstance(frame, Gathered)
            came.append(frame.events)
        assert sum(came, ()) == events
        sizes = [sum(len(encode(event)) for event in some) for some in came]
        assert all(1_000 <= size < 1_100 for size in sizes[:-1]), "cut when it is full"

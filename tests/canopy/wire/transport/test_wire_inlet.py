"""What comes in is read as it comes; ends and faults are raised as trio raises them."""

from __future__ import annotations

import os
import socket
import struct

import pytest
import trio
import trio.testing

from canopy.wire.transport.inlet import Inlet
from tests.canopy.wire.transport.test_wire_outlet import pair

pytestmark = pytest.mark.trio

PATIENCE = 20.0


async def test_what_is_there_is_read_and_the_end_is_reported() -> None:
    async with pair() as (ours, theirs):
        inlet = Inlet(ours)
        with trio.fail_after(PATIENCE):
            await theirs.send_all(b"one two")
            assert await inlet.read(3) == b"one"
            assert await inlet.read(100) == b" two"
            await theirs.send_eof()
            assert await inlet.read(100) == b""


async def test_it_waits_for_what_is_not_there_yet() -> None:
    async with pair() as (ours, theirs):
        found: list[bytes | bytearray] = []

        async def read() -> None:
            found.append(await Inlet(ours).read(100))

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                assert found == []
                os.write(theirs.socket.fileno(), b"late")
        assert found == [b"late"]


async def test_a_reset_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, trio.fail_after(PATIENCE):
        async with await trio.open_tcp_stream(*listener.getsockname()) as ours:
            theirs, _ = listener.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            with pytest.raises(trio.BrokenResourceError):
                await Inlet(ours).read(100)


async def test_waiting_tasks_learn_that_the_stream_is_closed() -> None:
    async with pair() as (ours, _):

        async def close() -> None:
            await trio.testing.wait_all_tasks_blocked()
            await ours.aclose()

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(close)
                with pytest.raises(trio.ClosedResourceError):
                    await Inlet(ours).read(100)


async def test_other_streams_are_read_through_trio() -> None:
    one, other = trio.testing.memory_stream_pair()
    with trio.fail_after(PATIENCE):
        await other.send_all(b"one")
        assert await Inlet(one).read(100) == b"one"


async def test_what_was_read_stays_as_it_was_when_more_is_read() -> None:
    """All streams of a thread are read into the same memory, large reads and small ones."""
    async with pair() as (ours, theirs), pair() as (others, far):
        with trio.fail_after(PATIENCE):
            await theirs.send_all(b"one")
            await far.send_all(b"three")
            first = await Inlet(ours).read(100)
            second = await Inlet(others).read(1 << 20)
            await theirs.send_all(b"two")
            assert (first, second, await Inlet(ours).read(2)) == (b"one", b"three", b"tw")

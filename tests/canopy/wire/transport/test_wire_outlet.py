"""What is queued leaves in order, at once where the socket takes it, and else by the writer."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from canopy.wire.transport.outlet import Counters, Outlet

pytestmark = pytest.mark.trio

PATIENCE = 20.0
LARGE = 256 * 1024  # more than a socket takes at once


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of one connection."""
    one, other = trio.socket.socketpair()
    async with trio.SocketStream(one) as ours, trio.SocketStream(other) as theirs:
        yield ours, theirs


async def received(stream: trio.SocketStream, size: int) -> bytes:
    """The next so many bytes."""
    found = bytearray()
    with trio.fail_after(PATIENCE):
        while len(found) < size:
            found += await stream.receive_some(size - len(found))
    return bytes(found)


async def test_what_the_socket_takes_leaves_without_any_task() -> None:
    async with pair() as (ours, theirs):
        counters = Counters()
        outlet = Outlet(counters)
        outlet.open(ours)
        outlet.put(b"one ")
        outlet.put(b"two")
        outlet.send_now()
        assert not outlet
        assert await received(theirs, 7) == b"one two"
        assert (counters.sends, counters.bytes_out) == (1, 7)


@pytest.mark.parametrize("seed", range(5))
async def test_bytes_never_overtake_each_other(seed: int) -> None:
    rng = random.Random(seed)
    async with pair() as (ours, theirs):
        outlet = Outlet(Counters())
        outlet.open(ours)
        sent = bytearray()

        async def write() -> None:
            while True:
                if outlet:
                    await outlet.drain()
                else:
                    await outlet.idle()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            found = bytearray()
            for _ in range(60):
                sizes = rng.choices((10, 5_000, LARGE // 3, 2 * LARGE), k=rng.randrange(1, 4))
                if rng.random() < 0.1:
                    sizes = [7] * 3_000  # more pieces than one write takes
                for size in sizes:
                    piece = rng.randbytes(size)
                    outlet.put(piece)
                    sent += piece
                outlet.send_now()
                if rng.random() < 0.5:
                    await trio.sleep(0)
                with suppress(BlockingIOError):
                    found += os.read(theirs.socket.fileno(), rng.randrange(1, 1_000_000))
            found += await received(theirs, len(sent) - len(found))
            nursery.cancel_scope.cancel()
        assert found == sent


async def test_a_stream_that_has_ended_is_the_writers_fault_to_find() -> None:
    async with pair() as (ours, theirs):
        outlet = Outlet(Counters())
        outlet.open(ours)
        await theirs.aclose()
        outlet.put(b"x" * 100)
        outlet.send_now()
        assert outlet.waiting == 100
        with pytest.raises(trio.BrokenResourceError):
            await outlet.drain()


async def test_a_closed_outlet_keeps_off_the_descriptor() -> None:
    async with pair() as (ours, theirs):
        outlet = Outlet(Counters())
        outlet.open(ours)
        outlet.close()
        outlet.put(b"x")
        outlet.send_now()
        assert outlet.waiting == 1
        with trio.move_on_after(0.01) as waited:
            await theirs.receive_some(1)
        assert waited.cancelled_caught

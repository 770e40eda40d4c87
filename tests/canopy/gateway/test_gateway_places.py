"""Who says nothing keeps nobody out of the gateway, however many connections it opens."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
import trio

from canopy.gateway.server import Doors
from canopy.wire.log import Log

pytestmark = pytest.mark.trio


async def test_one_more_ends_the_connection_that_has_shown_no_token_for_longest() -> None:
    async def serve(stream: trio.abc.Stream, peer: str, welcome: Callable[[], None]) -> None:
        while data := await stream.receive_some(1):  # type: ignore[attr-defined]
            if data == b"t":
                welcome()
            await stream.send_all(data)

    async def dial(first: bytes) -> trio.SocketStream:
        host, port = address.rsplit(":", 1)
        stream = await stack.enter_async_context(await trio.open_tcp_stream(host, int(port)))
        await stream.send_all(first)
        assert await stream.receive_some(1) == first
        return stream

    doors = Doors(None, 3, Log("error", io.StringIO()))
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        address = await doors.open(nursery, "--http", "127.0.0.1:0", serve)
        with trio.fail_after(20):
            good = await dial(b"t")
            silent = [await dial(b"s"), await dial(b"s")]
            other = await dial(b"t")
            assert await silent[0].receive_some(1) == b""
            another = await dial(b"t")
            assert await silent[1].receive_some(1) == b""
            with pytest.raises((trio.BrokenResourceError, AssertionError)):
                await dial(b"t")  # all have shown their tokens
            for stream in (good, other, another):
                await stream.send_all(b"x")
                assert await stream.receive_some(1) == b"x"
        nursery.cancel_scope.cancel()

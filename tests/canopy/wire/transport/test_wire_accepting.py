"""Connections are accepted between other tasks, whatever goes wrong with one."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
import trio

from canopy.wire.transport import acceptor

FAILURES = 3


@pytest.mark.trio
async def test_other_tasks_are_heard_between_connections_that_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beats = 0
    heard: list[int] = []  # how often the other task was heard, at each failure

    class Failing(socket.socket):
        def accept(self) -> Any:
            if len(heard) < FAILURES:
                heard.append(beats)
                raise OSError(errno.EPERM, "a firewall does not permit it")
            return super().accept()

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await trio.lowlevel.checkpoint()

    async def serve(stream: trio.SocketStream, host: str, port: int) -> None:
        await stream.send_all(b"served")

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    monkeypatch.setattr(acceptor.socket, "socket", Failing)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            nursery.start_soon(acceptor.accept_all, listener, lambda _: True, serve, nursery)
            port = listener.socket.getsockname()[1]
            client = await trio.open_tcp_stream("127.0.0.1", port)
            assert await client.receive_some() == b"served"
            await client.aclose()
            nursery.cancel_scope.cancel()
    # trio draws the order of tasks in a turn, so that only two turns are sure to have another task.
    assert heard[0] < heard[-1]

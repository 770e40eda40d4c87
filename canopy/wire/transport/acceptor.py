"""Accepts connections, and refuses those of a flood before anything is allocated for them.

trio's `serve_listeners` makes a stream and a task for each connection, which takes some 130 µs:
most of the cost of a connection that is only closed again. Here the address is checked first, which
takes a tenth of that, and after `REFUSED_TOGETHER` refusals the listener rests for `REST` seconds:
then the system's queue is full of the attacker's connections, which wait longest themselves.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Final

import trio

ACCEPTED_TOGETHER: Final = 16
"""The number of accepts after which other tasks run. Guess: some 2 ms of starting handlers."""

REFUSED_TOGETHER: Final = 32
REST: Final = 0.02
"""The pause after `REFUSED_TOGETHER` refusals, in seconds: at most 1,600 refusals per second, 2 %
of a processor. A newcomer waits in the system's queue meanwhile, which has 4,096 places on Linux
(net.core.somaxconn): three seconds if it is full."""

NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
NO_ROOM_REST: Final = 0.1
"""Seconds until `accept` is tried again if the process has no more file descriptors, as in trio."""


async def accept_all(
    listener: trio.SocketListener,
    admits: Callable[[str], bool],
    serve: Callable[[trio.SocketStream, str, int], Awaitable[None]],
    nursery: trio.Nursery,
) -> None:
    """Call `serve` in `nursery` for each connection whose host `admits` accepts, with its host and
    port, until cancelled. The connection is closed when `serve` returns; refused ones are closed at
    once. Closes the listener at the end."""

    async def served(stream: trio.SocketStream, host: str, port: int) -> None:
        try:
            await serve(stream, host, port)
        finally:
            await trio.aclose_forcefully(stream)

    number = os.dup(listener.socket.fileno())
    async with listener:
        with closing(socket.socket(fileno=number)) as plain:  # not blocking, as the listener
            refused = 0
            while True:
                await trio.lowlevel.wait_readable(number)
                accepted = 0
                while accepted < ACCEPTED_TOGETHER and refused < REFUSED_TOGETHER:
                    try:
                        found, address = plain.accept()
                    except BlockingIOError:
                        break
                    except OSError as error:
                        # Most often the other end has gone already. Whatever it is may be there
                        # the next time, so that other tasks have to be heard before.
                        if error.errno in NO_ROOM:
                            await trio.sleep(NO_ROOM_REST)
                        break
                    if admits(address[0]):
                        accepted += 1
                        stream = trio.SocketStream(trio.socket.from_stdlib_socket(found))
                        nursery.start_soon(served, stream, *address[:2])
                    else:
                        refused += 1
                        found.close()
                if refused == REFUSED_TOGETHER:
                    refused = 0
                    await trio.sleep(REST)

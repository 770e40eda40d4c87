"""Accepts connections, and refuses those of a flood before anything is made for them.

trio's `serve_listeners` makes a stream and a task for each connection, some 130 µs; for one that
is only closed again that is most of what it costs. Here its address is looked at first, which takes
a tenth of that, and after `REFUSED_TOGETHER` refusals the listener rests for `REST` seconds: the
system's queue is the attacker's then, whose connections alone wait for long.
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
"""Connections after which other tasks are heard. Guess: some 2 ms of handlers that begin."""

REFUSED_TOGETHER: Final = 32
REST: Final = 0.02
"""At most 1,600 refusals per second, 2 % of a processor. A newcomer waits in the system's queue
meanwhile, which has 4,096 places on Linux (net.core.somaxconn): three seconds if it is full."""

NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
NO_ROOM_REST: Final = 0.1
"""Until `accept` is tried again where the process has no more files: as trio does."""


async def accept_all(
    listener: trio.SocketListener,
    admits: Callable[[str], bool],
    serve: Callable[[trio.SocketStream, str, int], Awaitable[None]],
    nursery: trio.Nursery,
) -> None:
    """Start `serve`, in `nursery`, with each connection whose host `admits` lets in, its host and
    port, until cancelled; it is closed when that returns. The others are closed at once. Closes
    the listener at the end."""

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

"""One connection to a node for trio and asyncio, and the interface to both runtimes.

No task runs in the background: a task that waits for a reply or an event reads the socket, and
hands what it reads to the other waiting tasks. So nothing has to be started, cancelling a task
loses nothing, and a program that takes no events gets none, which its node learns by the credit
(canopy/client/session.py).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from canopy.client.control_socket import connection_error, find_socket
from canopy.client.errors import CommandTimeoutError, DeniedError, UnreachableError
from canopy.client.link import Runtime, Signal, pipelined
from canopy.client.remote import is_access_file, open_remote
from canopy.client.seals import Sealer
from canopy.client.session import (
    GOODBYE,
    READ_SIZE,
    ControlSession,
    ResumableConnection,
    expected,
)
from overlay.client import Command, Reply

LEAST: Final = 0.001
"""The shortest wait in seconds: with 0, trio and asyncio would read nothing."""

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class SocketStream(Protocol):
    """A connected Unix socket. Its methods raise OSError when it has ended."""

    async def send_all(self, data: bytes) -> None:
        """Send all of `data`, waiting while the socket is full."""

    async def receive_some(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; b"" at the end."""

    def send_now(self, data: bytes) -> int:
        """Send what the socket takes without waiting. Returns the number of bytes."""

    def close(self) -> None:
        """Close at once, without waiting for the other side; a task that waits here wakes."""


class AsyncRuntime(Runtime, Protocol):
    """The interface to trio or asyncio that a connection uses."""

    async def open(self, path: str) -> SocketStream:
        """Connect to a Unix socket; raises OSError."""

    async def adopt(self, connect: Callable[[], socket.socket]) -> SocketStream:
        """Call `connect` in a thread and return a stream on the socket that it returns. Raises what
        `connect` raises."""

    async def pause(self, signal: Signal, seconds: float) -> bool:
        """Wait until `signal` is set, for up to `seconds`. Returns whether it is."""
        await self.within(seconds, signal.wait)
        return signal.is_set()

    async def within(self, seconds: float, job: Callable[[], Awaitable[object]]) -> bool:
        """Run `job` for up to `seconds` (inf: without limit); False if it was cancelled."""

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Run `job` in a thread to its end: a cancelled task waits for that end."""


class AsyncLink(ResumableConnection):
    """A connection to a node. Several tasks may share it."""

    def __init__(
        self,
        runtime: AsyncRuntime,
        stream: SocketStream,
        where: str,
        credit: int,
        sealer: Sealer | None = None,
    ) -> None:
        self._runtime = runtime
        self._stream = stream
        self._session = ControlSession(where, credit, sealer)
        self.notices = self._session.notices
        """Received items that are not deliveries: `Dropped`, and notices of subscriptions with a
        gap."""
        self._writing = runtime.lock()
        self._sending = False  # some task has that lock and sends
        self._reading = False  # some task waits in the socket
        self._changed = runtime.signal()

    @staticmethod
    async def connect(
        runtime: AsyncRuntime,
        where: str | Path | None,
        timeout: float,
        credit: int,
        sealer: Sealer | None = None,
    ) -> AsyncLink:
        """Connect to a node; arguments and errors as of `ControlClient.connect`."""
        path = find_socket(where)
        opened: list[SocketStream] = []

        async def attempt() -> None:
            if is_access_file(path):
                opened.append(await runtime.adopt(partial(open_remote, path, timeout)))
            else:
                opened.append(await runtime.open(str(path)))

        try:
            if not await runtime.within(timeout, attempt):
                raise CommandTimeoutError(f"the node at {path} does not answer")
        except OSError as error:
            raise connection_error(error, path) from None
        return AsyncLink(runtime, opened[0], str(path), credit, sealer)

    async def request(self, command: Command, timeout: float) -> Reply:
        """Send `command` and wait for its reply. Raises as `ControlClient.request`."""
        return await self.finish(await self.begin(command, timeout), timeout)

    async def begin(self, command: Command, timeout: float = 30.0) -> int:
        """Send a command without waiting for the reply. Returns the request's number, which must be
        passed to `finish` or `abandon`. Waits up to `timeout` seconds for a full socket."""
        number = self._session.number()
        try:
            data = self._session.encode(command, number)
            if not await self._runtime.within(timeout, lambda: self._send(data)):
                where = self._session.where
                raise CommandTimeoutError(f"the node at {where} takes no commands")
        except BaseException:
            self._session.forget(number)
            raise
        return number

    async def finish(self, number: int, timeout: float) -> Reply:
        """Wait for the reply to the request `number` of `begin`. Raises as `request`."""
        try:
            await self._wait(timeout, lambda: self._session.is_answered(number))
        except BaseException:
            self._session.forget(number)
            raise
        return self._session.answer(number, timeout)

    async def is_answered(self, number: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the reply to a request of `begin`. Returns whether the
        reply is there, or cannot arrive since the connection has ended. The request stays open."""
        await self._wait(timeout, lambda: self._session.is_answered(number))
        return self._session.is_answered(number) or self._session.gone is not None

    async def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float, ahead: int
    ) -> list[R]:
        """Return the replies to all commands, in order, as `ControlClient.ask_many`."""

        async def begin(command: Command) -> int:
            return await self.begin(command, timeout)

        async def finish(number: int) -> R:
            return expected(await self.finish(number, timeout), kind, self._session.where)

        return await pipelined(commands, begin, finish, self.abandon, ahead)

    def abandon(self, number: int) -> None:
        """Stop waiting for the reply to the request `number`; the reply is ignored."""
        self._session.forget(number)

    async def take(self, timeout: float) -> list[Any]:
        """Return all deliveries that have arrived, as `ControlClient.deliveries`, or gathered
        events; wait for the first."""
        await self._arrived(timeout)
        return self._granting(self._session.take())

    def close(self) -> None:
        """Close the connection, and end the subscriptions that were made on it."""
        is_kept = self._session.gone is None and self._session.position is not None
        if is_kept and not self._sending:
            with suppress(OSError):
                self._stream.send_now(GOODBYE)
        self._lose("closed here")
        self._stream.close()

    def _lose(self, reason: str) -> None:
        self._session.lose(reason)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = self._runtime.signal()

    async def _send(self, data: bytes) -> None:
        async with self._writing:
            if self._session.gone is not None:
                raise self._session.unreachable()
            self._sending = True
            try:
                await self._stream.send_all(data)
            except OSError as error:
                if not self._reading:
                    await self._read()  # it may have said why it closed
                self._lose(str(error))
                raise self._session.unreachable() from None
            except BaseException:  # cancelled: half a frame may be out, nothing can follow it
                self._lose("a command was cancelled while it was sent")
                raise
            finally:
                self._sending = False

    async def _arrived(self, timeout: float) -> None:
        """Wait until something can be handed out; send a grant that is due first."""
        session = self._session
        if session.arrivals.grant_due and not session.arrivals and session.gone is None:
            grant, data = session.encode_grant()
            with suppress(UnreachableError, DeniedError):  # what is left is handed out first
                await self._send(data)
                session.arrivals.granted(grant)
        await self._wait(timeout, lambda: bool(session.arrivals))

    def _granting(self, taken: list[T]) -> list[T]:
        """Return `taken`, after sending a grant that is due. This does not wait: a task that is
        cancelled after items were taken would lose them."""
        session = self._session
        if session.arrivals.grant_due and session.gone is None and not self._sending:
            grant, data = session.encode_grant()
            try:
                sent = self._stream.send_now(data)
            except OSError as error:
                self._lose(str(error))
                return taken
            if sent == len(data):
                session.arrivals.granted(grant)
            elif sent:
                self._lose("a grant could not be sent whole")
        return taken

    async def _wait(self, timeout: float, is_there: Callable[[], bool]) -> None:
        """Read, or let another task read, until `is_there` returns true, the connection ends, or
        `timeout` is over."""

        async def wait() -> None:
            while not is_there() and self._session.gone is None:
                if self._reading:
                    await self._changed.wait()
                else:
                    await self._read()

        if not is_there():
            await self._runtime.within(max(timeout, LEAST), wait)

    async def _read(self) -> None:
        self._reading = True
        try:
            self._session.receive(await self._stream.receive_some(READ_SIZE))
        except OSError as error:
            self._session.lose(str(error))
        finally:
            self._reading = False
            self._wake()

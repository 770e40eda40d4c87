"""One connection to a node over a blocking socket, for programs with or without threads.

`ControlClient` sends any command of overlay/client.py and does not reconnect. `Client` and
`Subscription` are built on it, and so are the command line and the terminal UI for requests that
programs seldom make (the ring, the peers).

Several threads may use one client. The first waiting thread reads the socket and hands the frames
to the others: a reply to the thread that asked, deliveries to `deliveries`. So threads that wait
for deliveries and threads that make requests do not disturb each other. A program that takes no
deliveries holds its node back by its credit, and can still make requests
(canopy/client/session.py).

All errors are a `ControlError` (canopy/client/errors.py).
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

from canopy.client.control_socket import connection_error, find_socket
from canopy.client.errors import CommandTimeoutError, ControlError
from canopy.client.faces import run
from canopy.client.frames import OpaqueEvent, Sized
from canopy.client.link import Signal, pipelined
from canopy.client.node import ClientNode
from canopy.client.remote import is_access_file, open_remote
from canopy.client.seals import Sealer
from canopy.client.session import (
    GOODBYE,
    READ_SIZE,
    ControlSession,
    ResumableConnection,
    expected,
)
from canopy.wire.transport.room import ROOM
from overlay.client import CREDIT, Command, Delivery, Reply

R = TypeVar("R", bound=Reply)

LONGEST: Final = 86_400.0
"""The longest wait in seconds that is asked of the system, which takes no infinity, and less than a
month of `poll`. Whoever waits for longer asks again."""


class ControlClient(ResumableConnection):
    """A connection to one node. A context manager; `close` may be called from any thread."""

    def __init__(
        self, sock: socket.socket, where: str, credit: int = CREDIT, sealer: Sealer | None = None
    ) -> None:
        """`credit`: bytes of deliveries that may arrive before the program takes any, at most
        CREDIT; a smaller credit needs less memory, and more events are dropped. `sealer`: seals and
        opens payloads."""
        self.where = where
        self._session = ControlSession(where, credit, sealer)
        self.notices = self._session.notices
        """Received items that are not deliveries: `Dropped` (at its place: after the deliveries
        that were handed out, before the next ones), and notices of subscriptions with a gap."""
        self._sock = sock
        sock.setblocking(False)
        self._changed = threading.Condition()
        self._reading = False  # some thread waits in the socket
        self._writing = threading.Lock()

    @classmethod
    def connect(
        cls,
        where: str | Path | None = None,
        timeout: float = 5.0,
        credit: int = CREDIT,
        sealer: Sealer | None = None,
    ) -> ControlClient:
        """Connect to the node of a data folder (None: the default one), to a socket's path, or to
        the node on another machine that an access file names (canopy/client/remote.py).
        `timeout` in seconds; `credit` and `sealer` as for `ControlClient`.

        Raises UnreachableError, DeniedError or CommandTimeoutError.
        """
        path = find_socket(where)
        if is_access_file(path):
            try:
                return cls(open_remote(path, min(timeout, LONGEST)), str(path), credit, sealer)
            except OSError as error:
                raise connection_error(error, path) from None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(min(timeout, LONGEST))
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise connection_error(error, path) from None
        return cls(sock, str(path), credit, sealer)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's file descriptor, for select; -1 when closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """End the connection: the node ends this client's subscriptions. Waiting threads return."""
        with self._changed:
            if self._session.gone is None and self._session.position is not None:
                self._say_goodbye()
            self._session.lose("closed here")
            self._changed.notify_all()
            if not self._reading and self._sock.fileno() >= 0:
                self._sock.close()
                return
        with contextlib.suppress(OSError):  # another thread waits in the socket: it will close
            self._sock.shutdown(socket.SHUT_RDWR)

    def request(self, command: Command, timeout: float = 30.0) -> Reply:
        """Send `command` (its `request` number is chosen here) and wait for its reply.

        Raises CommandFailed when the node refuses, CommandTimeoutError when it does not answer
        within `timeout` seconds, UnreachableError when the connection ends.
        """
        until = time.monotonic() + timeout
        number = self.begin(command, timeout)
        return self._reply(number, until, timeout)

    def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """Send a command as `request`, and return its reply of the type `kind`; ControlError for
        another type."""
        return expected(self.request(command, timeout), kind, self.where)

    def deliveries(self, timeout: float | None = None) -> list[Delivery]:
        """Return all deliveries that have arrived. Waits for the first, at most `timeout` seconds.

        Deliveries that are returned count as consumed, so the node may send more. The list is empty
        if none arrived in time, or if a notice waits in `notices`. Raises UnreachableError when the
        node is gone and no delivery is left to return.
        """
        return self.take(math.inf if timeout is None else timeout)

    def gathered(self, timeout: float | None = None) -> list[OpaqueEvent]:
        """Return the events of a connection that gathers, each once, as `deliveries` does."""
        return self.take(math.inf if timeout is None else timeout)

    def take(self, timeout: float) -> list[Any]:
        """Return what has arrived, as `deliveries` or as `gathered`; inf: no limit."""
        self._wait(None if timeout == math.inf else time.monotonic() + timeout, None)
        with self._changed:
            found = self._session.take()
            if self._session.gone is None and self._session.arrivals.grant_due:
                self._send_grant()
        return found

    def _say_goodbye(self) -> None:
        """Ask the node to end the session at once, without waiting. If the socket is full, or
        another thread writes, the session ends after its time-out instead. The caller holds
        `_changed`."""
        if self._writing.acquire(blocking=False):
            with contextlib.suppress(OSError):
                self._sock.send(GOODBYE)
            self._writing.release()

    def _send_grant(self) -> None:
        """Send the grant that is due to the node, without waiting. While the socket is full or
        another thread writes, the grant stays due, and the next thread that reads sends it. The
        caller holds `_changed`."""
        if not self._writing.acquire(blocking=False):
            return
        grant, data = self._session.encode_grant()
        try:
            if self._sock.send(data) < len(data):
                self._session.lose("a grant could not be sent whole")
            self._session.arrivals.granted(grant)
        except BlockingIOError:
            pass
        except OSError as error:
            self._session.lose(str(error))
        finally:
            self._writing.release()

    def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float = 30.0, ahead: int = 1
    ) -> list[R]:
        """Send each command as `ask` does, and return the replies in order. Up to `ahead` commands
        may be unanswered at a time.

        The node stops reading from a client that has 1,024 unanswered requests, or 16 unanswered
        publications. `timeout` holds for each reply, from the moment at which this method begins to
        wait for it.
        """

        async def begin(command: Command) -> int:
            return self.begin(command, timeout)

        async def finish(number: int) -> R:
            return expected(self.finish(number, timeout), kind, self.where)

        return run(pipelined(commands, begin, finish, self.abandon, ahead))

    def begin(self, command: Command, timeout: float = 30.0) -> int:
        """Send a command without waiting for the reply. Returns the request's number, which must be
        passed to `finish` or `abandon`. When this raises an error, the node has not received the
        whole command and does not carry it out."""
        return self.begin_many((command,), timeout)[0]

    def begin_many(self, commands: Sequence[Command], timeout: float = 30.0) -> list[int]:
        """Call `begin` for each command, and send them together: one system call, and one turn of
        the node. When this raises an error, the node may carry out the first ones."""
        session = self._session
        with self._changed:
            numbers = [session.number() for _ in commands]
        try:
            frames = list(map(session.encode, commands, numbers))
            self._send(b"".join(frames), time.monotonic() + timeout)
        except ControlError:
            for number in numbers:
                self.abandon(number)
            raise
        return numbers

    def finish(self, number: int, timeout: float = 30.0) -> Reply:
        """Wait for the reply to the request `number` of `begin`. Raises as `request` does."""
        return self._reply(number, time.monotonic() + timeout, timeout)

    def is_answered(self, number: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the reply to a request of `begin`. Returns whether the
        reply is there, or cannot arrive since the connection has ended."""
        with self._changed:
            if self._session.is_answered(number):
                return True
        self._wait(time.monotonic() + timeout if timeout < math.inf else None, number)
        with self._changed:
            return self._session.is_answered(number) or self._session.gone is not None

    def abandon(self, number: int) -> None:
        """Stop waiting for the reply to the request `number`; the reply is ignored."""
        with self._changed:
            self._session.forget(number)

    def _reply(self, number: int, until: float, timeout: float) -> Reply:
        with self._changed:
            if self._session.is_answered(number):
                return self._session.answer(number, timeout)
        try:
            self._wait(until, number)
        except BaseException:
            self.abandon(number)
            raise
        with self._changed:
            return self._session.answer(number, timeout)

    def _send(self, frame: bytes, until: float) -> None:
        """Write one frame. While the socket is full, read arriving data, so that the two sides do
        not wait for each other for ever."""
        data = memoryview(frame)
        with self._writing:
            started = False
            while data:
                try:
                    data = data[self._sock.send(data) :]
                    started = True
                except BlockingIOError:
                    if not self._writable(until):
                        if started:  # half a frame is out: nothing sensible can follow it
                            self._end("a command could not be sent in time")
                        raise CommandTimeoutError(
                            f"the node at {self.where} takes no commands"
                        ) from None
                except OSError as error:
                    self._read_rest()  # it may have said why it closed
                    self._end(str(error))
                    raise self._session.unreachable() from None

    def _writable(self, until: float) -> bool:
        """Wait until the socket takes more. Returns False after the time `until`."""
        while (left := until - time.monotonic()) > 0:
            ready = self._poll(select.POLLIN | select.POLLOUT, min(left, 1.0))
            if ready & select.POLLOUT:
                return True
            if ready:
                self._read_rest()
        return False

    def _read_rest(self) -> None:
        """Read the available data, unless another thread is reading."""
        with self._changed:
            is_free = not self._reading
            self._reading = True
        if is_free:
            self._read(0.0)

    def _poll(self, events: int, timeout: float | None) -> int:
        """Wait until the socket is ready for one of `events`, and return the ready events; 0 after
        a time-out, or `LONGEST`. Uses poll because select limits the number of open files."""
        poll = select.poll()
        poll.register(self._sock, events)
        found = poll.poll(None if timeout is None else min(max(0.0, timeout), LONGEST) * 1000)
        return found[0][1] if found else 0

    def _wait(self, until: float | None, number: int | None) -> None:
        """Read, or let another thread read, until the reply `number` (None: a delivery) has
        arrived, the connection has ended, or the time `until` is reached."""
        tried = False
        while True:
            with self._changed:
                if self._is_there(number) or self._session.gone is not None:
                    return
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0 and tried:
                    return
                tried = True
                if self._reading:
                    self._changed.wait(None if left is None else min(left, LONGEST))
                    continue
                self._reading = True
            self._read(left)

    def _is_there(self, number: int | None) -> bool:
        if number is None:
            return bool(self._session.arrivals)
        return self._session.is_answered(number)

    def _read(self, timeout: float | None) -> None:
        """Wait for data, and hand out its frames. The caller has set `_reading`."""
        session = self._session
        frames: list[Sized] = []
        fault: str | None = None
        grant_due = select.POLLOUT if session.arrivals.grant_due else 0
        try:
            if self._poll(select.POLLIN | grant_due, timeout):
                room = ROOM.of(READ_SIZE)
                data = bytes(room[: self._sock.recv_into(room, READ_SIZE)])
                frames = session.decode(data)
                fault = session.fault if data else "it closed the connection"
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            fault = str(error)
        finally:
            with self._changed:
                self._reading = False
                session.accept(frames)
                if fault is not None:
                    session.lose(fault)
                if grant_due and session.gone is None:
                    self._send_grant()
                if session.gone is not None and self._sock.fileno() >= 0:
                    self._sock.close()
                self._changed.notify_all()

    def _end(self, reason: str) -> None:
        with self._changed:
            self._session.lose(reason)
            self._changed.notify_all()


class _Link(ResumableConnection):
    """Implements `canopy.client.link.Link` with a `ControlClient`. Its coroutines never suspend."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self.abandon, self.close = client.abandon, client.close
        self.notices = client.notices
        self._session = client._session

    async def request(self, command: Command, timeout: float) -> Reply:
        return self.client.request(command, timeout)

    async def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float, ahead: int
    ) -> list[R]:
        return self.client.ask_many(commands, kind, timeout, ahead)

    async def begin(self, command: Command, timeout: float = 30.0) -> int:
        return self.client.begin(command, timeout)

    async def is_answered(self, number: int, timeout: float) -> bool:
        return self.client.is_answered(number, timeout)

    async def finish(self, number: int, timeout: float) -> Reply:
        return self.client.finish(number, timeout)

    async def take(self, timeout: float) -> list[Any]:
        return self.client.take(timeout)


class _Lock:
    """A threading lock with the interface that the core awaits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()


class _Runtime:
    """Implements `canopy.client.link.Runtime` with threads."""

    def signal(self) -> Signal:
        return threading.Event()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return _Lock()

    async def pause(self, signal: Signal, seconds: float) -> bool:
        assert isinstance(signal, threading.Event)
        return signal.wait(min(seconds, threading.TIMEOUT_MAX))


def blocking_node(link: Callable[[int], ControlClient], reconnect: float = math.inf) -> ClientNode:
    """Return the node to which `link` opens a connection with a credit in bytes. `reconnect`: how
    long a lost node is looked for, in seconds."""

    async def connect(credit: int) -> _Link:
        return _Link(link(credit))

    return ClientNode(_Runtime(), connect, reconnect)

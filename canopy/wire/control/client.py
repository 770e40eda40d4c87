"""The program's side of the control socket: plain blocking sockets, no trio.

One `ControlClient` serves the command line, the terminal UI and users' programs. Several threads
may use one client: whoever waits first reads the socket and hands what it reads to the others
(a reply to the thread that asked, deliveries to `deliveries`), so one thread that waits for
deliveries and others that make requests never disturb each other. A program that asks for no
deliveries holds its node back by credits, and can make requests all the same
(canopy/wire/control/arrivals.py).

Everything that can go wrong is a `ControlError` (canopy/wire/control/locating.py).
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import msgspec

from canopy.wire.control.arrivals import Arrivals
from canopy.wire.control.locating import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    DeniedError,
    UnreachableError,
    explain,
    find_socket,
)
from canopy.wire.control.opaque import CLIENT_FRAMES, GatheredOpaque, OpaqueEvent, Sized
from canopy.wire.folder import default_folder
from canopy.wire.transport.framing import COMMAND_FRAMES, FrameReader
from overlay.client import CREDIT, Command, Delivered, Delivery, Dropped, Failed, Reply

__all__ = [
    "CommandFailed",
    "CommandTimeoutError",
    "ControlClient",
    "ControlError",
    "DeniedError",
    "UnreachableError",
]

READ_SIZE: Final = 256 * 1024
DELIVERIES: Final = (GatheredOpaque, Delivered, Dropped)
"""What has its place among deliveries."""

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class ControlClient:
    """A connection to one node. A context manager; `close` may be called from any thread."""

    def __init__(self, sock: socket.socket, where: str, credit: int = CREDIT) -> None:
        """`credit`: bytes of deliveries that may come before the program asks for them, at most
        CREDIT; with less there is less in memory, and more is told of."""
        self.where = where
        self._arrivals = Arrivals(min(credit, CREDIT))
        self.notices = self._arrivals.notices
        """News that are no deliveries: subscriptions that had a gap, deliveries that were dropped
        (`Dropped`, at its place: after the deliveries that were handed out, before those to come).
        """
        self._sock = sock
        sock.setblocking(False)
        self._reader = FrameReader(CLIENT_FRAMES)
        self._requests = 0
        self._replies: dict[int, Reply | None] = {}  # None: asked and not answered
        self._changed = threading.Condition()
        self._reading = False  # some thread waits in the socket
        self._writing = threading.Lock()
        self._gone: str | None = None

    @classmethod
    def connect(
        cls, where: str | Path | None = None, timeout: float = 5.0, credit: int = CREDIT
    ) -> ControlClient:
        """Connect to the node of a data folder (None: the default one) or to a socket's path.
        `credit` as for `ControlClient`.

        Raises UnreachableError, DeniedError or CommandTimeoutError.
        """
        path = find_socket(Path(where).expanduser() if where is not None else default_folder())
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise explain(error, path) from None
        return cls(sock, str(path), credit)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The socket, for select; -1 when closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """End the connection: the node ends this client's subscriptions. Waiting threads wake."""
        with self._changed:
            self._gone = self._gone or "closed here"
            self._changed.notify_all()
            if not self._reading and self._sock.fileno() >= 0:
                self._sock.close()
                return
        with contextlib.suppress(OSError):  # another thread waits in the socket: it will close
            self._sock.shutdown(socket.SHUT_RDWR)

    def request(self, command: Command, timeout: float = 30.0) -> Reply:
        """Send `command` (its `request` number is chosen here) and wait for its reply.

        Raises CommandFailed when the node refuses, CommandTimeoutError when it is silent,
        UnreachableError when it goes.
        """
        until = time.monotonic() + timeout
        number = self.begin(command, timeout)
        return self._reply(number, until, timeout)

    def ask(self, command: Command, kind: type[R], timeout: float = 30.0) -> R:
        """`request` for a reply of a known type; ControlError if another one comes."""
        return self._expected(self.request(command, timeout), kind)

    def deliveries(self, timeout: float | None = None) -> list[Delivery]:
        """All deliveries that have come; waits for the first, at most `timeout` seconds.

        What is handed out counts as consumed: the node may send more. An empty list says that none
        came in time, or that there is news in `notices`. Raises UnreachableError when the node is
        gone and nothing is left to hand out.
        """
        return self._hand_out(timeout, self._arrivals.take_delivered)

    def gathered(self, timeout: float | None = None) -> list[OpaqueEvent]:
        """As `deliveries`, for a client that gathers: the events that have come, each once. Waits
        for the first event or delivery."""
        return self._hand_out(timeout, self._arrivals.take_gathered)

    def _hand_out(self, timeout: float | None, take: Callable[[], tuple[list[T], bool]]) -> list[T]:
        self._wait(None if timeout is None else time.monotonic() + timeout, None)
        with self._changed:
            found, is_news = take()
            if self._gone is None:
                if self._arrivals.owes:
                    self._tell_consumed()
            elif not found and not is_news:
                raise UnreachableError(f"the node at {self.where} has gone: {self._gone}")
        return found

    def _tell_consumed(self) -> None:
        """Grant the node what it is owed, without waiting: while the socket is full, or another
        thread writes, it stays owed, and whoever reads next tries again. The caller has
        `_changed`."""
        if not self._writing.acquire(blocking=False):
            return
        grant = self._arrivals.grant()
        data = COMMAND_FRAMES.encode(grant)
        try:
            if self._sock.send(data) < len(data):
                self._gone = self._gone or "a grant could not be sent whole"
            self._arrivals.told(grant)
        except BlockingIOError:
            pass
        except OSError as error:
            self._gone = self._gone or str(error)
        finally:
            self._writing.release()

    def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float = 30.0, ahead: int = 1
    ) -> list[R]:
        """`ask` for each, in order, without waiting for each reply: `ahead` may be unanswered.

        The node reads no more of a client with 64 unanswered requests, or 16 publications.
        `timeout` is for each reply, from when it is waited for.
        """
        answers: list[R] = []
        asked: deque[int] = deque()
        try:
            for command in commands:
                if len(asked) >= ahead:
                    answers.append(self._answer(asked.popleft(), kind, timeout))
                asked.append(self.begin(command, timeout))
            while asked:
                answers.append(self._answer(asked.popleft(), kind, timeout))
        finally:
            with self._changed:
                for number in asked:
                    self._replies.pop(number, None)
        return answers

    def begin(self, command: Command, timeout: float = 30.0) -> int:
        """Send a command and do not wait: the number to `finish` it with, which must be done."""
        with self._changed:
            self._requests += 1
            number = self._requests
            self._replies[number] = None
        try:
            self._send(msgspec.structs.replace(command, request=number), time.monotonic() + timeout)
        except ControlError:
            with self._changed:
                self._replies.pop(number, None)
            raise
        return number

    def finish(self, number: int, timeout: float = 30.0) -> Reply:
        """Wait for the reply to what `begin` has sent. Raises as `request` does."""
        return self._reply(number, time.monotonic() + timeout, timeout)

    def _reply(self, number: int, until: float, timeout: float) -> Reply:
        try:
            self._wait(until, number)
        finally:
            with self._changed:
                reply = self._replies.pop(number, None)
        if reply is None:
            raise CommandTimeoutError(
                f"no answer from the node at {self.where} within {timeout:g} s"
            )
        if isinstance(reply, Failed):
            raise CommandFailed(reply.code, reply.reason)
        return reply

    def _answer(self, number: int, kind: type[R], timeout: float) -> R:
        return self._expected(self.finish(number, timeout), kind)

    def _expected(self, reply: Reply, kind: type[R]) -> R:
        if not isinstance(reply, kind):
            raise ControlError(
                f"the node at {self.where} answered {type(reply).__name__}, not {kind.__name__}"
            )
        return reply

    def _send(self, command: Command, until: float) -> None:
        """Write one command; while the socket is full, read what comes, so that neither side waits
        for the other for ever."""
        try:
            data = memoryview(COMMAND_FRAMES.encode(command))
        except (ValueError, OverflowError, TypeError, UnicodeEncodeError) as error:
            raise CommandFailed("usage", f"this command cannot be sent: {error}") from None
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
                    self._end(str(error))
                    raise UnreachableError(f"the node at {self.where} has gone: {error}") from None

    def _writable(self, until: float) -> bool:
        """Wait until the socket takes more; False at the end of the time."""
        while (left := until - time.monotonic()) > 0:
            ready = self._poll(select.POLLIN | select.POLLOUT, min(left, 1.0))
            if ready & select.POLLOUT:
                return True
            if ready:
                with self._changed:
                    free = not self._reading
                    self._reading = True
                if free:
                    self._read(0.0)
        return False

    def _poll(self, events: int, timeout: float | None) -> int:
        """What the socket is ready for, 0 at the end of the time (poll: no limit on the number
        of open files, which select has)."""
        poll = select.poll()
        poll.register(self._sock, events)
        found = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return found[0][1] if found else 0

    def _wait(self, until: float | None, number: int | None) -> None:
        """Read, or let another thread read, until the reply `number` (None: a delivery) is there,
        the node is gone, or the time is over. Raises UnreachableError only for a reply."""
        tried = False
        while True:
            with self._changed:
                if self._there(number):
                    return
                if self._gone is not None:
                    if number is None:
                        return
                    raise UnreachableError(f"the node at {self.where} has gone: {self._gone}")
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0 and tried:
                    return
                tried = True
                if self._reading:
                    self._changed.wait(left)
                    continue
                self._reading = True
            self._read(left)

    def _there(self, number: int | None) -> bool:
        if number is None:
            return bool(self._arrivals)
        return self._replies.get(number) is not None

    def _read(self, timeout: float | None) -> None:
        """Wait for bytes, and hand out the frames in them. The caller has set `_reading`."""
        frames: list[Sized] = []
        fault: str | None = None
        owes = select.POLLOUT if self._arrivals.owes else 0
        try:
            if self._poll(select.POLLIN | owes, timeout):
                data = self._sock.recv(READ_SIZE)
                frames = self._reader.feed(data)
                fault = self._reader.error if data else "it closed the connection"
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            fault = str(error)
        finally:
            with self._changed:
                self._reading = False
                for frame, size in frames:
                    self._take(frame, size)
                if fault is not None:
                    self._gone = self._gone or fault
                if owes and self._gone is None:
                    self._tell_consumed()
                if self._gone is not None and self._sock.fileno() >= 0:
                    self._sock.close()
                self._changed.notify_all()

    def _take(self, reply: Reply, size: int) -> None:
        if isinstance(reply, DELIVERIES):
            self._arrivals.add(reply, size)
        elif reply.request == 0 and isinstance(reply, Failed):
            self.notices.append(reply)
        elif reply.request in self._replies:  # else it came after its time-out
            self._replies[reply.request] = reply

    def _end(self, reason: str) -> None:
        with self._changed:
            self._gone = self._gone or reason
            self._changed.notify_all()

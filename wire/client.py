"""The program's side of the control socket: plain blocking sockets, no trio.

One `ControlClient` serves the command line, the terminal UI and users' programs. Several threads
may use one client: whoever waits first reads the socket and hands what it reads to the others
(a reply to the thread that asked, deliveries to `deliveries`), so one thread that waits for
deliveries and others that make requests never disturb each other.

Everything that can go wrong is a `ControlError` whose text says what, where and what to do; its
class says which exit code a command line gives (DESIGN.md, section 6).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import msgspec

from overlay.client import Command, Delivered, Delivery, Failed, Reply
from wire.folder import control_path, default_folder
from wire.framing import COMMAND_FRAMES, FrameReader
from wire.opaque import CLIENT_FRAMES, GatheredOpaque, OpaqueEvent

DELIVERIES_KEPT: Final = 200_000
"""Deliveries that wait in the client; beyond it the oldest are dropped and counted. Wild guess: a
program that never asks for deliveries must not grow for ever."""

READ_SIZE: Final = 256 * 1024

R = TypeVar("R", bound=Reply)


class ControlError(Exception):
    """The node could not be asked, or did not do what was asked."""


class UnreachableError(ControlError):
    """There is no such node, it does not run, or it went away (exit code 3)."""


class DeniedError(ControlError):
    """The node exists and this user may not talk to it (exit code 4)."""


class CommandTimeoutError(ControlError):
    """No answer in time; the command may still be carried out (exit code 5)."""


class CommandFailed(ControlError):  # noqa: N818 - the word of the reply
    """The node answered `Failed`. `code` is usage, selector, refused, time-out or unknown."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class ControlClient:
    """A connection to one node. A context manager; `close` may be called from any thread."""

    def __init__(self, sock: socket.socket, where: str) -> None:
        self.where = where
        self.dropped = 0
        """Deliveries that this client had to forget, see `DELIVERIES_KEPT`."""
        self.notices: deque[Failed] = deque(maxlen=100)
        """News that are no deliveries: the node tells that it dropped some of ours."""
        self._sock = sock
        sock.setblocking(False)
        self._reader = FrameReader(CLIENT_FRAMES)
        self._requests = 0
        self._replies: dict[int, Reply | None] = {}  # None: asked and not answered
        self._deliveries: deque[Delivery] = deque()
        self._gathered: deque[OpaqueEvent] = deque()
        self._changed = threading.Condition()
        self._reading = False  # some thread waits in the socket
        self._writing = threading.Lock()
        self._gone: str | None = None

    @classmethod
    def connect(cls, where: str | Path | None = None, timeout: float = 5.0) -> ControlClient:
        """Connect to the node of a data folder (None: the default one) or to a socket's path.

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
        return cls(sock, str(path))

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

        An empty list says that none came in time. Raises UnreachableError when the node is gone and
        nothing is left to hand out.
        """
        until = None if timeout is None else time.monotonic() + timeout
        self._wait(until, None)
        with self._changed:
            found = list(self._deliveries)
            self._deliveries.clear()
            if not found and self._gone is not None:
                raise UnreachableError(f"the node at {self.where} has gone: {self._gone}")
        return found

    def gathered(self, timeout: float | None = None) -> list[OpaqueEvent]:
        """As `deliveries`, for a client that gathers: the events that have come, each once. Waits
        for the first event or delivery."""
        until = None if timeout is None else time.monotonic() + timeout
        self._wait(until, None)
        with self._changed:
            found = list(self._gathered)
            self._gathered.clear()
            if not found and self._gone is not None:
                raise UnreachableError(f"the node at {self.where} has gone: {self._gone}")
        return found

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
            return bool(self._deliveries or self._gathered)
        return self._replies.get(number) is not None

    def _read(self, timeout: float | None) -> None:
        """Wait for bytes, and hand out the frames in them. The caller has set `_reading`."""
        frames: list[Reply] = []
        fault: str | None = None
        try:
            if self._poll(select.POLLIN, timeout):
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
                for frame in frames:
                    self._take(frame)
                if fault is not None:
                    self._gone = self._gone or fault
                if self._gone is not None and self._sock.fileno() >= 0:
                    self._sock.close()
                self._changed.notify_all()

    def _take(self, reply: Reply) -> None:
        if isinstance(reply, Delivered):
            self._deliveries.extend(reply.deliveries)
            while len(self._deliveries) > DELIVERIES_KEPT:
                self._deliveries.popleft()
                self.dropped += 1
        elif isinstance(reply, GatheredOpaque):
            self._gathered.extend(reply.events)
            while len(self._gathered) > DELIVERIES_KEPT:
                self._gathered.popleft()
                self.dropped += 1
        elif reply.request == 0 and isinstance(reply, Failed):
            self.notices.append(reply)
        elif reply.request in self._replies:  # else it came after its time-out
            self._replies[reply.request] = reply

    def _end(self, reason: str) -> None:
        with self._changed:
            self._gone = self._gone or reason
            self._changed.notify_all()


def find_socket(where: Path) -> Path:
    """The control socket of a data folder, or `where` itself if it is no folder.

    Raises UnreachableError or DeniedError, with what to do.
    """
    try:
        if not where.exists():
            raise UnreachableError(
                f"there is no node at {where}: no such folder or socket; "
                f"start one with `canopy node --data {where}`"
            )
        if not where.is_dir():
            return where
        path = control_path(where)
        if not os.access(where, os.X_OK):
            raise DeniedError(f"the data folder {where} belongs to another user")
        if not path.exists():
            raise UnreachableError(
                f"no node runs at {where}; start it with `canopy node --data {where}`"
            )
    except PermissionError:
        raise DeniedError(f"the data folder {where} belongs to another user") from None
    return path


def explain(error: OSError, path: Path) -> ControlError:
    """An error of connect as one that a person understands."""
    if isinstance(error, PermissionError):
        return DeniedError(f"not allowed to talk to the node at {path}: it belongs to another user")
    if isinstance(error, TimeoutError | BlockingIOError):
        return CommandTimeoutError(f"the node at {path} does not answer")
    if isinstance(error, ConnectionRefusedError):
        return UnreachableError(f"the node at {path} does not run any more")
    return UnreachableError(f"cannot reach the node at {path}: {error}")

"""Sends the node's trace records to a stream (`trace.stream`), from the files that it writes.

The files stay: records that the stream does not take, because it is away, full or not founded yet,
are sent later, even by a later process of the node. So nothing is lost, and the unsent bytes are
counted (`traces_unsent`).

An event's payload has some whole lines of one file; its attributes name the file and the byte at
which the lines begin. Lines that are sent twice, because the process was killed before it had noted
the first time, can therefore be recognised by the reader that puts the files together.

Rows of the payload type `TRACES` get no trace records themselves, at any node
(streams/services/read/row_facts.py): each would cause others without end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import trio

from canopy.traces.writer import TraceFile
from canopy.wire.driver import TrioDriver
from canopy.wire.folder import is_foreign
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError
from overlay.client import AppendEvents, Draft, EventsAppended, Failed, Reply
from streams.log.names import TRACES

# --- the folder and files of a node's trace records: this user's own, which it alone can read ---


def secure_traces(folder: Path) -> None:
    """Raise StartError if the trace folder exists and is not this user's own; remove other users'
    right to write into it."""
    try:
        if is_foreign(folder):
            raise StartError(
                f"the trace folder {folder} is a link, or another user's, who could lead it "
                "elsewhere: give this user's own folder itself (trace.dir)"
            )
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o022:
            folder.chmod(mode & ~0o022)
    except FileNotFoundError:
        return  # it is made with the first file
    except OSError as error:
        raise StartError(f"cannot use the trace folder {folder}: {error.strerror}") from None


def open_trace(path: str) -> TraceFile:
    """Open a trace file for appending, which only its owner can read, and make its folders. Writes
    are system calls without a buffer. Raises OSError, also if the folder of the day or of the node
    is a link or another user's."""
    folder = Path(path).parent
    for each in (*reversed(folder.parents), folder):  # makedirs has a mode for the last one only
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    for each in (folder.parent, folder):
        if is_foreign(each):
            raise PermissionError(errno.EPERM, "a link, or another user's", str(each))

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o600)

    return open(path, "ab", buffering=0, opener=private)  # TraceWriter buffers, and closes it


CLIENT: Final = 1 << 52
"""The client number of the trace shipper; those of the control socket stay far below."""

PERIOD: Final = 1.0
"""Seconds between two checks for new lines: twice `TRACE_FLUSH`."""

AGAIN: Final = 5.0
"""Seconds until the next attempt after a refusal."""

BLOCK: Final = 256 * 1024
"""The most bytes of one event: those of a stream's chunk."""

STATE: Final = "traces-sent"
"""The file of the data folder with the number of bytes of each trace file that were sent."""


class _RefusedError(Exception):
    """The stream did not take an event."""


class TraceShipping:
    """Appends a node's trace files to a stream."""

    def __init__(
        self, driver: TrioDriver, data: Path, root: Path, node: str, stream: str, log: Log
    ) -> None:
        """`data`: the data folder; `root`: the folder of traces; `stream`: the stream's name."""
        self._driver = driver
        self._state = data / STATE
        self._root = root
        self._node = node
        self._stream = stream
        self._log = log
        self._sent = self._read_state()
        self._request = 0
        self._reply: Reply | None = None
        self._answered = trio.Event()
        self._is_reported = False

    @property
    def unsent(self) -> int:
        """The bytes of the node's trace files that are not in the stream."""
        sizes = {name: path.stat().st_size for name, path in self._files()}
        return sum(max(0, size - self._sent.get(name, 0)) for name, size in sizes.items())

    def answered(self, reply: Reply) -> None:
        """Handle the node's reply to the pending append."""
        if reply.request == self._request:
            self._reply = reply
            self._answered.set()

    async def run(self) -> None:
        """Send new lines, until cancelled."""
        while True:
            await trio.sleep(PERIOD)
            try:
                await self._send_all()
                self._is_reported = False
            except (OSError, _RefusedError) as error:
                if not self._is_reported:
                    self._is_reported = True
                    self._log.warning("traces_unsent", stream=self._stream, reason=error)
                await trio.sleep(AGAIN)

    async def _send_all(self) -> None:
        """Send all whole lines. Raises OSError and _RefusedError."""
        files = self._files()
        self._sent = {name: self._sent[name] for name, _ in files if name in self._sent}
        for name, path in files:
            while lines := _lines(path, self._sent.get(name, 0)):
                await self._send(name, lines)
                self._sent[name] = self._sent.get(name, 0) + len(lines)
                self._write_state()

    async def _send(self, name: str, lines: bytes) -> None:
        at, count = self._sent.get(name, 0), lines.count(b"\n")
        self._request += 1
        self._reply, self._answered = None, trio.Event()
        draft = Draft({"node": self._node, "file": name, "at": at, "lines": count}, lines, TRACES)
        command = AppendEvents(self._request, self._stream, (draft,))
        self._driver.turn(self._driver.node.commands, CLIENT, (command,))
        await self._answered.wait()
        if isinstance(self._reply, Failed):
            raise _RefusedError(f"{self._reply.code}: {self._reply.reason}")
        assert isinstance(self._reply, EventsAppended)

    def _files(self) -> list[tuple[str, Path]]:
        """Return the node's own files with their names below the folder, the oldest first."""
        found = sorted(self._root.glob(f"date=*/node={quote(self._node, safe='')}/*.jsonl"))
        return [(path.relative_to(self._root).as_posix(), path) for path in found]

    def _read_state(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.MsgspecError):
            return {}  # all is sent again, and known by its place

    def _write_state(self) -> None:
        draft = self._state.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.json.encode(self._sent))
            os.replace(draft, self._state)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


def _lines(path: Path, at: int) -> bytes:
    """Return whole lines of a file from the byte `at` on: some `BLOCK` bytes, or one longer line;
    b"" if there are none."""
    with path.open("rb") as file:
        file.seek(at)
        data = file.read(BLOCK)
        end = data.rfind(b"\n") + 1
        if end or len(data) < BLOCK:
            return data[:end]
        rest = file.readline()
        return data + rest if rest.endswith(b"\n") else b""

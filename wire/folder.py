"""The data folder of a node: who it is, that only one process uses it, and what it must not forget.

- ``lock`` is held (flock) as long as the process lives; a second process is refused.
- ``node.json`` has the node's id, drawn once, and its incarnation, raised and made durable before
  the process says a word, so that no identity of an event is ever used twice (V7).
- ``state`` has the records that the node stored; format, torn tails and when a record is durable
  are told in overlay/records.py.
- ``address`` and ``control.sock`` say where the running node is.

The folder is private (0700). A Unix socket's path has room for 107 bytes; where the folder's path
is longer, the socket lies in a private folder under the temporary directory and the file
``control`` says where.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Final

from overlay.records import pack, recover

SOCKET_PATH_LIMIT: Final = 107  # sun_path of Linux is 108 bytes with the closing zero, unix(7)
STATE_LIMIT: Final = 256 * 1024 * 1024  # bytes of stored records; wild guess
NODE_ID: Final = re.compile(r"[0-9a-f]{16}")


class FolderError(Exception):
    """The data folder cannot be used; says why and what to do."""


def default_folder() -> Path:
    """``$XDG_DATA_HOME/canopy/default``, else ``~/.local/share/canopy/default``."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "canopy" / "default"


def control_path(folder: Path) -> Path:
    """Where the control socket of a data folder is (whether or not a node runs)."""
    pointer = folder / "control"
    try:
        return Path(pointer.read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        return folder / "control.sock"


def write_durably(path: Path, text: str) -> None:
    """Replace a small file so that after a crash either the old or the new one is there."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class DataFolder:
    """An opened data folder: locked for this process, with identity and stored records.

    `node` is 16 hex digits, `incarnation` counts the starts from 1, `restored` are the records of
    earlier starts in order, `cut` the bytes of a torn end that were thrown away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restored: list[bytes] = []
        self.cut = 0
        self._pending: list[bytes] = []
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderError(f"cannot use the data folder {path}: {error.strerror}") from None
        try:
            self._take_lock()
            self.node, self.incarnation = self._identify()
            self._state = self._restore()
        except OSError as error:
            os.close(self._lock)
            raise FolderError(f"cannot use the data folder {path}: {error}") from None
        except FolderError:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            raise FolderError(
                f"the data folder {self.path} is used by another node"
                f"{f' (process {owner})' if owner else ''}; stop it, or give this one "
                f"another folder with --data"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _identify(self) -> tuple[str, int]:
        path = self.path / "node.json"
        node, incarnation = secrets.token_hex(8), 0
        if path.exists():
            try:
                known = json.loads(path.read_text())
                node, incarnation = known["node"], known["incarnation"]
                if not NODE_ID.fullmatch(node) or type(incarnation) is not int or incarnation < 1:
                    raise ValueError("the id or the incarnation is none")
            except (ValueError, KeyError, TypeError) as error:
                raise FolderError(
                    f"{path} does not hold a node's identity ({error}); "
                    f"move the folder away to begin as a new node"
                ) from None
        incarnation += 1
        write_durably(path, json.dumps({"node": node, "incarnation": incarnation}) + "\n")
        return node, incarnation

    def _restore(self) -> int:
        state = os.open(self.path / "state", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(state).st_size
        if size > STATE_LIMIT:
            os.close(state)
            raise FolderError(f"{self.path / 'state'} is larger than {STATE_LIMIT} bytes")
        data = os.pread(state, size, 0)
        self.restored, self._end = recover(data)
        self.cut = size - self._end
        if self.cut:
            os.ftruncate(state, self._end)
        return state

    def store(self, record: bytes) -> None:
        """Remember a record; durable after `sync`. FolderError when the bound is reached,
        ValueError for an empty record."""
        packed = pack(record)
        self._end += len(packed)
        if self._end > STATE_LIMIT:
            raise FolderError(f"{self.path / 'state'} would exceed {STATE_LIMIT} bytes")
        self._pending.append(packed)

    def sync(self) -> None:
        """Make everything that was stored durable. Cheap when nothing was.

        An OSError here is fatal for the caller: what may have been promised is not on disk.
        """
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        at = self._end - len(data)
        while data:
            written = os.pwrite(self._state, data, at)
            data, at = data[written:], at + written
        os.fdatasync(self._state)

    def say_address(self, address: str) -> None:
        """Leave the address where other programs find it: the file ``address``."""
        write_durably(self.path / "address", address + "\n")

    def place_socket(self) -> Path:
        """Where the control socket is to be made; nothing is there any more."""
        self._remove_socket()  # of a process that was killed
        path = self.path.absolute() / "control.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            path = Path(tempfile.mkdtemp(prefix="canopy-")) / "control.sock"
            write_durably(self.path / "control", f"{path}\n")
        return path

    def _remove_socket(self) -> None:
        path = control_path(self.path)
        path.unlink(missing_ok=True)
        if path.parent != self.path.absolute() and path.parent.name.startswith("canopy-"):
            (self.path / "control").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody put something there: leave it
                path.parent.rmdir()

    def close(self) -> None:
        """Remove what says that the node runs, and give the folder free."""
        self._remove_socket()
        (self.path / "address").unlink(missing_ok=True)
        os.close(self._state)
        os.close(self._lock)

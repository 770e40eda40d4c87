"""The data folder of a node: its lock, its identity, and its stored records.

- ``lock`` is locked (flock) as long as the process lives; a second process is refused.
- ``node.json`` has the node's id, drawn once, and its incarnation, which is raised and made durable
  before the process sends anything, so that no event id is ever used twice (V7).
- ``state`` has the records that the node stored; overlay/records.py describes format, torn tails,
  damage, and when a record is durable. A damaged file is kept as ``state.damaged``, and the node
  starts under another id, since it may have lost votes and registrations that others rely on.
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

from canopy.wire.constants import SOCKET_PATH_LIMIT, STATE_LIMIT
from overlay.records import Recovered, pack, recover

NODE_ID: Final = re.compile(r"[0-9a-f]{16}")


class FolderError(Exception):
    """The data folder cannot be used; the message says why and what to do."""


def default_folder() -> Path:
    """The default data folder: ``$XDG_DATA_HOME/canopy/default``, else
    ``~/.local/share/canopy/default``."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "canopy" / "default"


def control_path(folder: Path) -> Path:
    """The path of a data folder's control socket, whether or not a node runs."""
    pointer = folder / "control"
    try:
        return Path(pointer.read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        return folder / "control.sock"


def write_durably(path: Path, content: str | bytes) -> None:
    """Replace a file atomically and durably: after a crash either the old or the new one is
    there."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
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
    earlier starts in order, `cut` the bytes of a torn tail that were removed, `lost` the id that
    was given up because its state is damaged, else "". Raises FolderError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restored: list[bytes] = []
        self.cut = 0
        self.lost = ""
        self._pending: list[bytes] = []
        self._anew = False  # the pending records replace the whole file
        self._number = 0  # of the next block
        self._size = 0  # bytes of the file that are durable
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
                    raise ValueError("no valid id and incarnation")
            except (ValueError, KeyError, TypeError) as error:
                raise FolderError(
                    f"{path} does not contain a node's identity ({error}); "
                    f"move the folder away to start as a new node"
                ) from None
        incarnation += 1
        write_durably(path, json.dumps({"node": node, "incarnation": incarnation}) + "\n")
        return node, incarnation

    def _restore(self) -> int:
        """Read the state file, or make it. Returns its open descriptor."""
        path = self.path / "state"
        data = path.read_bytes() if path.exists() else b""
        if len(data) > STATE_LIMIT:
            raise FolderError(f"{path} is larger than {STATE_LIMIT} bytes")
        found = recover(data)
        if found.damaged:
            if self.incarnation > 1:
                self._begin_anew(path)
            found = Recovered([], 0, 0, False)
            self._anew = True
        self.restored, self._size, self._number = found.records, found.end, found.number
        self.cut = 0 if self._anew else len(data) - found.end
        state = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.cut:
            os.ftruncate(state, found.end)
        return self._replace(state, pack(0, ())) if self._anew else state

    def _begin_anew(self, path: Path) -> None:
        """Keep the damaged state aside and take another id."""
        if path.exists():
            path.replace(path.with_name("state.damaged"))
        (self.path / "node.json").unlink()
        self.lost = self.node
        self.node, self.incarnation = self._identify()

    def store(self, *records: bytes, anew: bool = False) -> None:
        """Append records, which are durable after `sync`; with `anew` they replace all stored ones.

        Raises FolderError if the file would exceed `STATE_LIMIT`.
        """
        if anew:
            self._pending.clear()
            self._anew = True
        self._pending += records
        before = 0 if self._anew else self._size
        if before + sum(map(len, self._pending)) > STATE_LIMIT:
            raise FolderError(f"{self.path / 'state'} would exceed {STATE_LIMIT} bytes")

    def sync(self) -> None:
        """Make everything that was stored durable; returns at once if nothing was.

        An OSError is fatal for the caller: frames that depend on these records must not leave.
        """
        if not self._pending and not self._anew:
            return
        records, self._pending = self._pending, []
        if self._anew:
            self._state = self._replace(self._state, pack(0, records))
            return
        data, at = pack(self._number, records), self._size
        self._number += 1
        self._size += len(data)
        while data:
            written = os.pwrite(self._state, data, at)
            data, at = data[written:], at + written
        os.fdatasync(self._state)

    def _replace(self, state: int, block: bytes) -> int:
        """Replace the file that is open as `state`. Returns the new one's descriptor."""
        os.close(state)
        write_durably(self.path / "state", block)
        self._anew, self._number, self._size = False, 1, len(block)
        return os.open(self.path / "state", os.O_RDWR | os.O_CLOEXEC)

    def publish_address(self, address: str) -> None:
        """Write the file ``address``, where other programs find it."""
        write_durably(self.path / "address", address + "\n")

    def prepare_socket(self) -> Path:
        """Where to bind the control socket; removes the one of a process that was killed."""
        self._remove_socket()
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
            with contextlib.suppress(OSError):  # not empty: leave it
                path.parent.rmdir()

    def close(self) -> None:
        """Remove the socket and the address, and unlock the folder."""
        self._remove_socket()
        (self.path / "address").unlink(missing_ok=True)
        os.close(self._state)
        os.close(self._lock)

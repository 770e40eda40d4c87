"""The data folder of a node: its lock, its identity, and its stored records.

- ``lock`` is locked (flock) as long as the process lives; a second process is refused, and so is
  one with a copy of the folder on the same machine (canopy/wire/folder.py).
- ``node.json`` has the node's id, drawn once, and its incarnation, which is raised and made durable
  before the process sends anything, so that no event id is ever used twice (V7). It is at least the
  number of seconds since the node was founded: a start from an older copy of the folder, or of the
  whole disk, has a higher one than all starts since the copy.
- ``keys/started`` has the id of the certificate with which the node has started: without the files
  of that start, the id is not used again.
- ``state`` has the records that the node stored (canopy/wire/state_file.py). A
  damaged file is kept as ``state.damaged``, and the node starts under another id, since it may have
  lost votes and registrations that others rely on; so it does if the file is missing. Where
  ``node.json`` is missing, or the two are not of one node, the start is refused.
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
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from canopy.wire.constants import SOCKET_PATH_LIMIT, START_ROOM
from canopy.wire.durable import CopiedFolderError, FolderError, refused, require_room, write_durably
from canopy.wire.state_file import NodeIdentity, StateCommits, StateFile, StoredState, read_state
from overlay.phrases import as_argument

# One process per node id on a machine: a copied data folder has the same id in another folder.
#
# The folder's own lock does not see that. So each process also locks a file named after its node's
# id, in a private folder (0700) under the temporary directory; it says which process has it and
# with which data folder. Where that folder cannot be used nothing is checked here: the links notice
# two processes of one id wherever they run (overlay/links/handshake.py), but only when peers have
# heard both.

OWNER_LIMIT: Final = 4_096
"""The most bytes of a lock file that are read: a process id and a path."""


class IdLock:
    """The lock on a node's id, held until `close`. Raises CopiedFolderError if another process has
    it."""

    def __init__(self, node: str, folder: Path) -> None:
        self._file = -1
        self._path = Path(tempfile.gettempdir()) / f"canopy-ids-{os.getuid()}" / node
        try:
            self._open(node, folder)
        except OSError:
            self.close()

    def _open(self, node: str, folder: Path) -> None:
        home = self._path.parent
        home.mkdir(mode=0o700, exist_ok=True)
        found = home.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return  # another process's
        while True:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(self._file, OWNER_LIMIT, 0).decode(errors="replace")
                os.close(self._file)
                self._file = -1
                raise CopiedFolderError(id_in_use(node, folder, owner)) from None
            if os.fstat(self._file).st_nlink:
                break
            os.close(self._file)  # its owner removed it while this process waited for it
        with contextlib.suppress(OSError):  # a full disk: who has it is not said
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n{folder.absolute()}".encode(), 0)

    @property
    def is_held(self) -> bool:
        """Whether it is certain that no other process of this user on this machine has the id."""
        return self._file >= 0

    def close(self) -> None:
        """Release the lock on the id."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def id_in_use(node: str, folder: Path, owner: str) -> str:
    """Return why a process may not start with this id, and what to do. `owner`: the lock file's
    text."""
    process, _, other = owner.partition("\n")
    return (
        f"the node {node} runs on this machine already, with the data folder {other or 'unknown'} "
        f"(process {process or 'unknown'}), and {folder} is a copy of it: delete node.json and "
        f"state in the copy, and it starts as a new node; or stop the other process"
    )


NODE_ID: Final = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16})?")


def default_folder() -> Path:
    """Return the default data folder: ``$XDG_DATA_HOME/canopy/default``, else
    ``~/.local/share/canopy/default``."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "canopy" / "default"


def control_path(folder: Path) -> Path:
    """Return the path of a data folder's control socket, whether or not a node runs."""
    pointer = folder / "control"
    try:
        return Path(pointer.read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        return folder / "control.sock"


def read_identity(path: Path) -> NodeIdentity:
    """Return the identity in ``node.json``. Raises FolderError if it is invalid, and OSError."""
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
    return NodeIdentity(node, incarnation)


def founding_time(path: Path, now: int) -> int:
    """Return when the node of ``node.json`` first started, in seconds since 1970; `now` if the file
    does not have it."""
    founded = json.loads(path.read_text()).get("founded")
    return founded if type(founded) is int else now


def is_foreign(path: Path) -> bool:
    """Return whether an existing file or folder is a link, or another user's: writing into it would
    go to a place that others chose. Raises OSError."""
    found = path.lstat()
    return stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid()


class DataFolder:
    """An opened data folder: locked for this process, with identity and stored records.

    `node` is the id in the node's certificate (32 hex digits, the argument `node`), or 16 random
    hex digits without one. `incarnation` is 1 at the first start, and later the greater of the
    seconds since then and the last one's successor; `restored` are the records of earlier starts in
    order; `cut`: bytes of a torn tail that were removed; `lost`: the id that was given up because
    its state is damaged or missing, else ""; `kept`: the new name of a damaged state, else "".
    Raises FolderError.
    """

    def __init__(self, path: Path, node: str = "") -> None:
        self.path = path
        self._wanted = node
        self.restored: list[bytes] = []
        self.cut = 0
        self.lost = ""
        self.kept = ""
        self._id_lock: IdLock | None = None
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if is_foreign(path):
                raise FolderError(
                    f"the data folder {path} is a link, or another user's: who owns it could put "
                    "another one in its place; give the folder itself with --data"
                )
            if path.stat().st_mode & 0o077:  # made by hand: others could read it
                path.chmod(0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderError(f"cannot use the data folder {path}: {refused(error)}") from None
        try:
            self._take_lock()
            self.state = StateCommits(self._open_state())
            """The file of the node's records."""
        except OSError as error:
            self._unlock()
            raise FolderError(f"cannot use the data folder {path}: {refused(error)}") from None
        except FolderError:
            self._unlock()
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

    def _lock_id(self, node: str) -> None:
        if self._id_lock is not None:
            self._id_lock.close()
        self._id_lock = IdLock(node, self.path)

    def _unlock(self) -> None:
        if self._id_lock is not None:
            self._id_lock.close()
        os.close(self._lock)

    def _identify(self, stored: StoredState) -> tuple[str, int]:
        """Return the node's id, and its incarnation, after raising it durably."""
        path, started = self.path / "node.json", self.path / "keys" / "started"
        node, incarnation = self._wanted or secrets.token_hex(8), 0
        now = founded = int(time.time())
        if path.exists():
            node, incarnation = read_identity(path)
            if self._wanted not in ("", node):
                raise FolderError(
                    f"{self.path} has the state of the node {node}, and its certificate is that of "
                    f"{self._wanted}: move node.json and state away to start as that one"
                )
            self._compare(NodeIdentity(node, incarnation), stored.owner)
            founded = founding_time(path, now)
        elif stored.size:
            whose = f" of the node {stored.owner.node}" if stored.owner else ""
            raise FolderError(
                f"{self.path} has the state{whose} and no node.json, which says whose it is: put "
                f"node.json back, or move the file state away to start as a new node"
            )
        elif started.exists() and started.read_text().strip() == self._wanted:
            raise FolderError(
                f"{self.path} has no node.json and no state, and the node {node} has started "
                f"before: its votes and subscriptions are lost, so that it has to take another id: "
                f"canopy keys renew --new-id --data {as_argument(self.path)}"
            )
        self._lock_id(node)
        if self._wanted and started.parent.is_dir():
            write_durably(started, self._wanted + "\n")
        incarnation = max(incarnation + 1, 1 + now - founded)
        content = {"node": node, "incarnation": incarnation, "founded": founded}
        write_durably(path, json.dumps(content) + "\n")
        return node, incarnation

    def _compare(self, known: NodeIdentity, owner: NodeIdentity | None) -> None:
        """Raise FolderError unless ``node.json`` and ``state`` are of one node and one time."""
        if owner is not None and owner.node != known.node:
            raise FolderError(
                f"{self.path}/node.json is of the node {known.node}, and the file state beside it "
                f"of {owner.node}: restore both from one folder, or move both away to start as a "
                f"new node"
            )
        if owner is not None and owner.incarnation > known.incarnation:
            raise FolderError(
                f"{self.path}/node.json is older than the file state beside it (start "
                f"{known.incarnation} and {owner.incarnation}), and a node never counts a start "
                f"twice: restore the newer node.json, or move both away to start as a new node"
            )

    def _open_state(self) -> StateFile:
        """Read the identity and the records, or begin as a new node."""
        path = self.path / "state"
        stored = read_state(path)
        require_room(self.path, START_ROOM)
        self.node, self.incarnation = self._identify(stored)
        if stored.found.damaged and self.incarnation > 1:
            self._begin_again(path)
        elif not stored.found.damaged:
            self.restored = stored.records
            self.cut = stored.size - stored.found.end
        return StateFile(path, NodeIdentity(self.node, self.incarnation), stored)

    def _begin_again(self, path: Path) -> None:
        """Rename the damaged state and take another id. Raises FolderError if the id comes from a
        certificate."""
        if self._wanted:
            raise FolderError(
                f"{path} is damaged or missing, so that this node has to take another id, which "
                f"its issuer has to sign: canopy keys renew --new-id "
                f"--data {as_argument(self.path)}"
            )
        if path.exists():
            self.kept = "state.damaged"
            path.replace(path.with_name(self.kept))
        (self.path / "node.json").unlink()
        self.lost = self.node
        self.node, self.incarnation = self._identify(read_state(path))

    def check(self) -> None:
        """Raise DiskError if the folder's files were deleted or replaced, or a write has failed."""
        self.state.check()

    def publish_address(self, address: str) -> None:
        """Write the file ``address``, where other programs find it. Raises FolderError."""
        self._write("address", address + "\n")

    def _write(self, name: str, content: str) -> None:
        try:
            write_durably(self.path / name, content)
        except OSError as error:
            raise FolderError(f"cannot write {self.path / name}: {refused(error)}") from None

    def prepare_socket(self) -> Path:
        """Return the path at which to bind the control socket; remove a socket that a killed
        process left. Raises FolderError."""
        self._remove_socket()
        path = self.path.absolute() / "control.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            path = Path(tempfile.mkdtemp(prefix="canopy-")) / "control.sock"
            self._write("control", f"{path}\n")
        return path

    def _remove_socket(self) -> None:
        path = control_path(self.path)
        path.unlink(missing_ok=True)
        if path.parent != self.path.absolute() and path.parent.name.startswith("canopy-"):
            (self.path / "control").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: leave it
                path.parent.rmdir()

    @property
    def holds_id(self) -> bool:
        """Whether it is certain that no other process on this machine has the node's id."""
        return self._id_lock is not None and self._id_lock.is_held

    def close(self) -> None:
        """Remove the socket and the address, if they exist, and unlock the folder."""
        with contextlib.suppress(OSError):
            self._remove_socket()
            (self.path / "address").unlink(missing_ok=True)
        self.state.close()
        self._unlock()

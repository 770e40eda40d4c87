"""A node on another machine: the control socket over TCP with TLS, for programs with a token.

`canopy access add` at the node writes an *access file*: where the node listens, its id, and a
secret. The id follows from the node's key (BLAKE2b-128(key || generation)), so that a program needs
no root and no authority: it computes the id of the other end from the certificate that it presents
and whose key TLS has proven, and shows the secret to no other node. Renewed certificates and other
roots change nothing.

The library uses a pair of local sockets, and a daemon thread copies bytes between the pair and TLS,
so that all three faces (blocking, trio, asyncio) work unchanged.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import ssl
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from canopy.client.errors import ControlError, DeniedError, UnreachableError
from overlay.phrases import readable_by_others

FILE_MOST: Final = 64 * 1024
"""The largest access file, in bytes."""

CHUNK: Final = 64 * 1024
"""Bytes of one read. While more than this waits for one side, the other side is not read."""

LAST: Final = 2.0
"""Seconds to pass on the last bytes of one side after its end."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AccessFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address and credentials with which a program uses a node on another machine."""

    version: Literal[1]
    address: Text
    """HOST:PORT, where the node listens for programs (`clients.listen`)."""
    node: Text
    """The node's id."""
    secret: Text

    def __repr__(self) -> str:
        return f"AccessFile({self.address!r}, {self.node!r})"


def is_access_file(path: Path) -> bool:
    """Return whether the path is a regular file, and so an access file."""
    return path.is_file()


def read_access(path: Path) -> AccessFile:
    """Read the access file at `path`. Raises DeniedError if others can read it too, and
    ControlError if it is invalid."""
    try:
        found = path.stat()
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise DeniedError(readable_by_others(path))
        if found.st_size > FILE_MOST:
            raise ControlError(f"{path} is no access file: it has more than {FILE_MOST} bytes")
        return msgspec.json.decode(path.read_bytes(), type=AccessFile)
    except PermissionError:
        raise DeniedError(f"{path} belongs to another user") from None
    except OSError as error:
        raise ControlError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ControlError(
            f"{path} is no access file; `canopy access add NAME` at the node makes one"
        ) from None


def write_access(path: Path, access: AccessFile) -> None:
    """Write a new access file that only its owner can read. Raises OSError, also if the file
    exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as out:
        out.write(msgspec.json.format(msgspec.json.encode(access), indent=2) + b"\n")


def open_remote(path: Path, timeout: float) -> socket.socket:
    """Connect to the node of the access file `path`. Returns a connected local socket that stands
    for the node's. `timeout`: seconds for connection and handshake.

    Raises OSError as connecting does, DeniedError if another node answers, and as `read_access`.
    """
    access = read_access(path)
    host, _, port = access.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ControlError(f"{path}: {access.address!r} is no address HOST:PORT")
    plain = socket.create_connection((host.strip("[]"), int(port)), timeout)
    try:
        secured = _context().wrap_socket(plain, suppress_ragged_eofs=True)
    except (ssl.SSLError, ConnectionError) as error:
        plain.close()
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(
            f"what listens at {access.address} is no node that takes programs: {reason}"
        ) from None
    except BaseException:
        plain.close()
        raise
    try:
        _check_node(secured, access)
        secured.sendall(access.secret.encode())
    except BaseException:
        secured.close()
        raise
    ours, theirs = socket.socketpair()
    relay = _Relay(theirs, secured)
    relay.start()
    return ours


def _context() -> ssl.SSLContext:
    """Return a context of TLS 1.3 that accepts any certificate; `_check_node` checks its id."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _check_node(secured: ssl.SSLSocket, access: AccessFile) -> None:
    """Raise DeniedError unless the other end has the key of the access file's node."""
    from canopy.wire.keys.certificates import CertificateError, read_der

    try:
        found = read_der(secured.getpeercert(True) or b"").principal.id
    except CertificateError as error:
        raise DeniedError(f"who answers at {access.address} is no node: {error}") from None
    if found != access.node:
        raise DeniedError(
            f"at {access.address} answers the node {found}, and the access file is for "
            f"{access.node}: the token was not shown to it. If the node has become another one, "
            f"make a new file there with `canopy access add`"
        )


class _Relay(threading.Thread):
    """Copies bytes between a local socket and TLS until either ends. Only this thread uses the two
    sockets. In each direction at most `CHUNK` bytes and one read wait. At the end of the process it
    delays the exit only until the written bytes have been sent."""

    def __init__(self, local: socket.socket, secured: ssl.SSLSocket) -> None:
        super().__init__(name="canopy-tls", daemon=True)
        atexit.register(self._finish)
        self._local = local
        self._secured = secured
        self._out = bytearray()  # to the node
        self._in = bytearray()  # to the program

    def run(self) -> None:
        """Copy bytes until one side has ended, pass on its last bytes for at most `LAST` seconds,
        and close both."""
        local, secured = self._local, self._secured
        local.setblocking(False)
        secured.setblocking(False)
        try:
            poll = select.poll()
            while self._from_program() and self._from_node():
                poll.register(local, _wanted(self._out, self._in))
                poll.register(secured, _wanted(self._in, self._out))
                if any(what & (select.POLLHUP | select.POLLERR) for _, what in poll.poll()):
                    self._from_program()
                    self._from_node()
                    break
            for side, rest in ((local, self._in), (secured, self._out)):
                side.settimeout(LAST)
                with suppress(OSError):
                    side.sendall(rest)
        except OSError:  # broken: the library hears of its end
            pass
        finally:
            atexit.unregister(self._finish)
            for side in (local, secured):
                with suppress(OSError):
                    side.close()

    def _finish(self) -> None:
        """Stop reading from the program at the end of the process, and wait for the thread."""
        with suppress(OSError):
            self._local.shutdown(socket.SHUT_RD)
        self.join(LAST)

    def _from_program(self) -> bool:
        """Copy available bytes to the node. Returns False at the end of the program's side."""
        lasts = True
        if len(self._out) < CHUNK:
            with suppress(BlockingIOError):
                data = self._local.recv(CHUNK)
                self._out += data
                lasts = bool(data)
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self._out:  # after one that was cut short, TLS wants the same bytes again
                sent = self._secured.send(bytes(self._out[:CHUNK]))
                del self._out[:sent]
        return lasts

    def _from_node(self) -> bool:
        """Copy available bytes to the program. Returns False at the end of the node's side."""
        lasts = True
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while lasts and len(self._in) < CHUNK:
                data = self._secured.recv(CHUNK)
                self._in += data
                lasts = bool(data)
        if self._in:
            with suppress(BlockingIOError):
                del self._in[: self._local.send(self._in)]
        return lasts


def _wanted(read: bytearray, waiting: bytearray) -> int:
    """Return the poll events of a socket: readable while `read` (bytes received from it) has room,
    writable while `waiting` (bytes to send to it) is not empty."""
    can_read = select.POLLIN if len(read) < CHUNK else 0
    return can_read | (select.POLLOUT if waiting else 0)

"""The user of the program at the other end of a connection within this machine.

Nodes without keys trust their peers, and every user of the machine can reach their ports on
loopback. The kernel knows the user of a socket (Linux: sock_diag(7), and /proc/net/tcp if there is
no such netlink family). So such a node serves only its own user and root, as its control socket
does. Other systems do not tell the user of a TCP socket.

A socket that its program has closed has no owner, and kernels show it as root's: a program that
connects, writes and leaves must not pass for root. So only sockets with an owner count.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Collection
from contextlib import closing
from typing import Final, NamedTuple

import trio

from canopy.wire.addresses import is_loopback

Address = tuple[str, int]

_SOCK_DIAG: Final = 4  # the netlink family
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")  # of a netlink message: length, type, flags, number, port
_ASKED: Final = struct.Struct("=BBBBI")  # inet_diag_req_v2 up to the socket's id
_PORTS: Final = struct.Struct(">HH")
_REST: Final = struct.Struct("=III")  # interface and cookie: any
_FOUND: Final = struct.Struct("=BBBB48xIIIII")  # inet_diag_msg
_ANY: Final = 0xFFFFFFFF
_TIMEOUT: Final = 1.0


class SocketOwner(NamedTuple):
    """A socket, as the kernel shows it. `inode` 0: no program owns it, or none any longer."""

    user: int
    inode: int


class LocalUsers:
    """Decides which connections within this machine are served."""

    def __init__(self, allowed: Collection[int] | None = None) -> None:
        """`allowed`: user ids; by default this process's, and root's."""
        self._allowed = (os.getuid(), 0) if allowed is None else tuple(allowed)

    def refusal(self, stream: trio.socket.SocketType, is_server: bool) -> str:
        """Return why the other end of this connection is not served; "" if it is. `is_server`: the
        other end has dialled."""
        here, there = stream.getsockname()[:2], stream.getpeername()[:2]
        if sys.platform != "linux" or not is_loopback(there[0]):
            return ""
        # A connection that was dialled may not have been accepted yet, so that nobody has it: there
        # it is asked who listens.
        found = owner_of(stream.family, there, here if is_server else ("", 0))
        if found is None or not found.inode:
            return "it is not known whose program it is"
        if found.user not in self._allowed:
            return f"it is a program of another user, {found.user}, and nodes here have no keys"
        return ""


def owner_of(family: int, local: Address, remote: Address) -> SocketOwner | None:
    """Return the TCP socket between these two addresses of this machine, the first its own; with
    the remote address ("", 0) the listening socket. None if there is none."""
    try:
        return _ask(family, local, remote)
    except OSError:
        return _read(family, local, remote)


def _ask(family: int, local: Address, remote: Address) -> SocketOwner | None:
    """Find the socket by netlink, in some 25 µs. Raises OSError, also if nothing is found."""
    packed = [
        socket.inet_pton(family, host).ljust(16, b"\0") if host else bytes(16)
        for host in (local[0], remote[0])
    ]
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY)
    body += _PORTS.pack(local[1], remote[1]) + b"".join(packed) + _REST.pack(0, _ANY, _ANY)
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with closing(socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG)) as asked:
        asked.settimeout(_TIMEOUT)
        asked.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        answer = asked.recv(8_192)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        raise OSError("no such socket")
    *_, user, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return SocketOwner(user, inode)


def _read(family: int, local: Address, remote: Address) -> SocketOwner | None:
    """Find the socket in the kernel's table of all sockets."""
    name = "/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp"
    own, any_ = _written(family, local), _written(family, ("", local[1]))
    other = _written(family, remote)
    try:
        with open(name, encoding="ascii") as lines:
            for line in lines:
                found = line.split()
                if len(found) < 10 or found[2] != other:
                    continue
                if found[1] == own or (not remote[1] and found[1] == any_):
                    return SocketOwner(int(found[7]), int(found[9]))
    except OSError:
        pass
    return None


def _written(family: int, address: Address) -> str:
    """Return an address as it is in that table: words of 32 bits in the machine's order."""
    size = 16 if family == socket.AF_INET6 else 4
    packed = socket.inet_pton(family, address[0]) if address[0] else bytes(size)
    words = struct.unpack(f"={size // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"

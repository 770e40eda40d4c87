"""The TCP port of a node, the limit of open files of its process, and its multicast DNS."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

import trio

from canopy.wire.addresses import join_address, split_address
from canopy.wire.config import NodeConfig
from canopy.wire.directory.local_network import LocalNetwork
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log
from overlay.machine import Peer
from overlay.rights import Role


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


async def listen(config: NodeConfig, node: str) -> tuple[list[trio.SocketListener], Peer]:
    """Open the TCP port `config.listen`.

    Returns the one listener as a list, and this node with its region, its tier and the address that
    others dial (`config.advertise`, else the bound one). Raises StartError if the port is in use or
    the address is not this machine's.
    """
    listeners = await listen_at("listen", config.listen)
    name = listeners[0].socket.getsockname()
    address = config.advertise or join_address(name[0], name[1])
    return listeners, Peer(node, address, config.region, config.tier)


async def listen_at(key: str, address: str) -> list[trio.SocketListener]:
    """Open the port `address` ("HOST:PORT") that the setting `key` names. Raises StartError."""
    host, port = split_address(address)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise StartError(f"{key}: {address}: {bind_fault(error, key)}") from None
    for listener in listeners[1:]:  # the name has two addresses, and port 0 would give two ports
        await listener.aclose()
    return listeners[:1]


OPTIONS: Final = {"listen": "--listen HOST:PORT", "metrics.listen": "--metrics HOST:PORT"}
"""Options of `canopy node` for settings that name a port."""


def bind_fault(error: OSError, setting: str) -> str:
    """Return why a port could not be opened, and what to do about it. `setting`: the key of the
    configuration, or the option of another command, that names the port."""
    option = OPTIONS.get(setting, setting)
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use by another program; choose another with {option}"
    if error.errno == errno.EACCES:
        return f"ports below 1024 are for the system; choose another with {option}"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return error.strerror or str(error)


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: each connection is an open file."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return  # macOS reports a hard limit that it does not grant


def open_mdns(
    driver: TrioDriver,
    config: NodeConfig,
    peers: Sequence[str],
    role: Role | None,
    log: Log,
) -> LocalNetwork | None:
    """Return multicast DNS, if it is configured. `role`: that of the node's certificate; None: it
    has no keys. Raises StartError without keys, or without the library."""
    if not config.mdns:
        return None
    if role is None:
        raise StartError(
            "mdns needs the node's keys, since anybody on the network can announce anything: "
            "make them with `canopy keys` (docs/guide/security.md), or set mdns: false"
        )
    if find_spec("zeroconf") is None:
        raise StartError(
            "mdns needs zeroconf, not installed here: pip install 'canopy-overlay[mdns]'"
        )
    return LocalNetwork(driver, config.overlay, peers, log, announces=role is not Role.LEAF)

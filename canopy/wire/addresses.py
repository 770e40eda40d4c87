"""Addresses in text form: ``HOST:PORT``, an IPv6 host in brackets."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

HOST: Final = re.compile(r"[\w.:%-]+")
"""The characters of names and numbers of hosts, also in other alphabets, and of IPv6 zones."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[IPv6]:PORT``. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: put an IPv6 address in brackets, as in [::1]:4470")
    if not colon or not host:
        raise ValueError(f"{address!r} is not an address; expected HOST:PORT")
    if not HOST.fullmatch(host):
        raise ValueError(f"{address!r}: {host!r} is not a host")
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ValueError(f"{address!r}: {port!r} is not a port; expected 0 to 65535")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_address(host: str) -> bool:
    """Return whether `host` is each address of the machine that listens there, in any notation that
    the system takes (::, 0::0, 0.0.0.0, 0), so that nobody can dial it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        pass
    try:
        return not any(socket.inet_aton(host))
    except OSError:
        return False

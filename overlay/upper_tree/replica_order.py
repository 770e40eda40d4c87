"""In which order a node tries the replicas of a virtual node: rendezvous hashing (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from overlay.machine import NodeId, Peer


def ranked(me: NodeId, hosts: Sequence[Peer]) -> list[Peer]:
    """The hosts in the order in which `me` tries them (rendezvous hashing)."""
    return sorted(hosts, key=lambda host: (host.id != me, _weight(me, host.id)))


def _weight(me: NodeId, host: NodeId) -> bytes:
    """(A checksum would not do: those of names of one length differ by the same bits for all.)"""
    return blake2b(f"{me} {host}".encode(), digest_size=8).digest()

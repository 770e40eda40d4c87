"""A node's list of revoked nodes in a simulated world, signed by whoever knows how to write one
down."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from overlay.machine import NodeId

_GENUINE = b"revoked "


class _List(msgspec.Struct, array_like=True):
    version: int
    ids: tuple[NodeId, ...]


def revoked(version: int, ids: Iterable[NodeId]) -> bytes:
    """A list as it travels."""
    return _GENUINE + msgspec.msgpack.encode(_List(version, tuple(ids)))


class SimulatedRevocations:
    """Keeps the highest version: an `overlay.lower_random.documents.DocumentStore`."""

    def __init__(self) -> None:
        self.version = 0
        self.ids: frozenset[NodeId] = frozenset()
        self.taken: Callable[[], object] = lambda: None
        """Called when another node has brought a newer list."""
        self._data = b""

    def current(self) -> tuple[int, bytes]:
        """The version, 0 for none, and the list as it travels."""
        return self.version, self._data

    def accept(self, data: bytes) -> int:
        """Keep what is newer, if it is genuine. Returns the version that holds now."""
        if self.write(data):
            self.taken()
        return self.version

    def write(self, data: bytes) -> bool:
        """The same as an operator's command does it. Returns whether it was newer."""
        if not data.startswith(_GENUINE):
            return False
        found = msgspec.msgpack.decode(data[len(_GENUINE) :], type=_List)
        if found.version <= self.version:
            return False
        self.version, self.ids, self._data = found.version, frozenset(found.ids), data
        return True

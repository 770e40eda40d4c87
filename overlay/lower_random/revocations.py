"""Spreads the list of revoked nodes: each node to which it is new passes it on.

What the list is, whose signature it needs and where it is kept is the driver's business
(`RevocationStore`). Two nodes whose link comes up compare versions, so that who was away hears of
it; a new list goes to all neighbours at once, and so through the random graph in a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from overlay.links.events import LinkUp
from overlay.lower_random.messages import RevocationList, RevocationsKnown
from overlay.machine import Machine, Peer, Port


class RevocationStore(Protocol):
    """Keeps the list, and believes only those that the overlay's root vouches for."""

    def current(self) -> tuple[int, bytes]:
        """The version of the list, 0 for none, and the list as it travels."""

    def accept(self, data: bytes) -> int:
        """Keep a list, durably, if it is newer, and act on it. Returns the version that holds
        now."""


class Revocations(Machine):
    """One node's part in spreading the list."""

    def __init__(
        self, port: Port, store: RevocationStore | None, peers: Callable[[], tuple[Peer, ...]]
    ) -> None:
        """Without a `store` nodes have no keys, and nothing is spread."""
        super().__init__(port)
        self._store = store
        self._peers = peers
        self._version = 0 if store is None else store.current()[0]

    def changed(self) -> None:
        """The list in the store has perhaps changed: pass a new one on."""
        if self._store is None or self._store.current()[0] <= self._version:
            return
        self._version, data = self._store.current()
        self.port.count("revocation_lists")
        for peer in self._peers():
            self.port.send(peer, RevocationList(data))

    def on_link_up(self, event: LinkUp) -> None:
        """Compare versions with a node that may have been away, or may know more."""
        if self._store is not None and self._version:
            self.port.send(event.peer, RevocationsKnown(self._version))

    def on_known(self, sender: Peer, message: RevocationsKnown) -> None:
        """Send what the other lacks, or ask for what it has."""
        if self._store is None:
            return
        if message.version < self._version:
            self.port.send(sender, RevocationList(self._store.current()[1]))
        elif message.version > self._version:
            self.port.send(sender, RevocationsKnown(self._version))

    def on_list(self, sender: Peer, message: RevocationList) -> None:
        """Take a list that is newer, if it is genuine, and pass it on."""
        if self._store is not None and self._store.accept(message.data) > self._version:
            self.changed()

"""Spreads what an overlay's operators have signed: each node to which it is new passes it on.

There are two such documents, the list of revoked nodes and the policy. What is in one, whose
signature it needs and where it is kept is the driver's business (`DocumentStore`). Two nodes whose
link comes up compare versions, so that who was away hears of it; a new document goes to all
neighbours at once, and so through the random graph in a few steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.messages import (
    DocumentVersion,
    RevocationList,
    RevocationsKnown,
    SignedDocument,
)
from overlay.lower_random.view import View
from overlay.machine import LocalEvent, Machine, Message, NodeId, Peer, Port, by_id

REVOCATIONS: Final = "revocations"
"""The kind whose messages all nodes know."""


class DocumentStore(Protocol):
    """Keeps one document, and believes only those that the overlay's root vouches for."""

    def current(self) -> tuple[int, bytes]:
        """The version of the document, 0 for none, and the document as it travels."""

    def accept(self, data: bytes) -> int:
        """Keep a document, durably, if it is newer, and act on it. Returns the version that holds
        now."""


class DocumentChanged(LocalEvent, frozen=True):
    """Another document of this kind holds from now on, or none."""

    kind: str


class Documents(Machine):
    """One node's part in spreading the documents."""

    def __init__(
        self,
        port: Port,
        stores: Mapping[str, DocumentStore | None],
        view: View,
        spreads: bool = True,
    ) -> None:
        """`stores` by kind; where there are none nodes have no keys, and nothing is spread.
        `spreads`: this node passes documents on (a leaf does not)."""
        super().__init__(port)
        self._stores = {kind: store for kind, store in stores.items() if store is not None}
        self._view = view
        self._spreads = spreads
        self._linked: dict[NodeId, Peer] = {}
        """Nodes whose link is up: leaves are in no view."""
        self._versions = {kind: store.current()[0] for kind, store in self._stores.items()}

    def changed(self) -> None:
        """Documents in the stores have perhaps changed: pass new ones on."""
        for kind in self._stores:
            self._look(kind)

    def _look(self, kind: str) -> None:
        version, data = self._stores[kind].current()
        if version == self._versions[kind]:
            return
        if version < self._versions[kind]:
            self._lost(kind, version)
            return
        self._versions[kind] = version
        self.port.count("signed_documents")
        others = {**by_id(self._view.peers()), **self._linked} if self._spreads else {}
        for peer in others.values():
            self.port.send(peer, _document(kind, data))
        self.port.emit(DocumentChanged(kind))

    def _lost(self, kind: str, version: int) -> None:
        """Handle that the current document is no longer believed, because its root was dropped.
        Send the remaining version to the linked nodes, which may have another document."""
        self._versions[kind] = version
        for peer in self._linked.values():
            self.port.send(peer, _version(kind, version))
        self.port.emit(DocumentChanged(kind))

    def on_link_up(self, event: LinkUp) -> None:
        """Compare versions with a node that may have been away, or may know more."""
        if not self._stores:
            return
        self._linked[event.peer.id] = event.peer
        for kind, version in self._versions.items():
            if version:
                self.port.send(event.peer, _version(kind, version))

    def on_link_down(self, event: LinkDown) -> None:
        """Forget the peer. It compares versions when its link comes up again."""
        self._linked.pop(event.peer.id, None)

    def on_version(self, sender: Peer, message: DocumentVersion) -> None:
        """Send the document if the sender's version is older, or ask for it if the sender's is
        newer."""
        self._compare(sender, message.kind, message.version)

    def on_revocations_known(self, sender: Peer, message: RevocationsKnown) -> None:
        """The same of revocations."""
        self._compare(sender, REVOCATIONS, message.version)

    def _compare(self, sender: Peer, kind: str, version: int) -> None:
        store = self._stores.get(kind)
        if store is None:
            return
        mine = self._versions[kind]
        if version < mine and self._spreads:
            self.port.send(sender, _document(kind, store.current()[1]))
        elif version > mine:
            self.port.send(sender, _version(kind, mine))

    def on_document(self, sender: Peer, message: SignedDocument) -> None:
        """Take a document that is newer, if it is genuine, and pass it on."""
        self._take(message.kind, message.data)

    def on_revocation_list(self, sender: Peer, message: RevocationList) -> None:
        """The same of revocations."""
        self._take(REVOCATIONS, message.data)

    def _take(self, kind: str, data: bytes) -> None:
        store = self._stores.get(kind)
        if store is not None:
            store.accept(data)
            self._look(kind)


def _version(kind: str, version: int) -> Message:
    return RevocationsKnown(version) if kind == REVOCATIONS else DocumentVersion(kind, version)


def _document(kind: str, data: bytes) -> Message:
    return RevocationList(data) if kind == REVOCATIONS else SignedDocument(kind, data)

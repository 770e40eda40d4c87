"""Overlays' keys for tests: an issuer, and nodes that it has signed."""

from __future__ import annotations

import io
import time
from pathlib import Path

from canopy.wire.keys.authority import found_overlay, issuer_of
from canopy.wire.keys.certificates import Holder, fingerprint, node_certificate, raw_key
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.ledger import Ledger
from canopy.wire.log import Log
from canopy.wire.process.security import NodeSecurity
from overlay.rights import Role


class Keys:
    """The keys of one overlay."""

    def __init__(self, path: Path, overlay: str = "canopy") -> None:
        self.path = path
        self.overlay = overlay
        self.issuer = KeyFolder(path / "issuer")
        self.first = found_overlay(self.issuer, overlay)

    def folder(
        self,
        name: str,
        role: Role = Role.VOTER,
        begins: float = 0.0,
        days: float = 7.0,
        overlay: str = "",
        tenant: str = "",
    ) -> KeyFolder:
        """The keys of another node; its certificate begins so many seconds from now, less the hour
        that clocks may differ by."""
        folder, issuer = KeyFolder(self.path / name), issuer_of(self.issuer)
        holder = Holder(overlay or self.overlay, role, tenant, 1)
        key = folder.node_key().public_key()
        now = time.time() + begins
        signer = fingerprint(issuer.certificate)
        Ledger(self.issuer.path).enter(holder, raw_key(key), now, (), None, by=signer)
        certificate = node_certificate(holder, key, issuer.key, issuer.certificate, now, days)
        folder.write_chain("roots", *self.issuer.chain("roots"))
        folder.write_chain("node", certificate, *issuer.chain)
        return folder

    def security(self, folder: KeyFolder | None = None) -> NodeSecurity:
        """What a node does with the keys in `folder`, the issuer's by default."""
        return NodeSecurity(folder or self.issuer, self.overlay, Log("debug", io.StringIO()))

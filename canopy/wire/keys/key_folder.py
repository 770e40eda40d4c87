"""The folder ``keys`` in a node's data folder.

======================= =============================================================
``node.key``            the node's private key; never leaves the folder
``node.pem``            its certificate, and its issuer's
``roots.pem``           the roots that it believes: one, while they change two
``issuer.json``         where its issuer is reached, for renewals
``revoked``             the list of revocations, signed
``policy``              what tenants may publish and subscribe to, signed
``issuer.key, .pem``    at an issuer: what signs nodes, and what vouches for it
``former.pem``          issuers before the last rotation, whose nodes may renew
``signed, limits.json`` at an issuer: what it has signed, and how much it may
``root.key``            what signs issuers; to be kept elsewhere, offline
``invites/``            at an issuer: tokens that were not used up
======================= =============================================================

The folder and its keys are private (0700, 0600): one that others can read is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from canopy.wire.audit import append
from canopy.wire.durable import write_durably
from canopy.wire.keys.certificates import (
    CertificateError,
    NodeCertificate,
    load_pem,
    pem,
    private_pem,
    raw_key,
    read_node,
)
from canopy.wire.keys.policies import read_policy
from canopy.wire.keys.revocations import NONE, Revocations, read
from canopy.wire.keys.tokens import Invitation
from overlay.tenants.policy import Policy, PolicyError


class KeyFolderError(Exception):
    """The keys cannot be used; the message says why and what to do."""


class IssuerPlace(msgspec.Struct, frozen=True):
    """Where a node renews its certificate."""

    addresses: tuple[str, ...]
    peers: tuple[str, ...] = ()
    """Nodes of the overlay that its token named besides."""


class KeyFolder:
    """The files. Each method reads or writes one of them; nothing is kept in memory."""

    def __init__(self, data: Path) -> None:
        """`data` is the node's data folder."""
        self.path = data / "keys"

    def note(self, kind: str, **fields: Any) -> None:
        """Write down what was done, in the data folder's audit file."""
        append(self.path.parent, kind, **fields)

    @property
    def exists(self) -> bool:
        """Whether a node's key is here."""
        return (self.path / "node.key").exists()

    @property
    def is_issuer(self) -> bool:
        """Whether this node can sign certificates."""
        return (self.path / "issuer.key").exists()

    def prepare(self) -> None:
        """Make the folder, private."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)

    def check(self) -> None:
        """Raise KeyFolderError if others can read the keys, or are their owners."""
        for path in (self.path, *self.path.glob("*.key")):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(found.st_mode):
                raise KeyFolderError(f"{path} is a link; put the file itself there")
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                wanted = "700" if path == self.path else "600"
                raise KeyFolderError(
                    f"{path} can be read by others; see who has, and then: chmod {wanted} {path}"
                )

    # --- keys ---

    def key(self, name: str = "node") -> Ed25519PrivateKey:
        """A private key. Raises KeyFolderError."""
        path = self.path / f"{name}.key"
        try:
            found = load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise KeyFolderError(f"cannot read {path}: {error}") from None
        if not isinstance(found, Ed25519PrivateKey):
            raise KeyFolderError(f"{path} is no Ed25519 key")
        return found

    def node_key(self) -> Ed25519PrivateKey:
        """The node's key, made at the first call."""
        if not self.exists:
            self.write_key("node", Ed25519PrivateKey.generate())
        return self.key()

    def public_key(self) -> bytes:
        """The 32 bytes of the node's public key."""
        return raw_key(self.key().public_key())

    def put_aside(self, name: str) -> None:
        """Rename a private key, so that another one can take its place."""
        path = self.path / f"{name}.key"
        path.replace(path.with_name(f"{name}-{int(path.stat().st_mtime)}.key"))

    def write_key(self, name: str, key: Ed25519PrivateKey) -> None:
        """Keep a private key, readable for its owner alone."""
        self.prepare()
        path = self.path / f"{name}.key"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as out:
            out.write(private_pem(key))
            out.flush()
            os.fsync(file)

    # --- certificates ---

    def chain(self, name: str = "node") -> list[x509.Certificate]:
        """The certificates in ``NAME.pem``; none if there is no such file."""
        try:
            return load_pem((self.path / f"{name}.pem").read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, CertificateError) as error:
            raise KeyFolderError(f"cannot read {self.path / name}.pem: {error}") from None

    def write_chain(self, name: str, *certificates: x509.Certificate) -> None:
        """Replace ``NAME.pem``, durably."""
        self.prepare()
        write_durably(self.path / f"{name}.pem", pem(*certificates))

    def issuers(self) -> list[x509.Certificate]:
        """The issuer's certificates, those before a rotation too."""
        return [*self.chain("issuer"), *self.chain("former")]

    def certificate(self) -> NodeCertificate | None:
        """What the node's own certificate says; None: it has none yet."""
        found = self.chain()
        try:
            return read_node(found[0]) if found else None
        except CertificateError as error:
            raise KeyFolderError(f"{self.path}/node.pem: {error}") from None

    def certificate_or_none(self) -> NodeCertificate | None:
        """`certificate`, and None where there is no key either."""
        return self.certificate() if self.exists else None

    # --- revocations ---

    def revocations(self, overlay: str) -> tuple[Revocations, bytes]:
        """The list, and as it travels; version 0 and b"" if there is none."""
        try:
            data = (self.path / "revoked").read_bytes()
        except FileNotFoundError:
            return NONE, b""
        try:
            return read(data, overlay, self.chain("roots")), data
        except CertificateError as error:
            raise KeyFolderError(f"{self.path}/revoked: {error}") from None

    def write_revocations(self, data: bytes) -> None:
        """Replace the list, durably."""
        write_durably(self.path / "revoked", data)

    # --- policy ---

    def policy(self, overlay: str) -> tuple[Policy | None, bytes]:
        """The policy, and as it travels; None and b"" if there is none. What was believed once
        holds, also if its signer was revoked since: else revoking an admin would open or close
        everything."""
        try:
            data = (self.path / "policy").read_bytes()
        except FileNotFoundError:
            return None, b""
        try:
            return read_policy(data, overlay, self.chain("roots")), data
        except PolicyError as error:
            raise KeyFolderError(f"{self.path}/policy: {error}") from None

    def write_policy(self, data: bytes) -> None:
        """Replace the policy, durably."""
        write_durably(self.path / "policy", data)

    # --- the issuer ---

    def issuer_place(self) -> IssuerPlace | None:
        """Where this node's issuer is reached."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self.path / "issuer.json").read_bytes(), type=IssuerPlace)
        return None

    def write_issuer_place(self, addresses: tuple[str, ...], peers: tuple[str, ...] = ()) -> None:
        """Note where this node's issuer is reached, and other nodes."""
        place = IssuerPlace(addresses, peers)
        write_durably(self.path / "issuer.json", msgspec.json.encode(place))

    def invitations(self) -> dict[str, Invitation]:
        """By name, the invitations that this issuer keeps."""
        found = {}
        for path in sorted((self.path / "invites").glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=Invitation)
        return found

    def write_invitation(self, name: str, invitation: Invitation) -> None:
        """Keep an invitation, or what is left of it, durably."""
        folder = self.path / "invites"
        folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(folder / f"{name}.json", msgspec.json.encode(invitation))

    def remove_invitation(self, name: str) -> None:
        """Forget an invitation."""
        (self.path / "invites" / f"{name}.json").unlink(missing_ok=True)

"""The folder ``keys`` in a node's data folder.

======================= =============================================================
``node.key``            the node's private key; never leaves the folder
``node.pem``            its certificate, and its issuer's
``roots.pem``           the roots that it believes: one, while they change two, the newest first
``issuer.json``         where its issuer is reached, for renewals
``revoked``             the list of revocations, signed
``policy``              what tenants may publish and subscribe to, signed
``issuer.key, .pem``    at an issuer: what signs nodes, and what vouches for it
``former.pem``          issuers before the last rotation, whose nodes may renew
``signed, limits.json`` at an issuer: what it has signed, and how much it may
``root.key``            what signs issuers; to be kept elsewhere, offline
``invites/``            at an issuer: tokens that were not used up
``issuers/``            at the root's: certificates of restricted issuers, by id
``lock``, ``next/``     for who changes several files as one
======================= =============================================================

The folder and its keys are private (0700, 0600): one that others can read is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from canopy.wire.audit import append
from canopy.wire.durable import sync_folder, write_durably
from canopy.wire.keys.certificates import (
    CertificateError,
    KeyFolderError,
    NodeCertificate,
    load_pem,
    pem,
    private_pem,
    raw_key,
    read_node,
)
from canopy.wire.keys.policies import believed_policy
from canopy.wire.keys.revocations import Revocations, believed_list
from canopy.wire.keys.tokens import Invitation
from overlay.machine import NodeId
from overlay.phrases import readable_by_others
from overlay.tenants.policy import Policy


class IssuerPlace(msgspec.Struct, frozen=True):
    """The place at which a node renews its certificate."""

    addresses: tuple[str, ...]
    peers: tuple[str, ...] = ()
    """Further nodes of the overlay, from its token."""


class MadeIssuer(msgspec.Struct, frozen=True):
    """A restricted issuer that was made with this folder's root."""

    certificate: bytes
    """Its newest certificate (PEM)."""
    taken: float
    """When it fetched that, in seconds since 1970; 0: not yet."""


class KeyFolder:
    """The files of the folder. Each method reads or writes one of them; nothing is kept in
    memory."""

    def __init__(self, data: Path) -> None:
        """`data` is the node's data folder."""
        self.path = data / "keys"
        self._depth = 0

    def note(self, kind: str, **fields: Any) -> None:
        """Write an entry into the data folder's audit file."""
        append(self.path.parent, kind, **fields)

    @property
    def exists(self) -> bool:
        """Whether the folder has a node's key."""
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
        """Raise KeyFolderError if another user can read the keys, or owns them."""
        for path in (self.path, *self.path.glob("*.key")):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(found.st_mode):
                raise KeyFolderError(f"{path} is a link; put the file itself there")
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                wanted = "700" if path == self.path else "600"
                raise KeyFolderError(readable_by_others(path, wanted))

    # --- keys ---

    def key(self, name: str = "node") -> Ed25519PrivateKey:
        """Return a private key. Raises KeyFolderError."""
        path = self.path / f"{name}.key"
        try:
            found = load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise KeyFolderError(f"cannot read {path}: {error}") from None
        if not isinstance(found, Ed25519PrivateKey):
            raise KeyFolderError(f"{path} is no Ed25519 key")
        return found

    def node_key(self) -> Ed25519PrivateKey:
        """Return the node's key, which the first call makes."""
        if not self.exists:
            self.write_key("node", Ed25519PrivateKey.generate())
        return self.key()

    def public_key(self) -> bytes:
        """Return the 32 bytes of the node's public key."""
        return raw_key(self.key().public_key())

    def put_aside(self, name: str) -> None:
        """Rename a private key, so that another one can replace it."""
        path = self.path / f"{name}.key"
        path.replace(path.with_name(f"{name}-{int(path.stat().st_mtime)}.key"))

    def write_key(self, name: str, key: Ed25519PrivateKey) -> None:
        """Write a private key to a new file that only its owner can read."""
        self.prepare()
        path = self.path / f"{name}.key"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as out:
            out.write(private_pem(key))
            out.flush()
            os.fsync(file)

    # --- certificates ---

    def chain(self, name: str = "node") -> list[x509.Certificate]:
        """Return the certificates in ``NAME.pem``; none if there is no such file. Raises
        KeyFolderError."""
        try:
            return load_pem((self.path / f"{name}.pem").read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, CertificateError) as error:
            raise KeyFolderError(f"cannot read {self.path / name}.pem: {error}") from None

    def write_chain(self, name: str, *certificates: x509.Certificate) -> None:
        """Replace the file ``NAME.pem`` by these certificates, durably."""
        self.prepare()
        write_durably(self.path / f"{name}.pem", pem(*certificates))

    def issuers(self) -> list[x509.Certificate]:
        """Return the issuer's certificates, those before a rotation too."""
        return [*self.chain("issuer"), *self.chain("former")]

    def certificate(self) -> NodeCertificate | None:
        """Return the contents of the node's own certificate; None if it has none yet."""
        found = self.chain()
        try:
            return read_node(found[0]) if found else None
        except CertificateError as error:
            raise KeyFolderError(f"{self.path}/node.pem: {error}") from None

    def certificate_or_none(self) -> NodeCertificate | None:
        """Return `certificate`; None also if there is no key."""
        return self.certificate() if self.exists else None

    # --- signed documents ---

    def document(self, name: str) -> bytes:
        """Return the bytes of ``revoked`` or ``policy``; b"" if there is no such file. Raises
        KeyFolderError."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise KeyFolderError(f"cannot read {self.path / name}: {error}") from None

    def write_document(self, name: str, data: bytes) -> None:
        """Replace ``revoked`` or ``policy``, durably."""
        write_durably(self.path / name, data)

    def revocations(self, overlay: str) -> tuple[Revocations, bytes]:
        """Return the list, and its encoding; version 0 and b"" if there is none. For a list that is
        no longer trusted the encoding is b"": its ids stay refused until there is another list."""
        return believed_list(self.document("revoked"), overlay, self.chain("roots")[:1])[:2]

    def policy(self, overlay: str) -> tuple[Policy | None, bytes]:
        """Return the policy, and its encoding; None and b"" if none is trusted."""
        data = self.document("policy")
        found = believed_policy(data, overlay, self.chain("roots"))[0]
        return found, data if found is not None else b""

    # --- several files as one ---

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for reading or changing several files. No other process changes any of
        them in the meantime, and changes that another has begun are finished first. The holder may
        enter it again."""
        if self._depth or not self.path.is_dir():
            yield
            return
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._depth += 1
            self._settle()
            yield
        finally:
            self._depth = 0
            os.close(file)

    def write_together(self, files: Mapping[str, bytes]) -> None:
        """Replace these files durably, all or none of them, even if the process is killed: they are
        first written to ``next/``. A private key that is replaced is renamed (`put_aside`)."""
        self.prepare()
        with self.locked():
            draft = self.path / "next.new"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            for name, content in files.items():
                file = os.open(draft / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                with open(file, "wb") as out:
                    out.write(content)
                    out.flush()
                    os.fsync(file)
            sync_folder(draft)
            draft.rename(self.path / "next")  # from here on they are replaced
            sync_folder(self.path)
            self._settle()

    def _settle(self) -> None:
        """Move the files in ``next/`` to their places."""
        aside = self.path / "next"
        if not aside.is_dir():
            return
        for each in sorted(aside.iterdir()):
            if each.suffix == ".key" and (self.path / each.name).exists():
                self.put_aside(each.stem)
            each.replace(self.path / each.name)
        sync_folder(self.path)
        aside.rmdir()

    # --- the issuer ---

    def issuer_place(self) -> IssuerPlace | None:
        """Return where this node's issuer is reached; None if unknown."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self.path / "issuer.json").read_bytes(), type=IssuerPlace)
        return None

    def write_issuer_place(self, addresses: tuple[str, ...], peers: tuple[str, ...] = ()) -> None:
        """Store where this node's issuer is reached, and further nodes."""
        place = IssuerPlace(addresses, peers)
        write_durably(self.path / "issuer.json", msgspec.json.encode(place))

    def made_issuers(self) -> dict[NodeId, MadeIssuer]:
        """Return the restricted issuers that were made here, by id."""
        found = {}
        for path in sorted((self.path / "issuers").glob("*.json")):
            try:
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=MadeIssuer)
            except (OSError, msgspec.MsgspecError) as error:
                raise KeyFolderError(f"cannot read {path}: {error}") from None
        return found

    def write_made_issuer(self, name: NodeId, made: MadeIssuer) -> None:
        """Store the data of a restricted issuer, durably."""
        self._write("issuers", name, made)

    def remove_made_issuer(self, name: NodeId) -> None:
        """Remove a restricted issuer that was replaced."""
        (self.path / "issuers" / f"{name}.json").unlink(missing_ok=True)

    def invitations(self) -> dict[str, Invitation]:
        """Return the invitations of this issuer, by name."""
        found = {}
        for path in sorted((self.path / "invites").glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=Invitation)
        return found

    def write_invitation(self, name: str, invitation: Invitation) -> None:
        """Store an invitation, or its remaining uses, durably."""
        self._write("invites", name, invitation)

    def remove_invitation(self, name: str) -> None:
        """Delete the file of an invitation, so that its token is refused from now on."""
        (self.path / "invites" / f"{name}.json").unlink(missing_ok=True)

    def _write(self, kind: str, name: str, value: msgspec.Struct) -> None:
        folder = self.path / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(folder / f"{name}.json", msgspec.json.encode(value))

"""The authorities: the root, its issuers, and their signatures.

The root signs only issuers, and is kept offline. An issuer is a node that has ``issuer.key``; it
signs nodes, invitations in the form of hashes, and the list of revocations. A *restricted* issuer
signs only certain nodes (`restrictions`), and nothing for the whole overlay.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from canopy.wire.keys.certificates import (
    DAY,
    RESTRICTED_DAYS,
    CertificateError,
    Holder,
    KeyFolderError,
    authority_certificate,
    check_name,
    fingerprint,
    is_authority,
    node_certificate,
    pem,
    private_pem,
    raw_key,
)
from canopy.wire.keys.chains import authority_id
from canopy.wire.keys.key_folder import KeyFolder, MadeIssuer
from canopy.wire.keys.ledger import Ledger, LimitError
from canopy.wire.keys.restrictions import Restriction, restriction_of
from canopy.wire.keys.revocations import Revocations, sign
from canopy.wire.keys.tokens import SECRET_BYTES, Invitation, Token, hashed
from overlay.machine import NodeId
from overlay.rights import Role


@dataclass(frozen=True)
class Issuer:
    """An issuer's key and certificate."""

    key: Ed25519PrivateKey
    chain: tuple[x509.Certificate, ...]
    """Its certificate, and further ones that vouch for it to nodes that know only a former root."""

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate of the issuer's key."""
        return self.chain[0]

    @property
    def id(self) -> NodeId:
        """The id of the authority, also in lists of revocations."""
        return authority_id(self.certificate)

    @property
    def restriction(self) -> Restriction | None:
        """The restriction on the certificates that it may sign; None: it may sign any node, and
        documents of the whole overlay. Raises RestrictionError."""
        return restriction_of(self.certificate)

    def sign_node(
        self, holder: Holder, key: Ed25519PublicKey, now: float
    ) -> tuple[x509.Certificate, ...]:
        """Return a node's chain: its certificate, and this issuer's. Raises CertificateError if the
        issuer may not sign such a node, or has expired."""
        if reason := holder.refusal(self.restriction):
            raise CertificateError(reason)
        return node_certificate(holder, key, self.key, self.certificate, now), *self.chain

    def sign_revocations(self, revocations: Revocations) -> bytes:
        """Return an encoded, signed list of revocations."""
        return sign(revocations, self.key, self.chain)


def issuer_of(folder: KeyFolder) -> Issuer:
    """Return the issuer whose key is in this folder. Raises KeyFolderError if there is none."""
    chain = folder.chain("issuer")
    if not folder.is_issuer or not chain:
        raise KeyFolderError(
            f"{folder.path} has no issuer's key: this is done where `canopy keys init` was"
        )
    return Issuer(folder.key("issuer"), tuple(chain))


def signer_of_all(folder: KeyFolder, revoked: Collection[NodeId] = ()) -> Issuer:
    """Return the signer for documents of the whole overlay: an unrestricted issuer that is not
    `revoked`, else the root, if its key is in the folder. Raises KeyFolderError if neither is."""
    issuer = issuer_of(folder)
    restriction = issuer.restriction
    if restriction is None and issuer.id not in revoked:
        return issuer
    root = folder.chain("roots")[0]
    if (folder.path / "root.key").exists() and folder.key("root").public_key() == root.public_key():
        return Issuer(folder.key("root"), (root, *issuer.chain[1:]))
    why = "an issuer that is revoked"
    if restriction is not None:
        why = f"a restricted issuer ({restriction})"
    raise KeyFolderError(
        f"{folder.path} has {why}, which does not revoke: do it at another one, or put the root's "
        "key there"
    )


def root_key_of(folder: KeyFolder) -> Ed25519PrivateKey:
    """Return the key of the newest root. Raises KeyFolderError if it is not in the folder."""
    path, roots = folder.path / "root.key", folder.chain("roots")
    if not roots or not path.exists():
        raise KeyFolderError(f"put the root's key back for this: {path}")
    found = folder.key("root")
    if found.public_key() != roots[0].public_key():
        raise KeyFolderError(f"{path} is not the key of the root")
    return found


def make_issuer(
    folder: KeyFolder,
    target: KeyFolder,
    restriction: Restriction,
    days: float,
    now: float,
    addresses: tuple[str, ...] = (),
) -> Issuer:
    """Make a restricted issuer in the key folder `target`, signed with the root's key, which must
    be in `folder`; also a node, if `target` has none yet. The new issuer replaces a restricted
    issuer in `target`, and renews the certificates that it has signed. `addresses`: where it gets
    its next certificate when the root is replaced. Raises KeyFolderError."""
    if days > RESTRICTED_DAYS:
        raise KeyFolderError(f"a restricted issuer may hold for {RESTRICTED_DAYS:g} days at most")
    root_key, roots = root_key_of(folder), folder.chain("roots")
    own, former = folder.certificate(), target.chain("issuer")
    if own is None:
        raise KeyFolderError(f"{folder.path} has no node's certificate")
    if (former and restriction_of(former[0]) is None) or (not former and target.exists):
        raise KeyFolderError(f"{target.path} has the keys of another node: give another folder")
    overlay, key = own.holder.overlay, Ed25519PrivateKey.generate()
    certificate = authority_certificate(
        f"{overlay} issuer {int(now)}",
        key.public_key(),
        root_key,
        roots[0],
        now,
        restriction=restriction,
        days=days,
    )
    issuer = Issuer(key, (certificate, *folder.chain("issuer")[1:]))
    files = {
        "issuer.key": private_pem(key),
        "issuer.pem": pem(*issuer.chain),
        "roots.pem": pem(*roots),
    }
    if former:
        files["former.pem"] = pem(*target.issuers())
    if data := folder.revocations(overlay)[1]:
        files["revoked"] = data
    target.write_together(files)
    if addresses and target.issuer_place() is None:
        target.write_issuer_place(addresses)
    node = target.certificate_or_none()
    sign_self(target, overlay, 1 if node is None else node.holder.generation, now)
    for known in _replaced(folder, former):
        folder.remove_made_issuer(known)
    folder.write_made_issuer(issuer.id, MadeIssuer(pem(certificate), taken=now))
    for each in (folder, target):
        each.note(
            "issuer made", issuer=issuer.id, may=str(restriction), until=int(now + days * DAY)
        )
    return issuer


def _replaced(folder: KeyFolder, former: Sequence[x509.Certificate]) -> list[NodeId]:
    """Return those of the restricted issuers made in `folder` that another one replaces."""
    names = {authority_id(one) for one in former if is_authority(one)}
    return [name for name in folder.made_issuers() if name in names]


def found_overlay(folder: KeyFolder, overlay: str) -> NodeId:
    """Make a root, an issuer and a first node in an empty key folder. Returns the node's id.
    Raises KeyFolderError if there are keys."""
    if folder.exists or folder.is_issuer or folder.chain("roots"):
        raise KeyFolderError(f"{folder.path} has keys already")
    check_name("overlay", overlay)
    now = time.time()
    root_key, issuer_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    root = authority_certificate(f"{overlay} root", root_key.public_key(), root_key, None, now)
    folder.write_key("root", root_key)
    folder.write_chain("roots", root)
    folder.write_key("issuer", issuer_key)
    certificate = authority_certificate(
        f"{overlay} issuer", issuer_key.public_key(), root_key, root, now
    )
    folder.write_chain("issuer", certificate)
    folder.note("overlay founded", overlay=overlay, root=fingerprint(root))
    return sign_self(folder, overlay, 1, now)


def sign_self(folder: KeyFolder, overlay: str, generation: int, now: float) -> NodeId:
    """Sign the certificate of an issuer's own node: as admin, or for a restricted issuer the
    highest role that it may sign. Returns the node's id. Raises KeyFolderError if the issuer may
    not sign it."""
    with folder.locked():
        chain = signed_for_self(folder, issuer_of(folder), overlay, generation, now)
        folder.write_chain("node", *chain)
        found = folder.certificate()
    assert found is not None
    return found.principal.id


def signed_for_self(
    folder: KeyFolder, issuer: Issuer, overlay: str, generation: int, now: float
) -> tuple[x509.Certificate, ...]:
    """Return the chain of the node in `folder`, signed by its own issuer and entered in the ledger.
    Raises KeyFolderError if the issuer may not sign it."""
    key, restriction = folder.node_key().public_key(), issuer.restriction
    role, tenant = (Role.ADMIN, "") if restriction is None else restriction.own()
    try:
        holder = Ledger(folder.path).enter(
            Holder(overlay, role, tenant, generation),
            raw_key(key),
            now,
            folder.revocations(overlay)[0].ids,
            restriction,
            by=fingerprint(issuer.certificate),
        )
        return issuer.sign_node(holder, key, now)
    except (LimitError, CertificateError) as error:
        raise KeyFolderError(f"{folder.path}: {error}") from None


def invite(
    folder: KeyFolder,
    role: Role,
    tenant: str,
    uses: int,
    seconds: float,
    addresses: tuple[str, ...],
    per_hour: int = 0,
    peers: tuple[str, ...] = (),
) -> Token:
    """Make a token for `uses` new nodes with this role, at most `per_hour` within an hour (0: any
    number). `peers`: further nodes at which they join the overlay. Raises KeyFolderError without an
    issuer, or if it may not sign such nodes."""
    issuer, own = issuer_of(folder), folder.certificate()
    if own is None:
        raise KeyFolderError(f"{folder.path} has no node's certificate")
    if tenant:
        check_name("tenant", tenant)
    restriction = issuer.restriction
    wanted = Holder(own.holder.overlay, role, tenant, 1, 1)
    if reason := wanted.refusal(restriction):
        raise KeyFolderError(f"{folder.path}: {reason}")
    name, secret = secrets.token_hex(8), secrets.token_bytes(SECRET_BYTES)
    until = time.time() + seconds
    folder.write_invitation(
        name, Invitation(hashed(secret), role.name.lower(), tenant, uses, until, (), per_hour)
    )
    folder.note(
        "invited", name=name, role=role.name.lower(), tenant=tenant, uses=uses, until=int(until)
    )
    root = fingerprint(folder.chain("roots")[0])
    node = "" if restriction is None else own.principal.id
    return Token(own.holder.overlay, root, addresses, name, secret, node, peers)


def revoke(folder: KeyFolder, ids: tuple[NodeId, ...]) -> Revocations:
    """Sign and store the next list, with these ids added. Returns it."""
    own = folder.certificate()
    if own is None:
        raise KeyFolderError(f"{folder.path} has no node's certificate")
    if set(ids) & set(map(authority_id, folder.chain("roots"))):
        raise KeyFolderError("this is the root: canopy keys rotate replaces it")
    known, _ = folder.revocations(own.holder.overlay)
    both = tuple(dict.fromkeys((*known.ids, *ids)))
    issuer = signer_of_all(folder, both)
    changed = Revocations(own.holder.overlay, known.version + 1, both)
    folder.write_document("revoked", issuer.sign_revocations(changed))
    folder.note("revoked", version=changed.version, nodes=list(ids))
    return changed

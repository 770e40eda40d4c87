"""A node's trust: one immutable value, read and checked as a whole, which replaces the former one
as a whole.

It is made from the files of the key folder (`key_folder`) and the former value. Its invariants,
whatever the folder contains:

* one of the roots vouches for the node's own certificate; otherwise there is no new value
  (KeyFolderError), and the former one stays;
* a root that the list of revocations names is not trusted, if there is another one;
* the list of revocations is signed below the newest root, and the policy below a root that is
  trusted *now*. Without a valid policy tenants may do nothing. The ids of an untrusted list are
  refused nevertheless, and any signed list replaces it;
* documents of other nodes are accepted only if they are signed below the newest root: once a node
  knows it, the holder of a former issuer's key can make no further documents;
* versions do not go back while both documents are trusted.

So dropping a former root also drops, in one step, everything that depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from canopy.wire.keys.certificates import (
    SKEW,
    CertificateError,
    KeyFolderError,
    NodeCertificate,
    ids_of,
    is_authority,
    is_signed_by,
    load_der,
    path_length,
)
from canopy.wire.keys.chains import (
    Vouched,
    authority_id,
    document_signers,
    may_sign,
    names_successor,
    path_of,
    read_chain,
)
from canopy.wire.keys.policies import believed_policy
from canopy.wire.keys.revocations import NONE, Revocations, believed_list
from canopy.wire.keys.revocations import read as read_revocations
from overlay.bounded import BoundedDict
from overlay.machine import NodeId
from overlay.tenants.policy import Policy

if TYPE_CHECKING:
    from canopy.wire.keys.key_folder import KeyFolder


Chain = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The authorities, nodes and revocations that a node trusts. Immutable."""

    overlay: str
    own: NodeCertificate
    chain: Chain
    """The node's certificate, and those that vouch for it (DER)."""
    roots: tuple[x509.Certificate, ...]
    """The trusted roots, the newest first."""
    revocations: Revocations
    revocations_data: bytes
    """The encoded list of revocations; b"": none is trusted."""
    revoked: frozenset[NodeId]
    """The refused ids, including those of lists that are no longer trusted."""
    policy: Policy | None
    policy_data: bytes
    faults: tuple[str, ...]
    """Documents of the folder that are not trusted, with the reason."""
    has_dropped: bool
    """Whether the folder has a root that the list names, which must be removed."""
    is_behind: bool
    """Whether others know a later root, or no longer trust the node's own certificate: it must be
    renewed now."""

    @property
    def list_version(self) -> int:
        """The version of the list of revocations; 0: none is trusted."""
        return self.revocations.version if self.revocations_data else 0

    @property
    def policy_version(self) -> int:
        """The version of the policy; 0: none is trusted."""
        return 0 if self.policy is None else self.policy.version

    def look_at(self, chain: Chain) -> Vouched | None:
        """Return the node of a chain; None if no trusted root vouches for it. Takes 0.3 ms."""
        try:
            certificates = [load_der(one) for one in chain]
            if certificates:
                return read_chain(path_of(certificates[0], certificates[1:], self.roots))
        except CertificateError:
            pass
        return None

    def refusal(self, found: Vouched, now: float) -> str:
        """Return why the node that presents this chain is not trusted now; empty if it is."""
        node = found.node
        if node.holder.overlay != self.overlay:
            return f"its certificate is of the overlay {node.holder.overlay!r}"
        if self.is_revoked(node):
            return "its certificate was revoked"
        for issuer in found.issuers:
            if issuer in self.revoked:
                return f"its issuer {issuer} was revoked"
        if found.ends < now:
            return "its certificate has expired" if node.ends < now else "its issuer's has expired"
        return "" if node.begins - SKEW.total_seconds() <= now else "its certificate begins later"

    def is_revoked(self, node: NodeCertificate) -> bool:
        """Return whether this id, or an earlier one of its key, was revoked."""
        if node.holder.generation == 1:
            return node.principal.id in self.revoked
        return not self.revoked.isdisjoint(ids_of(node.key, node.holder.generation))


def read_beliefs(folder: KeyFolder, overlay: str, former: Beliefs | None = None) -> Beliefs:
    """Read the folder's documents, and keep those of `former` that are newer. Raises KeyFolderError
    if the node's own keys cannot be used. The folder must be locked (`KeyFolder.locked`)."""
    own = folder.certificate()
    if own is None:
        raise KeyFolderError(
            f"{folder.path} has a key and no certificate: give the token once more with --join"
        )
    if own.holder.overlay != overlay:
        raise KeyFolderError(
            f"the certificate in {folder.path} is of the overlay {own.holder.overlay!r}, and "
            f"this node of {overlay!r}: set `overlay`"
        )
    if own.key != folder.public_key():
        raise KeyFolderError(f"the certificate in {folder.path} is of another key")
    chain, in_folder = folder.chain(), folder.chain("roots")
    listed, data, revoked, fault = _newest_list(folder, overlay, in_folder, former)
    faults = [f"{folder.path}/revoked is not believed: {fault}"] if fault else []
    roots = believed_roots(in_folder, revoked)
    try:
        path, has_path = path_of(chain[0], chain[1:], roots), True
        is_behind = not revoked.isdisjoint(map(authority_id, path[1:]))
    except CertificateError as error:
        if len(roots) == len(in_folder):
            raise KeyFolderError(
                f"{folder.path}: the node's certificate does not belong to roots.pem: {error}"
            ) from None
        is_behind, has_path = True, False  # its root was dropped
    policy, policy_data, fault = _newest_policy(folder, overlay, roots, former)
    if fault:
        faults.append(
            f"{folder.path}/policy is not believed, so tenants may nothing: {fault}; an admin "
            "pushes it again (canopy policy push)"
        )
    signers = [document_signers(data)] if data else []
    signers += [document_signers(policy_data)] if policy_data else []
    is_behind |= any(_knows_later_root(each, roots) for each in signers)
    return Beliefs(
        overlay,
        own,
        tuple([one.public_bytes(Encoding.DER) for one in chain]),
        tuple(roots),
        listed,
        data,
        revoked,
        policy,
        policy_data,
        tuple(faults),
        has_path and len(roots) < len(in_folder),
        is_behind,
    )


def believed_roots(
    roots: Sequence[x509.Certificate], revoked: frozenset[NodeId]
) -> list[x509.Certificate]:
    """Return `roots` without the revoked ones; all of them if none would be left. Then nothing
    below them is trusted, and a renewal can bring another root."""
    left = [root for root in roots if authority_id(root) not in revoked]
    return left or list(roots)


def check_list(data: bytes, held: Beliefs, now: float) -> Revocations:
    """Return a list that another node sends, if it is valid. Raises CertificateError.

    A root can be dropped only by a root for which it vouches itself, so that the holder of a former
    issuer's key cannot have the later root dropped.
    """
    found = read_revocations(data, held.overlay, [held.roots[0]], held.revoked, now)
    signers = document_signers(data)
    for root in held.roots:
        name = authority_id(root)
        if name in found.ids and name not in held.revoked and not _succeeds(signers, root):
            raise CertificateError("it drops a root, and is not signed below its successor")
    return found


def _succeeds(signers: Sequence[x509.Certificate], root: x509.Certificate) -> bool:
    """Return whether the signer is, or is below, another root for which `root` vouches."""
    for one in signers:
        if not is_authority(one) or path_length(one) is not None or not is_signed_by(one, [root]):
            continue
        if authority_id(one) == authority_id(root):
            continue
        if authority_id(one) == authority_id(signers[0]):
            return True
        if may_sign(one, signers[0]) and is_signed_by(signers[0], [one]):
            return True
    return False


def _knows_later_root(
    signers: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> bool:
    try:
        return names_successor(path_of(signers[0], signers[1:], roots), roots)
    except CertificateError:
        return False


def _newest_list(
    folder: KeyFolder, overlay: str, roots: list[x509.Certificate], former: Beliefs | None
) -> tuple[Revocations, bytes, frozenset[NodeId], str]:
    """Return the list in force, its encoding, the ids to refuse, and the reason if none is
    trusted."""
    newest, its_data, refused, reason = NONE, b"", frozenset[NodeId](), ""
    held = b"" if former is None else former.revocations_data
    for each in dict.fromkeys((folder.document("revoked"), held)):
        # (One that drops a root was looked at when it came, and is signed below another one.)
        found, data, fault = believed_list(each, overlay, roots[:1])
        if data and found.version > newest.version:
            newest, its_data = found, data
        refused |= frozenset(found.ids)
        reason = reason or fault
    return newest, its_data, refused, "" if its_data else reason


def _newest_policy(
    folder: KeyFolder, overlay: str, roots: list[x509.Certificate], former: Beliefs | None
) -> tuple[Policy | None, bytes, str]:
    """Return the policy in force, its encoding, and the reason if none is trusted. A policy that
    was once trusted stays in force, even if its signer was revoked since: otherwise revoking an
    admin would permit or deny everything."""
    newest: Policy | None = None
    its_data, reason = b"", ""
    held = b"" if former is None else former.policy_data
    for each in dict.fromkeys((folder.document("policy"), held)):
        found, fault = believed_policy(each, overlay, roots)
        if found is not None and (newest is None or found.version > newest.version):
            newest, its_data = found, each
        reason = reason or fault
    return newest, its_data, "" if its_data else reason


# --- which ids are the only ones of their key and of their place, as one node has seen it ---
#
# A key has one id at a time, and of an issuer that may sign so many ids each has a place of its own
# (`restrictions`). An issuer that keeps to neither is found out by every node that meets two such
# ids: it believes one of them. So at one node there are never more ids of an issuer than its
# certificate says, without a word between nodes.

REMEMBERED: Final = 65_536
"""The most keys and places that are remembered. A forgotten key may use another id."""


class LiveIds:
    """The generations of keys, and the holders of places, that were seen."""

    def __init__(self) -> None:
        self._generations: BoundedDict[bytes, int] = BoundedDict(REMEMBERED)
        self._places: BoundedDict[tuple[NodeId, int], Vouched] = BoundedDict(REMEMBERED)

    def refusal(self, found: Vouched, now: float, revoked: Collection[NodeId]) -> str:
        """Return why another id is valid in place of this one, whose chain is valid; empty if this
        one is."""
        node = found.node
        generation = node.holder.generation
        if generation < self._generations.get(node.key, 0):
            return "its key has become another node"
        if node.holder.place:
            place = (found.issuers[0], node.holder.place)
            other = self._places.get(place, found)
            if (
                other.node.key != node.key
                and other.ends > now
                and (other.node.principal.id not in revoked)
            ):
                return f"its issuer has signed another node in its place {node.holder.place}"
            self._places.renew(place, found)
        self._generations.renew(node.key, generation)
        return ""
